"""Step: more in flight than the engines' memory holds. With one pool for all slots llama.cpp takes
whatever comes, and once the pool is used up it fails everything it computes ("Context size has been
exceeded."). Nobody behind the proxy may notice; the proxy is told nothing that the engines do not tell."""

from . import chats, crowd, report, text
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

# Prompts with twice, and with four times, as many tokens as the bytes of ordinary text have, to a proxy that saw none yet.
DENSE = 24
DENSE_POOL = 6144
DENSE_SLOTS = 8
DENSE_PROSE = {"dense": (300, text.settings), "hashes": (60, text.hashes)}


def two_of_three(turn):
    return turn % 3 != 2


def converse(where, ports):
    return crowd.converse(where, crowd.clients(ports, MODEL, SESSIONS, chats.REPLY_TOKENS), TURNS, WORDS, two_of_three)


def rush(where, ports):
    return crowd.rush(where, crowd.clients(ports, MODEL, STREAMS, REPLY_TOKENS), WORDS)


def rush_dense(words, prose):
    def rushed(where, ports):
        return crowd.rush(where, crowd.clients(ports, MODEL, DENSE, chats.REPLY_TOKENS), words, prose)

    return rushed


def compare(starts, play):
    """The same on fresh engines, without and with the proxy."""
    with engines(*starts) as backends:
        direct = play("nothing", [backend.port for backend in backends])
    with engines(*starts) as backends, shearwater(backends) as proxy:
        return direct, crowd.through(proxy, play)


def run(out):
    report.heading(f"overload: {SESSIONS} sessions of {TURNS} turns at once, 2 engines with {SLOTS} slots in {POOL} tokens")
    start = ("llamacpp", MODEL, SLOTS, POOL, UNIFIED)
    crowd.judge("overload, sessions", *compare([start, start], converse), out)
    room = " + ".join(map(str, ROOM))
    report.heading(f"overload: {STREAMS} streams at once, 2 engines with room for {room}")
    # A tenth of a pool is spare, and llama.cpp makes pools in steps of 256 tokens.
    pools = [-(-room * REQUEST_TOKENS * 10 // 9 // 256) * 256 for room in ROOM]
    starts = [("llamacpp", MODEL, STREAMS, pool, UNIFIED) for pool in pools]
    crowd.judge("overload, rush", *compare(starts, rush), out)
    start = ("llamacpp", MODEL, DENSE_SLOTS, DENSE_POOL, UNIFIED)
    for name, (words, prose) in DENSE_PROSE.items():
        report.heading(
            f"overload: {DENSE} prompts at once ({name}), 2 engines with {DENSE_SLOTS} slots in {DENSE_POOL} tokens"
        )
        crowd.judge(f"overload, {name}", *compare([start, start], rush_dense(words, prose)), out)
