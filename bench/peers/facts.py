"""The machine a result came from, and whether it was busy with other things."""

import os
import platform
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def first_line(command):
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    return done.stdout.strip().splitlines()[0] if done.stdout.strip() else "unknown"


def cpu_model():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def memory_gb():
    kb = int(Path("/proc/meminfo").read_text().split()[1])
    return round(kb / 2**20, 1)


def machine():
    """What does not change during a run."""
    return {
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": memory_gb(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "rustc": first_line(["rustc", "--version"]),
        "commit": first_line(["git", "rev-parse", "HEAD"]),
        "uncommitted_changes": first_line(["git", "status", "--porcelain"]) != "unknown",
    }


def load_average():
    """Runnable processes on average over the last minute."""
    return os.getloadavg()[0]


def cpu_times():
    """(all, stolen) ticks of the whole machine since it started."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    return sum(ticks[:8]), ticks[7]


def stolen_share(before, after):
    """Share of the machine's time the hypervisor gave to others between two readings."""
    passed = after[0] - before[0]
    return round((after[1] - before[1]) / passed, 4) if passed else 0.0
