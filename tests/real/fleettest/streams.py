"""Step: streams over reused connections. llama.cpp closes its connection after every streamed reply
although it promised to keep it; whoever pools that connection loses the next request."""

from . import report, tools
from .engine import engines
from .proxy import shearwater

MODEL = "mid"
SLOTS = 4
CONTEXT = 16384
RUNS = 11
STREAMS = 400
IN_FLIGHT = 8


def run(out):
    report.heading(f"streams: {RUNS} runs of {STREAMS} streams, {IN_FLIGHT} in flight, 2 engines of {SLOTS} slots")
    start = ("llamacpp", MODEL, SLOTS, CONTEXT)
    with engines(start, start) as backends:
        direct = tools.streamload(backends[0].port, MODEL, STREAMS, IN_FLIGHT)
        with shearwater(backends, "cost", CONTEXT) as proxy:
            through = [tools.streamload(proxy.port, MODEL, STREAMS, IN_FLIGHT) for _ in range(RUNS)]
    sent, failed = sum(r.sent for r in through), sum(r.failed for r in through)
    seconds = sum(r.seconds for r in through)
    rows = [
        ["in front", "streams", "failed", "share", "streams/s"],
        row("nothing", direct.sent, direct.failed, direct.seconds),
        row("shearwater", sent, failed, seconds),
    ]
    report.table(rows)
    for bad in (r for r in through if r.failed):
        print(f"  {bad.says}")
    out.figure("streams", [dict(zip(rows[0], cells)) for cells in rows[1:]])
    out.bar(f"streams: none of {RUNS * STREAMS} fails", failed == 0 and sent == RUNS * STREAMS, f"{failed} of {sent}")


def row(name, sent, failed, seconds):
    rate = f"{sent / seconds:.0f}" if seconds else "-"
    return [name, sent, failed, report.percent(failed, sent), rate]
