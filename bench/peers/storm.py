"""A fleet that breaks by a seeded schedule: the same engines, the same faults at the same times, for every proxy.

Each engine is a process, so that a kill is a kill; all write the prompts they take into one ledger, which survives it.
"""

import json
import random
import re
import signal
import subprocess
import time
import urllib.request
from dataclasses import dataclass

import processes

REPLY_TOKENS = 40
# A stream takes two seconds; a prompt a few hundredths of one.
SPEED = ["--decode-tps", "20", "--prefill-tps", "8000", "--slots", "16"]
LENGTH = ["--reply-min", str(REPLY_TOKENS), "--reply-max", str(REPLY_TOKENS)]

# What an engine is told, and for how many seconds. No change: the process is killed and started again.
KINDS = {
    "killed": ({}, 5.0),
    "restarted": ({}, 0.0),
    "full": ({"full": True}, 5.0),
    "hung": ({"wedge": True}, 15.0),
    "slow": ({"slow_factor": 10}, 6.0),
    "limited": ({"rate_limited": {"retry_after_s": 2}}, 5.0),
    "cut": ({"cut": {"after_events": 15, "how": "close"}}, 4.0),
    "reset": ({"cut": {"after_events": 15, "how": "reset"}}, 4.0),
}
TURNS = 2
# Closer together, too many engines would be ill at once; a short run leaves faults out instead.
APART_MIN_S = 3.0
FIRST_AT_S = 3.0
# So that proxies have time to notice the end of the last fault.
LAST_BEFORE_END_S = 8.0


@dataclass(frozen=True)
class Fault:
    at: float
    engine: int
    kind: str

    @property
    def until(self):
        return self.at + KINDS[self.kind][1]


def schedule(seed, engines, seconds):
    """Every kind as often, in random order, evenly spread, on engines that are well at that moment."""
    draw = random.Random(seed)
    kinds = list(KINDS) * TURNS
    draw.shuffle(kinds)
    span = seconds - LAST_BEFORE_END_S - FIRST_AT_S
    kinds = kinds[: int(span / APART_MIN_S)]
    every, faults = span / max(1, len(kinds)), []
    for number, kind in enumerate(kinds):
        at = FIRST_AT_S + number * every
        ill = {fault.engine for fault in faults if fault.until > at}
        well = [engine for engine in range(engines) if engine not in ill]
        faults.append(Fault(round(at, 2), draw.choice(well), kind))
    return faults


class Engine:
    """A simulated engine on a port it keeps."""

    def __init__(self, loadgen, core, folder, number):
        self._command = [loadgen, "engine", "--persona", "vllm", "--model", "sim", *SPEED, *LENGTH]
        self._command += ["--ledger", str(folder / "ledger")]
        self._core, self._log, self._port = core, folder / f"engine-{number}.log", 0
        self.start()

    def start(self):
        command = [*self._command, "--listen", f"127.0.0.1:{self._port}"]
        self._process = processes.start(self._core, command, self._log, stdout=subprocess.PIPE)
        line = self._process.stdout.readline().decode()
        found = re.search(r"http://\S+:(\d+)", line)
        if not found:
            raise RuntimeError(f"an engine did not start: {line!r}")
        self._port, self.url = int(found.group(1)), found.group(0)

    def kill(self):
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process.stdout.close()

    def patch(self, changes):
        body = json.dumps(changes).encode()
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/sim/faults", body), timeout=5).close()

    def begin(self, kind):
        if KINDS[kind][0]:
            self.patch(KINDS[kind][0])
        else:
            self.kill()

    def mend(self, kind):
        changes = KINDS[kind][0]
        if changes:
            self.patch(dict.fromkeys(changes))
        else:
            self.start()


class Storm:
    """The fleet, and what becomes of it."""

    def __init__(self, loadgen, core, folder, engines):
        self._ledger = folder / "ledger"
        self._ledger.unlink(missing_ok=True)
        self.engines = [Engine(loadgen, core, folder, number) for number in range(engines)]
        self.urls = [engine.url for engine in self.engines]

    def taken(self, skip=0):
        """The prompts that engines took, in order, without the first `skip`."""
        text = self._ledger.read_text() if self._ledger.exists() else ""
        return text.split()[skip:]

    def play(self, faults):
        """Breaks and mends at the times of the schedule, counted from now; returns when all is mended."""
        steps = [(fault.at, 1, fault) for fault in faults] + [(fault.until, 0, fault) for fault in faults]
        began = time.monotonic()
        # At one moment mending goes first, but never before the breaking it belongs to.
        for at, breaks, fault in sorted(steps, key=lambda step: (step[0], step[2].at, -step[1])):
            time.sleep(max(0.0, began + at - time.monotonic()))
            engine = self.engines[fault.engine]
            engine.begin(fault.kind) if breaks else engine.mend(fault.kind)

    def end(self):
        for engine in self.engines:
            engine.kill()
