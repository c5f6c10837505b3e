"""Shearwater itself: one process in front of given engines, and its admin address."""

import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass

from . import engine, wire

BINARY = os.environ["SHEARWATER_BIN"]
READY_S = 20
# A drain waits for running replies; at the end of a test there are none.
END_S = 20


@dataclass
class Proxy:
    port: int
    admin: int
    process: subprocess.Popen
    log: str

    def in_flight(self):
        """Requests that hold a place on any backend."""
        return sum(backend["load"]["requests"] for backend in self.backends())

    def metric(self, name):
        return engine.metric(wire.request(self.admin, "GET", "/metrics").body.decode(), name)

    def backends(self):
        return wire.get_json(self.admin, "/admin/backends")["backends"]

    def ready(self):
        """Ready by its own word, and with all its backends: a late one would spoil the split."""
        if self.process.poll() is not None:
            raise RuntimeError(f"shearwater ended with {self.process.returncode}:\n{tail(self.log)}")
        try:
            ready = wire.request(self.admin, "GET", "/readyz").status == 200
            return ready and all(backend["state"]["admits"] for backend in self.backends())
        except OSError:
            return False


def settings(port, admin, policy, backends, kv_tokens, more):
    """The configuration file. llama.cpp does not tell how large its pool is, so `kv_tokens` does; `more` goes on with
    [routing], and may begin other tables."""
    lines = [
        f'listen = "{wire.HOST}:{port}"',
        f'admin = "{wire.HOST}:{admin}"',
        "[timeouts]\ndrain_grace_ms = 0",
        f'[routing]\npolicy = "{policy}"',
        more,
    ]
    for backend in backends:
        lines.append(f'[[backend]]\nurl = "http://{wire.HOST}:{backend.port}"\nname = "{backend.name}"')
        if kv_tokens:
            lines.append(f"kv_tokens = {kv_tokens}")
    return "\n".join(lines) + "\n"


def tail(path, lines=20):
    with open(path, encoding="utf-8", errors="replace") as file:
        return "".join(file.readlines()[-lines:])


def end(process):
    """Asks for a drain and returns the exit status; kills what does not drain in time."""
    process.terminate()
    try:
        return process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


@contextmanager
def shearwater(backends, policy="cost", kv_tokens=None, more=""):
    """Runs until the way out, where it has to drain. Its directory is kept only if a test broke."""
    directory = tempfile.mkdtemp(prefix="shearwater-real-")
    port, admin = engine.free_ports(2)
    file, log = f"{directory}/shearwater.toml", f"{directory}/log"
    with open(file, "w", encoding="utf-8") as text:
        text.write(settings(port, admin, policy, backends, kv_tokens, more))
    with open(log, "w", encoding="utf-8") as output:
        process = subprocess.Popen(
            [BINARY, "--config", file], stdout=output, stderr=output, start_new_session=True
        )
    proxy = Proxy(port, admin, process, log)
    try:
        if wire.wait_until(proxy.ready, READY_S, step_s=0.05) is None:
            raise RuntimeError(f"shearwater is not ready after {READY_S} s:\n{tail(log)}")
        yield proxy
    except Exception:
        print(f"  shearwater's configuration and log are in {directory}", flush=True)
        directory = None
        raise
    finally:
        status = end(process)
        if directory:
            shutil.rmtree(directory)
    if status != 0:
        raise RuntimeError(f"shearwater ended with {status} when asked to drain")
