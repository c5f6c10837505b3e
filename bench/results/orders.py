"""Agents' means over many orders of sessions, where one order says little: orders differ by a fifth.

    TRACES=folder python3 orders.py [ORDERS] >orders.txt     # 40 unless told; a few minutes on two cores

Runs the arena's default policy: 16 and 24 sessions an engine, and 16 with a capacity assumed wrong. Needs the arena built:
`cargo build --release -p bench --bin shearwater-arena`; ARENA names another binary.
"""

import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ARENA = os.environ.get("ARENA", str(HERE.parents[1] / "target/release/shearwater-arena"))
TRACE = f"{os.environ['TRACES']}/cc_sessions.growth.jsonl.gz"
ORDERS = range(7, 7 + int(sys.argv[1] if len(sys.argv) > 1 else 40))
RIGHT = "8 engines"
CASES = {
    RIGHT: ["--backends", "8"],
    **{f"8 engines, {factor} times the capacity assumed": ["--backends", "8", "--assumed-capacity", factor]
       for factor in ("0.25", "0.5", "2", "4")},
    "8 engines, turns not waited for": ["--backends", "8", "--turn-wait-ms", "0"],
    "8 engines, nobody gives way": ["--backends", "8", "--give-way-max", "0"],
    "8 engines that keep nothing of what gave way": ["--backends", "8", "--step-tokens", "0"],
    "32 engines": ["--backends", "32", "--until", "1200"],
    "128 engines": ["--backends", "128", "--until", "600"],
    "8 engines, 24 sessions": ["--backends", "8", "--sessions-per-backend", "24"],
    "8 engines, 24 sessions, least work first": ["--backends", "8", "--sessions-per-backend", "24", "--sched", "500"],
}


def run(case, order):
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [ARENA, "--trace", TRACE, "--policy", "cost", "--jobs", "1", "--order-seed", str(order), "--json", out.name]
        subprocess.run(command + CASES[case], check=True, stdout=subprocess.DEVNULL)
        return json.load(open(out.name))[0]


def main():
    right = None
    print(f"{len(ORDERS)} orders, from {ORDERS[0]} on; 16 sessions an engine unless said; means, and ratios to those of a right assumption")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for case in CASES:
            rows = list(pool.map(lambda order: run(case, order), ORDERS))
            mean = {key: sum(row[key] for row in rows) / len(rows) for key in ("ttft_mean", "late_ttft_mean", "done", "hit")}
            right = right or mean
            print(f"{case}: first token after {mean['ttft_mean']:.3f} s, in the second half {mean['late_ttft_mean']:.3f} s, "
                  f"done {mean['done']:.0f}, hit {mean['hit']:.4f}", end="")
            if "assumed" in case:
                whole, late = (mean[key] / right[key] - 1 for key in ("ttft_mean", "late_ttft_mean"))
                print(f"; {whole:+.1%}, in the second half {late:+.1%}", end="")
            print(flush=True)


main()
