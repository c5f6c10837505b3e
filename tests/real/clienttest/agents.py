"""Claude Code and Codex, each asked one question without a terminal, with a home of their own."""

import json
import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from typing import Callable

from . import node_sdks
from .fleet import MODEL
from .outcome import Outcome

PATIENCE_S = 100
MODULES = node_sdks.FOLDER / "node_modules"
# Both trim white space from the ends of an answer: up to a token's length.
TRIMMED_BYTES = 4


@dataclass(frozen=True)
class Agent:
    """Called like a library's call; how many requests it sends is its own affair."""

    name: str
    api: str
    command: Callable
    answer: Callable
    language: str = "agent"
    stream: bool = True

    def make(self, base, scene, model=None, prompt=None):
        outcome = Outcome(requests=None, slack=TRIMMED_BYTES)
        began = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="shearwater-agent-", ignore_cleanup_errors=True) as home:
            command, more = self.command(base, model or MODEL, prompt or f"{scene}: tell me a story")
            done = subprocess.run(
                list(map(str, command)),
                env=environment(home, more),
                cwd=home,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
            )
        outcome.seconds = time.perf_counter() - began
        try:
            self.answer(done.stdout, outcome)
        except (ValueError, KeyError, IndexError):
            outcome.error, outcome.message = "unreadable", done.stdout[-300:]
        if done.returncode != 0 and not outcome.error:
            outcome.error, outcome.message = f"exit {done.returncode}", (done.stderr or done.stdout)[-300:]
        return outcome


def environment(home, more):
    """Nothing of ours but what finds programs and keeps loopback off any proxy of the system."""
    ours = {"PATH": os.environ["PATH"], "HOME": home, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    return {**ours, **more}


def claude_program():
    """The package's own launcher needs a script run at installation; the program beside it does not."""
    return next((MODULES / "@anthropic-ai").glob("claude-code-*/claude"), None)


def claude(base, model, prompt):
    quiet = (
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        "DISABLE_AUTOUPDATER",
        "DISABLE_TELEMETRY",
        "DISABLE_ERROR_REPORTING",
    )
    models = ("ANTHROPIC_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL")
    more = {"ANTHROPIC_BASE_URL": base, "ANTHROPIC_API_KEY": "no-secret"}
    more |= dict.fromkeys(quiet, "1") | dict.fromkeys(models, model)
    return [claude_program(), "-p", prompt, "--output-format", "json"], more


def claude_answer(said, outcome):
    last = json.loads(said.strip().splitlines()[-1])
    if last["is_error"]:
        outcome.error, outcome.message = last["subtype"], last.get("result", "")
        outcome.status = last.get("api_error_status")
    else:
        outcome.text, outcome.finished = last["result"], last["stop_reason"] == "end_turn"


def codex_program():
    program = MODULES / ".bin" / "codex"
    return program if program.exists() else None


def codex(base, model, prompt):
    provider = f'{{name="here",base_url="{base}/v1",wire_api="responses",env_key="HERE_KEY"}}'
    settings = ["-c", "model_provider=here", "-c", f"model_providers.here={provider}"]
    command = [codex_program(), "exec", "--skip-git-repo-check", "--json", "-m", model, *settings, prompt]
    return command, {"HERE_KEY": "no-secret"}


def codex_answer(said, outcome):
    for event in map(json.loads, said.strip().splitlines()):
        item = event.get("item", {})
        if item.get("type") == "agent_message":
            outcome.text = item["text"]
        outcome.finished |= event["type"] == "turn.completed"
        if event["type"] == "turn.failed":
            outcome.error, outcome.message = event["type"], event["error"]["message"]


def those_that_run():
    """Agents whose program is here and starts; the others are named, loudly."""
    found = []
    wanted = [
        ("Claude Code", "messages", claude_program(), claude, claude_answer),
        ("Codex", "responses", codex_program(), codex, codex_answer),
    ]
    for name, api, program, command, answer in wanted:
        version = program and version_of(program)
        if version:
            print(f"{name}: {version}", flush=True)
            found.append(Agent(name, api, command, answer))
        else:
            print(f"SKIP: {name} is not installed or does not start; IT IS NOT TESTED", flush=True)
    return found


def version_of(program):
    with tempfile.TemporaryDirectory(prefix="shearwater-agent-", ignore_cleanup_errors=True) as home:
        try:
            done = subprocess.run(
                [str(program), "--version"], env=environment(home, {}), capture_output=True, text=True, timeout=30
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
    return done.stdout.strip() if done.returncode == 0 else None
