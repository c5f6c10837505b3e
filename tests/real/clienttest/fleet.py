"""Simulated engines and the proxy before them: each a process of its own, so that killing one is killing one."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager

from fleettest import wire

PROXY = os.environ["SHEARWATER_BIN"]
LOADGEN = os.environ["SHEARWATER_LOADGEN"]
MODEL = "sim"
PERSONAS = ("vllm", "sglang", "llamacpp")
START_S = 20
END_S = 20
# Every reply is this long, so that a shorter one is known to be cut.
REPLY_TOKENS = 24
TOKEN_BYTES = 4
# Prefill and the whole reply take some 0.3 s: long enough to break something in.
SPEED = ("--decode-tps", "100", "--prefill-tps", "100000")


class Engine:
    """A simulated engine."""

    def __init__(self, persona, arguments=()):
        self.persona = persona
        length = ("--reply-min", REPLY_TOKENS, "--reply-max", REPLY_TOKENS)
        command = [LOADGEN, "engine", "--persona", self.persona, "--model", MODEL, *length, *SPEED]
        command += arguments
        self._process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, start_new_session=True)
        line = self._process.stdout.readline().decode()
        found = re.search(r"http://\S+:(\d+)", line)
        if not found:
            raise RuntimeError(f"the engine did not start: {line!r}")
        self.port = int(found.group(1))

    def kill(self):
        """As the kernel does it: connections are reset, nobody is told. Once is enough."""
        if self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process.stdout.close()

    def faults(self, **changes):
        answer = wire.request(self.port, "POST", "/sim/faults", changes)
        if answer.status != 200:
            raise RuntimeError(f"faults {changes}: {answer.body!r}")

    def state(self):
        return wire.get_json(self.port, "/sim/state")


class Proxy:
    """A running Shearwater."""

    def __init__(self, folder, engines, settings):
        self.log = f"{folder}/log"
        config = f"{folder}/shearwater.toml"
        with open(config, "w", encoding="utf-8") as file:
            file.write(text_of(engines, settings))
        with open(self.log, "w", encoding="utf-8") as output:
            self.process = subprocess.Popen(
                [PROXY, "--config", config], stdout=subprocess.DEVNULL, stderr=output, start_new_session=True
            )
        self.port, self.admin = self._addresses()
        self.url = f"http://{wire.HOST}:{self.port}"

    def said(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()

    def _addresses(self):
        pattern = re.compile(r"listening on \S+:(\d+), admin on \S+:(\d+)")
        if wire.wait_until(lambda: pattern.search(self.said()), START_S, step_s=0.02) is None:
            raise RuntimeError(f"shearwater did not start:\n{self.said()}")
        return map(int, pattern.search(self.said()).groups())

    def backends(self):
        return wire.get_json(self.admin, "/admin/backends")["backends"]

    def admitting(self):
        """How many backends may get a request."""
        return sum(backend["state"]["admits"] for backend in self.backends())

    def in_flight(self):
        return sum(backend["load"]["requests"] for backend in self.backends())

    def wait_for(self, admitting):
        if wire.wait_until(lambda: self.admitting() == admitting, START_S, step_s=0.02) is None:
            raise RuntimeError(f"{self.admitting()} backends admit, not {admitting}:\n{self.said()[-2000:]}")

    def stop(self):
        """Asks for a drain; returns at once."""
        self.process.terminate()

    def end(self):
        self.stop()
        try:
            return self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def text_of(engines, settings):
    """The configuration file: quick probes, so that a test need not wait, and what the scene asks for."""
    tables = {"health": ["interval_ms = 200", "timeout_ms = 1000"], "timeouts": ["drain_grace_ms = 0"]}
    for key, value in settings.items():
        table, name = key.split(".")
        tables.setdefault(table, []).append(f"{name} = {value}")
    lines = [f'listen = "{wire.HOST}:0"', f'admin = "{wire.HOST}:0"', "shards = 1"]
    for table, keys in tables.items():
        lines += [f"[{table}]", *dict((key.split(" ")[0], key) for key in keys).values()]
    for number, engine in enumerate(engines):
        lines += ["[[backend]]", f'name = "{engine.persona}-{number}"', f'url = "http://{wire.HOST}:{engine.port}"']
    return "\n".join(lines) + "\n"


@contextmanager
def fleet(personas, arguments=(), settings=None):
    """(engines, proxy), fresh and ready, ended on the way out."""
    folder = tempfile.mkdtemp(prefix="shearwater-clients-")
    engines, proxy = [], None
    try:
        for persona in personas:
            engines.append(Engine(persona, arguments))
        proxy = Proxy(folder, engines, settings or {})
        proxy.wait_for(len(engines))
        yield engines, proxy
    finally:
        if proxy:
            proxy.end()
        for engine in engines:
            engine.kill()
        shutil.rmtree(folder)


def all_faults(engines, **changes):
    for engine in engines:
        engine.faults(**changes)


def lift_after(seconds, engines, **changes):
    """Sleeps, then changes faults: for scenes in which something mends while clients wait."""
    time.sleep(seconds)
    all_faults(engines, **changes)
