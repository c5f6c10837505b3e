"""Agents' means over many orders of sessions, where one order says little: orders differ by a fifth.

    TRACES=folder python3 orders.py [ORDERS] >orders.txt     # 40 unless told; a quarter of an hour on two cores

Runs the arena's default policy: 16 and 24 sessions an engine, and 16 with a capacity assumed wrong, over four times as many
orders, because that is judged by a twentieth. Ratios are of the same orders, with their standard error. Needs the arena built:
`cargo build --release -p bench --bin shearwater-arena`; ARENA names another binary.
"""

import concurrent.futures
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ARENA = os.environ.get("ARENA", str(HERE.parents[1] / "target/release/shearwater-arena"))
TRACE = f"{os.environ['TRACES']}/cc_sessions.growth.jsonl.gz"
FIRST = 7
ORDERS = int(sys.argv[1] if len(sys.argv) > 1 else 40)
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


def ratio(rows, right, key):
    """How much more than the right ones these are, of the same orders, and the standard error of that."""
    mean = statistics.mean(row[key] for row in right)
    times = statistics.mean(row[key] for row in rows) / mean
    off = [(row[key] - times * other[key]) / mean for row, other in zip(rows, right)]
    return f"{times - 1:+.1%} +- {statistics.stdev(off) / len(off) ** 0.5:.1%}"


def main():
    right = None
    print(f"{ORDERS} orders, from {FIRST} on, and {4 * ORDERS} of assumed capacities; 16 sessions an engine unless said; means, and ratios to a right assumption")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for case in CASES:
            count = 4 * ORDERS if case == RIGHT or "assumed" in case else ORDERS
            rows = list(pool.map(lambda order: run(case, order), range(FIRST, FIRST + count)))
            right = right or rows
            mean = {key: statistics.mean(row[key] for row in rows) for key in ("ttft_mean", "late_ttft_mean", "done", "hit")}
            print(f"{case}: first token after {mean['ttft_mean']:.3f} s, in the second half {mean['late_ttft_mean']:.3f} s, "
                  f"done {mean['done']:.0f}, hit {mean['hit']:.4f}", end="")
            if "assumed" in case:
                print(f"; {ratio(rows, right, 'ttft_mean')}, in the second half {ratio(rows, right, 'late_ttft_mean')}", end="")
            print(flush=True)


main()
