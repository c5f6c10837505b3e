"""The measuring programs that come with the engine scripts, run against a port and read."""

import re
import subprocess
import sys
from dataclasses import dataclass

from .engine import SCRIPTS


@dataclass
class Streams:
    """One run of streamload.py."""

    sent: int
    failed: int
    seconds: float
    says: str


@dataclass
class Cached:
    """One run of cachetest.py. Shares are of the prompt tokens, by backend port."""

    prompt: int
    cached: int
    median_ms: int
    shares: dict


def run(program, *arguments):
    command = [sys.executable, f"{SCRIPTS}/{program}", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout, f"{program}: {done.stdout}{done.stderr}"


def found(pattern, text, everything):
    match = re.search(pattern, text)
    if match is None:
        raise RuntimeError(everything)
    return match.groups()


def streamload(port, model, streams, in_flight):
    """Streamed chats over reused connections. `says` holds what it printed, examples included."""
    out, everything = run("streamload.py", port, model, streams, in_flight)
    sent, seconds, failed = found(r"(\d+) streams, .*?, ([\d.]+) s.*?; failed (\d+)", out, everything)
    return Streams(int(sent), int(failed), float(seconds), out.strip())


def cachetest(port, model, conversations, backends):
    """Conversations that take turns, one request at a time."""
    ports = [backend.port for backend in backends]
    out, everything = run("cachetest.py", port, model, conversations, "--backends", *ports)
    counts = found(r"(\d+) prompt tokens, cached (\d+) .*?median (\d+) ms", out, everything)
    shares = {int(p): int(share) / 100 for p, share in re.findall(r"backend (\d+): (\d+) %", out)}
    if set(shares) != set(ports):
        raise RuntimeError(everything)
    return Cached(*map(int, counts), shares)
