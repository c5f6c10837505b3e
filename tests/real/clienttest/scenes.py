"""The faults, and what the user of each library is to see of each.

A scene starts a fleet and a proxy of its own, breaks something, makes every call and says what each
should have come to."""

import time

from fleettest import wire

from .calls import at_once
from .fleet import PERSONAS, all_faults, fleet, lift_after
from .outcome import Expect

BUSY_S = 2
# What the proxy tells a client to wait when it has no room, and when nothing is up.
BUSY_RETRY_S = 5
DOWN_RETRY_S = 10
IMPATIENT = {"routing.queue_wait_ms": 500, "routing.home_wait_ms": 100}
ALL_SENT = (3,)


def expected(answers, everything):
    """[(call, outcome, expectation)], the same expectation for each call or one that depends on it."""
    choose = everything if callable(everything) else lambda _call: everything
    return [(call, outcome, choose(call)) for call, outcome in answers]


def overloaded(call, says, requests=ALL_SENT, seconds=(0.0, 60.0)):
    """No room: 503, which Anthropic spells 529 and has a class for."""
    if call.api != "messages":
        return Expect("InternalServerError", 503, says, requests, seconds)
    return Expect("OverloadedError", 529, says, requests, seconds)


def broken_stream(call):
    """A stream that failed after its first event: in words, at once, never asked for again."""
    says = "The backend broke while answering. Retry the request."
    if call.api == "responses":
        return Expect("response.failed", None, says, some_text=True)
    if call.api == "messages" and call.language == "python":
        # The library gives the status of the head it had seen.
        return Expect("APIStatusError", 200, says, some_text=True)
    return Expect("APIError", None, says, some_text=True)


def half_an_event(call):
    """The engine died within an event. What was sent of it cannot be taken back. In Messages it becomes our error event;
    OpenAI's libraries stop at the half with their JSON reader's own error."""
    if call.api == "messages":
        says = "The backend broke while answering. Retry the request."
        if call.language == "python":
            return Expect("APIStatusError", 200, says, some_text=True)
        return Expect("APIError", None, says, some_text=True)
    return Expect("JSONDecodeError" if call.language == "python" else "SyntaxError", some_text=True)


def normal(calls):
    for persona in PERSONAS:
        with fleet([persona]) as (_engines, proxy):
            yield from expected(at_once(calls, proxy.url, f"normal {persona}"), Expect())


def killed(calls):
    """The engine that works on the request dies before it has said anything: nobody is to notice."""
    settings = {"routing.policy": '"round_robin"'}
    for call in calls:
        # Engines that compute nothing until one is dead.
        with fleet(PERSONAS, ("--fault-wedge",), settings) as (engines, proxy):

            def kill_the_one_at_work():
                wire.wait_until(lambda: busy(engines), 10)
                victim = busy(engines)[0]
                all_faults([engine for engine in engines if engine is not victim], wedge=False)
                victim.kill()

            yield from expected(at_once([call], proxy.url, "killed", kill_the_one_at_work), Expect())


def busy(engines):
    return [engine for engine in engines if engine.state()["running"]]


def busy_for_a_moment(calls):
    """Full everywhere for less time than a request may wait: it waits, and the library sees one slow request."""
    with fleet(("vllm", "sglang")) as (engines, proxy):
        all_faults(engines, full=True)
        lift = lambda: lift_after(BUSY_S, engines, full=False)  # noqa: E731
        yield from expected(at_once(calls, proxy.url, "busy", lift), Expect(seconds=(BUSY_S - 0.1, BUSY_S + 4)))


def busy_beyond_our_patience(calls):
    """Full for longer than a request may wait: the library is told when to come back, does, and is served."""
    with fleet(("vllm", "sglang"), settings=IMPATIENT) as (engines, proxy):
        all_faults(engines, full=True)
        lift = lambda: lift_after(BUSY_S, engines, full=False)  # noqa: E731
        library = Expect(requests=(2,), seconds=(BUSY_RETRY_S, BUSY_RETRY_S + 3))
        # Agents keep their own time.
        agent = Expect(seconds=(BUSY_S - 0.1, BUSY_RETRY_S + 10))
        answers = at_once(calls, proxy.url, "busy for long", lift)
        yield from expected(answers, lambda call: agent if call.language == "agent" else library)


def all_down(calls):
    with fleet(PERSONAS) as (engines, proxy):
        for engine in engines:
            engine.kill()
        proxy.wait_for(admitting=0)
        waits = (2 * DOWN_RETRY_S, 2 * DOWN_RETRY_S + 5)
        says = "No backend for this model is up. Retry in 10 s."
        answers = at_once(calls, proxy.url, "all down")
        yield from expected(answers, lambda call: overloaded(call, says, seconds=waits))


