"""Shearwater in front of two real llama.cpp servers; the script `llamacpp` starts this."""

import argparse
import sys

from . import caches, hangup, homes, overload, pinning, policies, repairs, streams, surface
from .report import Report
from .run import all_of


def run_repairs(out):
    # It evens out what differs between requests, not what differs between conversations.
    repairs.run(out, ("llamacpp", "mid", 4, 16384), lost=["shared"])


STEPS = {
    "policies": policies.run,
    "streams": streams.run,
    "caches": caches.run,
    "hangup": hangup.run,
    "homes": homes.run,
    "overload": overload.run,
    "pinning": pinning.run,
    "repairs": run_repairs,
    "surface": surface.run,
}


def arguments():
    parser = argparse.ArgumentParser(prog="llamacpp", description=__doc__.split(";")[0])
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS), help="only these (all)")
    parser.add_argument("--json", metavar="FILE", help="write bars and figures there, too")
    return parser.parse_args()


def main():
    args = arguments()
    out = Report()
    all_of({name: STEPS[name] for name in args.steps}, out)
    return out.finish(args.json)


if __name__ == "__main__":
    sys.exit(main())
