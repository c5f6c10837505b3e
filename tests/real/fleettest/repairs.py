"""Step: what `[repair]` does to requests, as the engines see it: each is accepted, does what it is for, and its client
gets nothing it did not ask for."""

import json
from dataclasses import dataclass

from . import chats, report, text, wire
from .engine import engines
from .proxy import shearwater

CAP = 16
REPAIRS = f"[repair]\ndrop_billing_block = true\ninclude_usage = true\nmax_tokens_cap = {CAP}"
CONVERSATIONS = 3
TURNS = 3
SYSTEM_WORDS = 250
STEP_WORDS = 60
# Engines reuse whole blocks, of 32 tokens at most: the last one of a prompt may be lost.
BLOCK_TOKENS = 32
ANTHROPIC = {"anthropic-version": "2023-06-01"}
QUESTION = [{"role": "user", "content": "how far is it"}]

# Path, the rest of a body without a bound, the names a bound has there, where the reply counts what it was.
CALLS = {
    "chat": (
        "/v1/chat/completions", {"messages": QUESTION}, ("max_tokens", "max_completion_tokens"), "completion_tokens"
    ),
    "completions": ("/v1/completions", {"prompt": "how far"}, ("max_tokens",), "completion_tokens"),
    "responses": ("/v1/responses", {"input": "how far"}, ("max_output_tokens",), "output_tokens"),
    "messages": ("/v1/messages", {"messages": QUESTION}, ("max_tokens",), "output_tokens"),
}


@dataclass
class Found:
    """How many prompts found what the engine has of them: follow-ups the prompt before, and first prompts of later
    conversations the system text that all share."""

    again: int = 0
    shared: int = 0


def billed(port, model, name):
    """Conversations in Messages as Claude Code holds them: the first system block differs between conversations, and, as
    some of its versions have it, with every request."""
    client = chats.AnthropicMessages(port, model, CAP)
    long, found = text.words(name, SYSTEM_WORDS), Found()
    for number in range(CONVERSATIONS):
        messages, before = [], None
        for turn in range(TURNS):
            version, cch = f"2.1.283.{number:03x}", f"{16 * number + turn:05x}"
            billing = f"x-anthropic-billing-header: cc_version={version}; cc_entrypoint=cli; cch={cch};"
            system = [{"type": "text", "text": billing}, {"type": "text", "text": long}]
            messages.append({"role": "user", "content": text.words(f"{name} {number} {turn}", STEP_WORDS)})
            reply, now = client.ask(system, messages, turn % 2 == 1)
            messages.append({"role": "assistant", "content": reply or "."})
            # A word takes more than a token.
            found.shared += before is None and now.cached >= SYSTEM_WORDS
            found.again += before is not None and now.cached >= before.prompt - BLOCK_TOKENS
            before = now
    return found


def stream(port, path, body):
    """(status, data of the events) of a stream."""
    answer = wire.request(port, "POST", path, {**body, "stream": True})
    lines = answer.body.decode().split("\n")
    return answer.status, [line[6:] for line in lines if line.startswith("data: ")]


def told_usage(events):
    """Events that say what was used; llama.cpp's timings are not usage."""
    return sum(bool(json.loads(data).get("usage")) for data in events if data != "[DONE]")


def told_nothing(events):
    """Events without a choice: such a one carries the usage."""
    return sum(not json.loads(data).get("choices") for data in events if data != "[DONE]")


def judge_usage(kind, model, engine, proxy, out):
    """Who did not ask is not told, who did is, and the proxy knows."""
    before = proxy.metric("shearwater_prompt_tokens_total")
    for name in ("chat", "completions"):
        path, rest, _, _ = CALLS[name]
        body = {"model": model, "max_tokens": CAP, **rest}
        status, events = stream(proxy.port, path, body)
        _, direct = stream(engine.port, path, body)
        # Replies are drawn by chance, so that they are not compared piece by piece.
        kinds, alone = ((told_usage(all), told_nothing(all)) for all in (events, direct))
        found = f"{status}, {kinds} events with usage, without choices, against {alone}"
        out.bar(f"repairs, {kind}: a {name} stream that did not ask for usage is as without a proxy",
                status == 200 and events[-1:] == ["[DONE]"] and kinds == alone, found)
        _, events = stream(proxy.port, path, {**body, "stream_options": {"include_usage": True}})
        out.bar(f"repairs, {kind}: a {name} stream that asked is told", told_usage(events) >= 1, told_usage(events))
    # The record of a request is counted a moment after its end.
    wire.wait_until(lambda: proxy.metric("shearwater_prompt_tokens_total") > before, 2)
    counted = proxy.metric("shearwater_prompt_tokens_total") - before
    out.bar(f"repairs, {kind}: the proxy was told what prompts took", counted > 0, f"{counted} tokens")


def judge_cap(kind, model, engine, proxy, out):
    """Bounds above the cap, and bounds left out where a cap gives one, end at the cap."""
    for name, (path, rest, bounds, counted) in CALLS.items():
        bodies = [{"model": model, bound: 4 * CAP, **rest} for bound in bounds]
        if name in ("chat", "responses"):
            bodies.append({"model": model, **rest})
        found = []
        for body in bodies:
            answer = wire.request(proxy.port, "POST", path, body, ANTHROPIC if name == "messages" else None)
            found.append(answer.json()["usage"][counted] if answer.status == 200 else answer.body[:200])
        right = all(isinstance(tokens, int) and 0 < tokens <= CAP for tokens in found)
        out.bar(f"repairs, {kind}: no {name} reply is longer than {CAP} tokens", right, found)


def run(out, start, lost):
    """`start` is how the engine is started; `lost` what nobody finds there behind a billing block: fields of Found."""
    kind, model = start[:2]
    report.heading(f"repairs: billing block, usage, cap, before one {kind}")
    with engines(start) as (engine,):
        with shearwater([engine]) as proxy:
            plain = billed(proxy.port, model, f"plain {kind}")
        with shearwater([engine], more=REPAIRS) as proxy:
            mended = billed(proxy.port, model, f"mended {kind}")
            judge_usage(kind, model, engine, proxy, out)
            judge_cap(kind, model, engine, proxy, out)
            bodies = proxy.metric("shearwater_bodies_repaired_total")
    wanted = {"again": CONVERSATIONS * (TURNS - 1), "shared": CONVERSATIONS - 1}
    head = ["billing block", "follow-ups found", "of", "shared system text found", "of"]
    table = [[name, found.again, wanted["again"], found.shared, wanted["shared"]]
             for name, found in (("kept", plain), ("dropped", mended))]
    report.table([head, *table])
    out.figure(f"repairs {kind}", {"kept": vars(plain), "dropped": vars(mended), "of": wanted, "bodies mended": bodies})
    out.bar(f"repairs, {kind}: without the billing block every prefix is found", vars(mended) == wanted, vars(mended))
    for what in lost:
        out.bar(f"repairs, {kind}: with it none is found {what}", getattr(plain, what) == 0, vars(plain))