def cut(calls):
    streams = [call for call in calls if call.stream]
    for persona in PERSONAS:
        for how in ("close", "reset", "inside_event"):
            with fleet([persona]) as (engines, proxy):
                all_faults(engines, cut={"after_events": 9, "how": how})
                answers = at_once(streams, proxy.url, f"cut {persona} {how}")
                yield from expected(answers, half_an_event if how == "inside_event" else broken_stream)


def stalled(calls):
    """An engine that falls silent: within a stream, an error in words; before the first byte, a timeout."""
    settings = {"timeouts.stream_idle_ms": 1000, "timeouts.first_byte_ms": 1000}
    with fleet(("vllm",), settings=settings) as (engines, proxy):
        all_faults(engines, stall_after_events=9)
        yield from expected(at_once([call for call in calls if call.stream], proxy.url, "stalled"), broken_stream)
    with fleet(("vllm", "sglang", "llamacpp"), settings=settings) as (engines, proxy):
        all_faults(engines, wedge=True)
        says = "The backend did not answer in time."
        whole = [call for call in calls if not call.stream]
        openai = Expect("InternalServerError", 504, says, ALL_SENT)
        anthropic = Expect("GatewayTimeoutError", 504, says, ALL_SENT)
        answers = at_once(whole, proxy.url, "wedged")
        yield from expected(answers, lambda call: anthropic if call.api == "messages" else openai)


def unknown_model(calls):
    """The library must not repeat it, and the text must get through."""
    says = "No backend serves this model. GET /v1/models lists those that are served."
    with fleet(PERSONAS) as (_engines, proxy):
        answers = at_once(calls, proxy.url, "unknown", model="no-such-model")
        chat = Expect("NotFoundError", 404, says)
        other = Expect("BadRequestError", 400, says)
        yield from expected(answers, lambda call: chat if call.api == "chat" else other)


def prompt_too_large(calls):
    for persona in PERSONAS:
        with fleet([persona], ("--sequence-tokens", "2000")) as (_engines, proxy):
            answers = at_once(calls, proxy.url, "large", prompt="many words " * 4000)
            yield from expected(answers, Expect("BadRequestError", 400))


def rate_limited_everywhere(calls):
    """Engines that answer 429: the request waits while that may end in time; else the caller gets the engines' own answer,
    at once, and comes back when it says."""
    with fleet(PERSONAS) as (engines, proxy):
        all_faults(engines, rate_limited={"retry_after_s": 1})
        lift = lambda: lift_after(BUSY_S, engines, rate_limited=None)  # noqa: E731
        yield from expected(at_once(calls, proxy.url, "limited", lift), Expect(seconds=(BUSY_S - 0.1, BUSY_S + 6)))
    with fleet(PERSONAS, settings=IMPATIENT) as (engines, proxy):
        all_faults(engines, rate_limited={"retry_after_s": 1})
        limited = Expect("RateLimitError", 429, "Rate limit reached for requests", ALL_SENT, (2.0, 8.0))
        yield from expected(at_once(calls, proxy.url, "limited for good"), limited)


def key_refused_by_one(calls):
    """One engine does not know our key: the others do, and the caller is served."""
    with fleet(PERSONAS, settings={"routing.policy": '"round_robin"'}) as (engines, proxy):
        engines[0].faults(key_refused=True)
        for turn in range(len(engines)):
            yield from expected(at_once(calls, proxy.url, f"key {turn}"), Expect())


def draining(calls):
    """What runs is finished; who comes later finds nobody, which the library repeats and then says."""
    with fleet(("vllm", "sglang")) as (_engines, proxy):

        def stop_in_the_middle():
            wire.wait_until(lambda: proxy.in_flight() == len(calls), 10)
            proxy.stop()

        yield from expected(at_once(calls, proxy.url, "draining", stop_in_the_middle), Expect())
        proxy.process.wait(20)
        time.sleep(0.1)
        gone = Expect("APIConnectionError", None, "Connection error.", ALL_SENT)
        yield from expected(at_once(calls, proxy.url, "drained"), gone)


# Those in which Claude Code and Codex are asked something, too.
WITH_AGENTS = ("normal", "killed before the reply", "busy for 2 s", "busy beyond our patience")

ALL = {
    "normal": normal,
    "killed before the reply": killed,
    "busy for 2 s": busy_for_a_moment,
    "busy beyond our patience": busy_beyond_our_patience,
    "all down": all_down,
    "cut mid-stream": cut,
    "stalled": stalled,
    "unknown model": unknown_model,
    "prompt too large": prompt_too_large,
    "rate-limited everywhere": rate_limited_everywhere,
    "key refused by one": key_refused_by_one,
    "draining": draining,
}
