"""The simulated fleet every proxy stands before, and the exact count of what it produced."""

import json
import re
import signal
import subprocess
import time
import urllib.request

import processes


class Fleet:
    """Simulated engines in one process. Speeds, slots and memory never are what limits a load."""

    # Room for every stream of the largest load, and for its prompts, on each engine.
    ROOM = ["--slots", "8192", "--kv-tokens", "200000000", "--sequence-tokens", "4000000"]
    # Prompts are computed in no time: what is measured is the way there and back.
    INSTANT = ["--prefill-tps", "1e11", "--idle-close-ms", "60000"]

    def __init__(self, loadgen, core, engines, arguments, folder):
        command = [loadgen, "engine", "--persona", "vllm", "--model", "sim", "--stamp-events"]
        command += ["--count", str(engines), *self.ROOM, *self.INSTANT, *arguments]
        log = folder / "fleet.log"
        self.process = processes.start(core, command, log, stdout=subprocess.PIPE)
        self.urls = [self._address() for _ in range(engines)]

    def _address(self):
        line = self.process.stdout.readline().decode()
        found = re.search(r"http://\S+", line)
        if not found:
            raise RuntimeError(f"the fleet did not start: {line!r}")
        return found.group(0)

    def sums(self):
        """What all engines did and do: generated_tokens, running, waiting, and more."""
        self.process.send_signal(signal.SIGUSR1)
        return json.loads(self.process.stdout.readline())

    def patch_faults(self, changes):
        """Changes the faults of every engine that `changes` names."""
        for url in self.urls if changes else []:
            body = json.dumps(changes).encode()
            urllib.request.urlopen(urllib.request.Request(f"{url}/sim/faults", body), timeout=5).close()

    def idle_within(self, seconds):
        """Whether nothing is left running that soon: clients that left were heard of upstream."""
        deadline = time.monotonic() + seconds
        while True:
            now = self.sums()
            if now["running"] + now["waiting"] == 0:
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)

    def end(self):
        processes.end(self.process)
