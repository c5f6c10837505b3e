"""Real engines: started and ended by the engine scripts, read through their own metrics."""

import os
import socket
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass

from . import wire

SCRIPTS = os.environ["SHEARWATER_ENGINE_SCRIPTS"]

# Names of the counters, by kind: prompt tokens computed or received, and those found in the cache.
# llama.cpp's first counter leaves the cached ones out.
PROMPT_TOKENS = {
    "llamacpp": ("llamacpp:prompt_tokens_total", "llamacpp:prompt_tokens_cached_total"),
    "vllm": ("vllm:prompt_tokens_total",),
    "sglang": ("sglang:prompt_tokens_total",),
}
CACHED_TOKENS = {
    "llamacpp": "llamacpp:prompt_tokens_cached_total",
    "vllm": "vllm:prompt_tokens_cached_total",
    "sglang": "sglang:cached_tokens_total",
}


@dataclass
class Tokens:
    """Prompt tokens an engine counted, and how many of them came from its cache."""

    prompt: int
    cached: int

    def __sub__(self, other):
        return Tokens(self.prompt - other.prompt, self.cached - other.cached)


@dataclass
class Engine:
    kind: str
    port: int
    model: str

    @property
    def name(self):
        return f"{self.kind}-{self.port}"

    def tokens(self):
        text = wire.request(self.port, "GET", "/metrics").body.decode()
        prompt = sum(metric(text, name) for name in PROMPT_TOKENS[self.kind])
        return Tokens(prompt, metric(text, CACHED_TOKENS[self.kind]))

    def busy_slots(self):
        """llama.cpp only."""
        return sum(slot["is_processing"] for slot in wire.get_json(self.port, "/slots"))


def metric(text, name):
    """The sum over all label sets of one metric in Prometheus' text format."""
    total = 0.0
    for line in text.splitlines():
        if line.split("{")[0].split(" ")[0] == name:
            total += float(line.rsplit(" ", 1)[1])
    return int(total)


def free_ports(count):
    """Ports nobody listens on. They are held together while asking, so they differ."""
    held = [socket.create_server((wire.HOST, 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in held]
    for listener in held:
        listener.close()
    return ports


def run_script(script, *arguments):
    """In a session of its own: the terminal's Ctrl-C is for us, who then end things in order."""
    command = ["bash", f"{SCRIPTS}/{script}", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, start_new_session=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


@contextmanager
def engines(*starts):
    """Fresh engines, ended on the way out. A start is (kind, model, *arguments of engine-up.sh)."""
    ports = free_ports(len(starts))
    try:
        for port, (kind, model, *arguments) in zip(ports, starts):
            run_script("engine-up.sh", kind, port, model, *arguments)
        yield [Engine(kind, port, model) for port, (kind, model, *_) in zip(ports, starts)]
    finally:
        run_script("down.sh", *ports)
