"""Step: more in flight than the engines' memory holds. With one pool for all slots llama.cpp takes
whatever comes, and once the pool is used up it fails everything it computes ("Context size has been
exceeded."). Nobody behind the proxy may notice; the proxy is told nothing that the engines do not tell."""

from . import chats, crowd, report
from .engine import engines
from .proxy import shearwater

MODEL = "mid"
UNIFIED = "kv_unified=true"

# 12 sessions that grow to 3,000 tokens and more, on two pools of 6,144.
SESSIONS = 12
TURNS = 17
WORDS = 50
SLOTS = 6
POOL = 6144

# Replies of 600 tokens on pools with room for three and for two of them.
STREAMS = 12
ROOM = (3, 2)
REPLY_TOKENS = 600
REQUEST_TOKENS = 720


def clients(ports, count, reply_tokens):
    """Of both libraries in turn; each asks the ports one after another, every one beginning elsewhere."""
    made = []
    for number in range(count):
        kind = (chats.OpenAIChat, chats.AnthropicMessages)[number % 2]
        turned = [ports[(number // 2 + i) % len(ports)] for i in range(len(ports))]
        made.append(crowd.Counted([kind(port, MODEL, reply_tokens) for port in turned]))
    return made


def two_of_three(turn):
    return turn % 3 != 2


def converse(where, ports):
    return crowd.converse(where, clients(ports, SESSIONS, chats.REPLY_TOKENS), TURNS, WORDS, two_of_three)


def rush(where, ports):
    return crowd.rush(where, clients(ports, STREAMS, REPLY_TOKENS), WORDS)


def compare(starts, play):
    """The same on fresh engines, without and with the proxy. Returns (direct, through)."""
    with engines(*starts) as backends:
        direct = play("nothing", [backend.port for backend in backends])
    with engines(*starts) as backends, shearwater(backends) as proxy:
        through = play("shearwater", [proxy.port])
        through.busy = proxy.metric("shearwater_busy_answers_total")
        admitting = [backend["state"]["admits"] for backend in proxy.backends()]
    return direct, through, admitting


def run(out):
    report.heading(f"overload: {SESSIONS} sessions of {TURNS} turns at once, 2 engines with {SLOTS} slots in {POOL} tokens")
    start = ("llamacpp", MODEL, SLOTS, POOL, UNIFIED)
    judge("overload, sessions", compare([start, start], converse), out)
    room = " + ".join(map(str, ROOM))
    report.heading(f"overload: {STREAMS} streams at once, 2 engines with room for {room}")
    # A tenth of a pool is spare, and llama.cpp makes pools in steps of 256 tokens.
    pools = [-(-room * REQUEST_TOKENS * 10 // 9 // 256) * 256 for room in ROOM]
    starts = [("llamacpp", MODEL, STREAMS, pool, UNIFIED) for pool in pools]
    judge("overload, rush", compare(starts, rush), out)


def judge(name, played, out):
    direct, through, admitting = played
    report.table([crowd.HEAD, direct.row(), through.row()])
    for error in through.errors[:5]:
        print(f"  {error}")
    out.figure(name, [dict(zip(crowd.HEAD, crowd_.row())) for crowd_ in (direct, through)])
    all_of_them, answered = len(through.outcomes), through.count(crowd.ANSWERED)
    alone = direct.count(crowd.ANSWERED)
    out.bar(f"{name}: everything is answered", answered == all_of_them, f"{answered} of {all_of_them}")
    out.bar(f"{name}: without a proxy it is not", alone < all_of_them, f"{alone} of {all_of_them}")
    out.bar(f"{name}: nobody is given up for being full", all(admitting), f"{sum(admitting)} of {len(admitting)} admit")
