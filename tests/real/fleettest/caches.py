"""Step: cachetest.py, one request at a time. High reuse is easy by sending everything to one backend,
so the split counts as much."""

from . import report, tools
from .engine import engines
from .proxy import shearwater

MODEL = "mid"
SLOTS = 4
CONTEXT = 16384
# Odd, so that plain round robin does not bring conversations home by chance.
CONVERSATIONS = 7
REPEATS = 3
CACHED_MIN = 0.74
LARGER_SHARE_MAX = 0.65


def once(policy):
    start = ("llamacpp", MODEL, SLOTS, CONTEXT)
    with engines(start, start) as backends, shearwater(backends, policy, CONTEXT) as proxy:
        return tools.cachetest(proxy.port, MODEL, CONVERSATIONS, backends)


def alone():
    """What one engine without a proxy reaches: the most there is, since first turns cannot hit."""
    with engines(("llamacpp", MODEL, SLOTS, CONTEXT)) as backends:
        return tools.cachetest(backends[0].port, MODEL, CONVERSATIONS, backends)


def row(name, result):
    larger = f"{100 * max(result.shares.values()):.0f} %"
    return [name, result.prompt, report.percent(result.cached, result.prompt), larger, f"{result.median_ms} ms"]


def run(out):
    report.heading(f"caches: {CONVERSATIONS} conversations of 4 turns, 2 engines of {SLOTS} slots, {REPEATS} times")
    head = ["in front", "prompt tokens", "cached", "larger share", "median"]
    ours = [once("cost") for _ in range(REPEATS)]
    rows = [row("nothing, one engine", alone())]
    rows += [row("shearwater cost", result) for result in ours]
    rows += [row("shearwater round_robin", once("round_robin")) for _ in range(REPEATS)]
    report.table([head, *rows])
    out.figure("caches", [dict(zip(head, cells)) for cells in rows])
    cached = [result.cached / result.prompt for result in ours]
    larger = [max(result.shares.values()) for result in ours]
    out.bar(f"caches: cost, cached >= {100 * CACHED_MIN:.0f} % each time", min(cached) >= CACHED_MIN, shares(cached))
    out.bar(
        f"caches: cost, larger backend <= {100 * LARGER_SHARE_MAX:.0f} % of prompt tokens each time",
        max(larger) <= LARGER_SHARE_MAX,
        shares(larger),
    )


def shares(values):
    return ", ".join(f"{100 * value:.1f} %" for value in values)
