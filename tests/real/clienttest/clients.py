"""Vendors' clients through every fault; the script `clients` starts this."""

import argparse
import sys
from dataclasses import asdict

from fleettest.report import Report, heading
from fleettest.run import all_of

from . import agents, calls, scenes


def arguments():
    parser = argparse.ArgumentParser(prog="clients", description=__doc__.split(";")[0])
    parser.add_argument("--scenes", nargs="+", choices=scenes.ALL, default=list(scenes.ALL), help="only these (all)")
    parser.add_argument("--json", metavar="FILE", help="write rows there, too")
    return parser.parse_args()


def play(name, everyone, out):
    """One scene: a bar for each client. A scene may be played several times; then all of them count."""
    heading(name)
    seen = {}
    for call, outcome, expect in scenes.ALL[name](everyone):
        complaints = expect.complaints(outcome)
        times, wrong, _ = seen.get(call.name, (0, [], None))
        seen[call.name] = times + 1, wrong + complaints, outcome
        out.figures.setdefault(name, []).append({"client": call.name, **asdict(outcome), "wrong": complaints})
    for client, (times, wrong, outcome) in seen.items():
        out.bar(f"{name}: {client}", not wrong, "; ".join(wrong) or f"{times} times: {outcome.shown()}")


def main():
    args = arguments()
    out = Report()
    node = calls.start_node()
    if node is None:
        print("SKIP: no Node.js or no libraries for it; THE TYPESCRIPT CLIENTS ARE NOT TESTED", file=sys.stderr)
    libraries, programs = calls.all_calls(node), agents.those_that_run()

    def scene(name):
        everyone = libraries + (programs if name in scenes.WITH_AGENTS else [])
        return lambda out: play(name, everyone, out)

    try:
        all_of({name: scene(name) for name in args.scenes}, out)
    finally:
        if node:
            node.end()
    return out.finish(args.json)


if __name__ == "__main__":
    sys.exit(main())
