"""The loads, as data. Each names what the fleet is told, what the clients do, and when to look.

Streams come at 10,000 events a second in all, whatever their number, so that what differs between
16 and 4,000 streams is the number of streams. (16 streams cannot: an engine that fast is not
one stream's.) Prompts are half shared within a group and half new, as chats are.
"""

from dataclasses import dataclass, field

SHARED_AND_NEW = 2
COUNTED_S = 0.4


@dataclass(frozen=True)
class Load:
    name: str
    # What it shows, for tables.
    title: str
    # "event" or "request": what CPU time and system calls are divided by.
    unit: str
    client: list
    fleet: list = field(default_factory=list)
    engines: int = 2
    # Faults of the engines, from when the proxy is ready until the clients are done.
    faults: dict = field(default_factory=dict)
    # Seconds after the clients' start at which the timed window begins, and how long it is.
    window_at: float = 0.8
    window: float = 2.0
    # Taken in every round, or in the first one only unless it is asked for by name.
    every_round: bool = False
    # The core is to be kept full: figures are rates, not latencies.
    saturates: bool = False
    # Streams or requests under way in the window, for memory; 0 if that means nothing.
    held: int = 0
    # Seconds after the clients' start at which memory is read once more; 0 for not at all.
    look_again_at: float = 0.0
    # Whether CPU time is to be had: not if nothing moves in the window.
    timed: bool = True
    # Seconds for which system calls are counted, behind the window.
    counted: float = COUNTED_S
    # Whether two runs with one seed send the very same requests, so that their replies must agree.
    repeatable: bool = True


def prompt(size):
    part = str(size // SHARED_AND_NEW)
    return ["--system-bytes", part, "--user-bytes", part]


def open_loop(requests, seconds, tokens, size):
    rate = str(requests / seconds)
    loop = ["--rate", rate, "--arrivals", "constant", "--requests", str(requests)]
    return [*loop, "--conversations", str(requests), "--max-tokens", str(tokens), *prompt(size)]


def replies(tokens, per_second, *more):
    length = ["--reply-min", str(tokens), "--reply-max", str(tokens)]
    return [*length, "--decode-tps", str(per_second), *more]


def streams(count, per_second, ramp, window, *, step=False, **more):
    """`count` streams opened over `ramp` seconds, all of them running through the whole window."""
    begin = ramp + 0.4
    # The first stream must outlast the window and the count of system calls behind it.
    tokens = int((begin + window + COUNTED_S + 0.2) * per_second)
    how = "step" if step else "spread"
    title = f"{count:,} streams, {'all together' if step else 'spread'}"
    return Load(
        name=more.pop("name", f"streams-{count}-{how}"),
        title=more.pop("title", title),
        unit="event",
        client=[*open_loop(count, ramp, tokens, 200), *more.pop("client", [])],
        fleet=replies(tokens, per_second, *(["--lockstep"] if step else [])),
        window_at=begin,
        window=window,
        held=count,
        **more,
    )


def prompts(name, size, per_second, seconds, every_round=False, counted=COUNTED_S):
    """Prompts of one size at a steady rate, answered with one event."""
    return Load(
        name=f"prompt-{name}",
        title=f"{name.replace('k', ' KB').replace('m', ' MB').replace('b', ' B')} prompts",
        unit="request",
        client=open_loop(int(per_second * seconds), seconds, 1, size),
        fleet=replies(1, 1000),
        window_at=0.4,
        window=seconds - counted - 0.5,
        counted=counted,
        every_round=every_round,
    )


def flat_out(name, title, unit, places, tokens, per_second, ramp_ms):
    """As many requests as the machine takes: each place asks again as soon as it is answered."""
    loop = ["--conversations", str(places), "--turns", "1", "--duration", "3s", "--ramp-ms", str(ramp_ms)]
    return Load(
        name=name,
        title=title,
        unit=unit,
        client=[*loop, "--max-tokens", str(tokens), *prompt(200)],
        fleet=replies(tokens, per_second),
        window_at=1.0,
        window=1.8,
        saturates=True,
        repeatable=False,
    )


HELD_REQUESTS = 200

ALL = [
    streams(16, 50, 0.1, 2.0),
    streams(16, 50, 0.1, 2.0, step=True),
    streams(256, 40, 0.5, 2.0, every_round=True),
    streams(256, 40, 0.5, 2.0, step=True, every_round=True),
    streams(1024, 10, 1.0, 2.0),
    streams(1024, 10, 1.0, 2.0, step=True),
    streams(4000, 2.5, 3.0, 2.0),
    streams(4000, 2.5, 3.0, 2.0, step=True),
    prompts("200b", 200, 400, 2.9),
    prompts("4k", 4_000, 400, 2.9, every_round=True),
    prompts("100k", 100_000, 80, 2.9, every_round=True),
    prompts("2m", 2_000_000, 8, 5.0, counted=1.0),
    Load(
        name="held-100k",
        title="100 KB requests in flight",
        unit="request",
        # Requests come for 2 s, each is answered from 3 s to 5 s after it came.
        client=open_loop(HELD_REQUESTS, 2.0, 100, 100_000),
        fleet=replies(100, 20),
        faults={"slow_head_ms": 3000},
        window_at=2.2,
        window=0.3,
        held=HELD_REQUESTS,
        look_again_at=5.1,
        timed=False,
    ),
    Load(
        name="slow-clients",
        title="clients slower than the engine",
        unit="event",
        # 250 events a second come, about 40 a second are read.
        client=[*open_loop(64, 0.2, 100, 200), "--slow-reader", "12000"],
        fleet=replies(100, 250),
        window_at=0.0,
        window=2.5,
        held=64,
    ),
    streams(
        256, 40, 0.5, 2.0,
        name="cancelled", title="256 streams, 10 % hung up on", client=["--cancel-fraction", "0.1"],
    ),
    streams(
        256, 40, 0.5, 2.0, name="fleet-100", title="256 streams, 100 backends", engines=100
    ),
    streams(
        256, 40, 0.5, 2.0, name="fleet-1000", title="256 streams, 1,000 backends", engines=1000
    ),
    flat_out("full-requests", "requests, flat out", "request", 64, 1, 1000, ramp_ms=100),
    # 41,000 events a second are due: more than one core makes and reads.
    flat_out("full-events", "events, flat out", "event", 1024, 60, 40, ramp_ms=800),
]

BY_NAME = {load.name: load for load in ALL}

SMOKE = ["streams-256-spread", "prompt-4k"]
