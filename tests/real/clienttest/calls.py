"""The calls that are made in every scene: each library, each API, streamed and whole."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Callable

from . import node_sdks, python_sdks

APIS = ("chat", "responses", "messages")


@dataclass(frozen=True)
class Call:
    language: str
    api: str
    stream: bool
    run: Callable

    @property
    def name(self):
        vendor = "anthropic" if self.api == "messages" else "openai"
        return f"{vendor}-{self.language} {self.api} {'streamed' if self.stream else 'whole'}"

    def make(self, base, scene, model=None, prompt=None):
        """The outcome. Prompts differ between calls, so that no reply can be taken for another's."""
        return self.run(self.api, self.stream, base, model, prompt or f"{scene}: {self.name}, tell me a story")


def of(language, run):
    return [Call(language, api, stream, run) for api in APIS for stream in (False, True)]


def all_calls(node):
    """Of both languages; `node` is None where Node.js cannot be had."""
    return of("python", python_sdks.call) + (of("typescript", node.call) if node else [])


def start_node():
    return node_sdks.Node() if node_sdks.there() else None


def at_once(calls, base, scene, meanwhile=None, **more):
    """Makes all calls at the same time, while `meanwhile()` runs; [(call, outcome)]."""
    with ThreadPoolExecutor(len(calls)) as threads:
        running = [(call, threads.submit(call.make, base, scene, **more)) for call in calls]
        if meanwhile:
            meanwhile()
        return [(call, future.result()) for call, future in running]
