"""Shearwater in front of a real vLLM and a real SGLang server; the script `vllm-sglang` starts this."""

import argparse
import sys

from . import chats, crowd, repairs, report, way
from .engine import engines
from .proxy import shearwater
from .report import Report
from .run import all_of

MODEL = "tiny"
CONVERSATIONS = 4
TURNS = 4
# The engines run with 2,048 tokens of context.
WORDS = 60
# Engines that refuse: vLLM has three requests in all, SGLang one at work and one waiting.
STREAMS = 12
REPLY_TOKENS = 200
CAPPED = (
    ("vllm", MODEL, "--max-num-queued-reqs", 3),
    ("sglang", MODEL, "--max-running-requests", 1, "--max-queued-requests", 1),
)
# vLLM reuses whole blocks of 32 tokens and SGLang whole pages of 16: the last one may be lost.
BLOCK_TOKENS = 32


def play():
    with engines(("vllm", MODEL), ("sglang", MODEL)) as backends, shearwater(backends) as proxy:
        before = [backend.tokens() for backend in backends]
        held = [chats.Conversation(n, chats.OpenAIChat(proxy.port, MODEL), always, WORDS) for n in range(CONVERSATIONS)]
        chats.hold_all(held, TURNS)
        counted = [backend.tokens() - earlier for backend, earlier in zip(backends, before)]
        return held, dict(zip((backend.name for backend in backends), counted))


def always(_turn):
    return True


def at_home(turn, before):
    return turn.backend == before.backend and turn.cached >= before.prompt - BLOCK_TOKENS


def run(out):
    report.heading(f"{CONVERSATIONS} streamed conversations of {TURNS} turns at once, one vLLM and one SGLang")
    held, counted = play()
    head = ["engine", "prompt tokens", "cached", "share"]
    rows = [[name, t.prompt, t.cached, report.percent(t.cached, t.prompt)] for name, t in counted.items()]
    report.table([head, *rows])
    out.figure("engines", [dict(zip(head, cells)) for cells in rows])
    errors = [error for conversation in held for error in conversation.errors]
    out.bar("no errors", not errors, f"{len(errors)} errors {errors[:2] or ''}".strip())
    pairs = [pair for conversation in held for pair in conversation.follow_ups()]
    home = sum(at_home(*pair) for pair in pairs)
    wanted = CONVERSATIONS * (TURNS - 1)
    out.bar("every follow-up goes home and finds its prefix", home == wanted, f"{home} of {wanted}")


def rush(where, ports):
    return crowd.rush(where, crowd.clients(ports, MODEL, STREAMS, REPLY_TOKENS), WORDS)


def run_full(out):
    report.heading(f"{STREAMS} streams at once, a vLLM with room for 3 and an SGLang with room for 2")
    with engines(*CAPPED) as backends:
        direct = rush("nothing", [backend.port for backend in backends])
        with shearwater(backends) as proxy:
            crowd.judge("full", direct, crowd.through(proxy, rush), out)


def run_repairs(out):
    # It drops the block itself.
    repairs.run(out, ("vllm", MODEL), lost=[])
    repairs.run(out, ("sglang", MODEL), lost=["again", "shared"])


STEPS = {"conversations": run, "full": run_full, "repairs": run_repairs, "way": way.run}


def main():
    parser = argparse.ArgumentParser(prog="vllm-sglang", description=__doc__.split(";")[0])
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS), help="only these (all)")
    parser.add_argument("--json", metavar="FILE", help="write bars and figures there, too")
    args = parser.parse_args()
    out = Report()
    all_of({name: STEPS[name] for name in args.steps}, out)
    return out.finish(args.json)


if __name__ == "__main__":
    sys.exit(main())
