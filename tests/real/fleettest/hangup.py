"""Step: a client that leaves before its reply is whole. The engine must hear of it as soon as if the client
had been its own, and the place must be free as soon as the engine is done, and not before.

llama.cpp notices a closed connection only when it writes to it: a streamed reply ends at its first
token after that, a whole one is worked out to its end, whoever is in front; hence the comparison. What is
left before its reply has begun keeps its place until `/slots` shows that the engine is done."""

import http.client
import json
import time
from dataclasses import dataclass

from . import report, text, wire
from .engine import engines
from .proxy import shearwater

MODEL = "mid"
SLOTS = 4
CONTEXT = SLOTS * 16384
PROXY_FREE_S = 0.1
# What is left before its reply: the engine is asked once a second, and believed from a second after that on.
PROXY_LATER_S = 3.5
# Against an engine's own client, because the machine is not equally fast twice. A streamed reply that
# nobody stopped would take far longer.
ENGINE_SLOWER_MAX = 2
ENGINE_LATER_S = 1
START_S = 20
IDLE_S = 60


@dataclass
class Case:
    """When the client leaves, how the reply was to come, how long prompt and reply are."""

    name: str
    stream: bool
    words: int
    reply_tokens: int
    in_prefill: bool


CASES = (
    Case("in prefill, streamed", True, 2500, 10_000, True),
    Case("in prefill, whole", False, 2500, 100, True),
    Case("in the reply, streamed", True, 30, 10_000, False),
)


def send(port, case):
    """Returns the connection, with the request sent and, after prefill, the reply begun."""
    body = {"model": MODEL, "stream": case.stream, "max_tokens": case.reply_tokens, "ignore_eos": True}
    body["messages"] = [{"role": "user", "content": text.words(f"{port} {case.name}", case.words)}]
    connection = http.client.HTTPConnection(wire.HOST, port, timeout=wire.TIMEOUT_S)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
    if not case.in_prefill:
        reply = connection.getresponse()
        reply.read(200)
        # The reply holds the socket, too, once it has begun.
        connection.response = reply
    return connection


def leave(connection):
    if reply := getattr(connection, "response", None):
        reply.close()
    connection.close()


def hang_up(port, case, running):
    """Sends, waits until it is `running()` and leaves."""
    connection = send(port, case)
    began = wire.wait_until(running, START_S)
    leave(connection)
    if began is None:
        raise RuntimeError(f"the request {case.name} never ran")


def busy(backends):
    return sum(backend.busy_slots() for backend in backends)


def idle_after(backends):
    return wire.wait_until(lambda: busy(backends) == 0, IDLE_S, step_s=0.01)


def straight(backends, case):
    """Seconds until an engine is idle after a client of its own left; None: never."""
    hang_up(backends[0].port, case, lambda: busy(backends) == 1)
    return idle_after(backends)


def through(proxy, backends, case):
    """(seconds until the proxy held nothing, seconds until the engines were idle); None: never."""
    hang_up(proxy.port, case, lambda: busy(backends) == 1 and proxy.in_flight() == 1)
    began = time.monotonic()
    freed = idle = None
    while (freed is None or idle is None) and time.monotonic() - began < IDLE_S:
        # In this order: a place that is free while the engine is at work is seen as such.
        if freed is None and proxy.in_flight() == 0:
            freed = time.monotonic() - began
        if idle is None and busy(backends) == 0:
            idle = time.monotonic() - began
        time.sleep(0.01)
    return freed, idle


def shown(seconds):
    return "never" if seconds is None else f"{1000 * seconds:.0f} ms"


def judge(case, direct, freed, idle, out):
    known = freed is not None and idle is not None
    if case.in_prefill:
        free = known and idle - 0.1 <= freed <= idle + PROXY_LATER_S
        out.bar(f"hang-up {case.name}: nothing in flight once the engine is done", free, f"{shown(freed)}, {shown(idle)}")
    else:
        free = freed is not None and freed <= PROXY_FREE_S
        out.bar(f"hang-up {case.name}: nothing in flight within {shown(PROXY_FREE_S)}", free, shown(freed))
    told = direct is not None and idle is not None and idle <= ENGINE_SLOWER_MAX * direct + ENGINE_LATER_S
    found = f"{shown(idle)} against {shown(direct)}"
    out.bar(f"hang-up {case.name}: engine idle as soon as without a proxy", told, found)


def run(out):
    report.heading("hang-up: the client leaves early")
    start = ("llamacpp", MODEL, SLOTS, CONTEXT)
    with engines(start, start) as backends, shearwater(backends, "cost", CONTEXT) as proxy:
        for case in CASES:
            direct = straight(backends, case)
            freed, idle = through(proxy, backends, case)
            out.figure(f"hang-up {case.name}", {"direct_s": direct, "proxy_free_s": freed, "engine_idle_s": idle})
            judge(case, direct, freed, idle, out)
