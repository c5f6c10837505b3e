"""Requests shaped like those of Claude Code and Codex: what changes from turn to turn although the
conversation only grows, and what looks the same although conversations differ."""

import http.client
import json
import uuid

from . import text, wire

MODEL = "mid"
REPLY_TOKENS = 24
# What sessions share is less than half of any prompt: llama.cpp takes the idle slot with the longest
# common prefix, and keeps what that slot held only if it would lose more than half of it.
INSTRUCTION_WORDS = 250
OPENING_WORDS = 500
STEP_WORDS = 90


class ClaudeCode:
    """One session: the billing line differs in every request, cache_control moves to the newest
    blocks, a text is a string once and a list of one part later, system notes come in between."""

    name = "claude-code"
    path = "/v1/messages?beta=true"

    def __init__(self, number, project):
        self.number, self.project, self.requests = number, project, 0
        self.session = str(uuid.uuid4())
        self.messages = []

    def headers(self):
        return {
            "user-agent": "claude-cli/2.1.283 (external, cli)",
            "x-app": "cli",
            "anthropic-version": "2023-06-01",
            "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14",
            "x-api-key": "none",
            "x-claude-code-session-id": self.session,
        }

    def system(self):
        billing = f"x-anthropic-billing-header: cc_version=2.1.283.abc; cc_entrypoint=cli; cch={self.requests:05x};"
        mark = {"cache_control": {"type": "ephemeral"}}
        long = f"Work in /home/dev/{self.project}. " + text.words(self.project, INSTRUCTION_WORDS)
        return [
            {"type": "text", "text": billing},
            {"type": "text", "text": "You are a coding agent.", **mark},
            {"type": "text", "text": long, **mark},
        ]

    def body(self):
        self.requests += 1
        user = {"device_id": "d", "account_uuid": "a", "session_id": self.session}
        return {
            "model": MODEL, "max_tokens": REPLY_TOKENS, "stream": True, "system": self.system(),
            "tools": [
                {"name": name, "description": f"{name} a file", "input_schema": {"type": "object", "properties": {}}}
                for name in ("Read", "Edit", "Grep")
            ],
            "messages": marked(self.messages), "thinking": {"type": "adaptive"},
            "context_management": {"edits": []}, "metadata": {"user_id": json.dumps(user)},
        }

    def ask(self, turn):
        """Adds what the client says next: a question first, then a tool's result and a note."""
        words = step(self, turn)
        if turn == 0:
            self.messages.append({"role": "user", "content": words})
            return
        block = {"type": "tool_result", "tool_use_id": f"t{turn}", "content": words}
        self.messages.append({"role": "user", "content": [block]})
        self.messages.append({"role": "system", "content": f"{9000 - turn} tokens left"})

    def hear(self, turn, events):
        """Adds the reply and the tool it is taken to call. Returns (prompt tokens, cached tokens)."""
        reply = "".join(e["delta"].get("text", "") for e in events if e["type"] == "content_block_delta")
        call = {"type": "tool_use", "id": f"t{turn + 1}", "name": "Read", "input": {"path": f"{turn}.rs"}}
        self.messages.append({"role": "assistant", "content": [{"type": "text", "text": reply or "."}, call]})
        usage = only(events, "message_start")["message"]["usage"]
        only(events, "message_stop")
        cached = usage["cache_read_input_tokens"]
        return usage["input_tokens"] + cached, cached


class Codex:
    """One session: a fixed text for all, its own identifiers in headers and body."""

    name = "codex"
    path = "/v1/responses"

    def __init__(self, number, project):
        self.number, self.project = number, project
        self.session = str(uuid.uuid4())
        self.input = []

    def headers(self):
        return {
            "originator": "codex_cli_rs",
            "authorization": "Bearer none",
            "session-id": self.session,
            "thread-id": self.session,
            "x-client-request-id": self.session,
            "x-codex-window-id": f"{self.session}:0",
        }

    def body(self):
        shell = {"type": "function", "name": "shell", "description": "run", "parameters": {"type": "object"}}
        return {
            "model": MODEL, "instructions": text.words("codex", INSTRUCTION_WORDS), "stream": True,
            "store": False, "tool_choice": "auto", "max_output_tokens": REPLY_TOKENS, "input": self.input,
            "tools": [shell], "parallel_tool_calls": True, "reasoning": {"effort": "medium", "summary": "auto"},
            "include": ["reasoning.encrypted_content"], "prompt_cache_key": self.session,
            "client_metadata": {"session_id": self.session, "thread_id": self.session},
        }

    def ask(self, turn):
        """Adds what the client says next: the surroundings first, then a command's output."""
        words = step(self, turn)
        if turn == 0:
            part = {"type": "input_text", "text": f"cwd /home/dev/{self.project} {words}"}
            self.input.append({"type": "message", "role": "user", "content": [part]})
        else:
            self.input.append({"type": "function_call_output", "call_id": f"c{turn}", "output": words})

    def hear(self, turn, events):
        """Adds the reply and the command it is taken to run. Returns (prompt tokens, cached tokens)."""
        reply = "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")
        part = {"type": "output_text", "text": reply or "."}
        self.input.append({"type": "message", "role": "assistant", "content": [part]})
        arguments = json.dumps({"command": ["cat", f"{turn}.rs"]})
        call = {"type": "function_call", "call_id": f"c{turn + 1}", "name": "shell", "arguments": arguments}
        self.input.append(call)
        usage = only(events, "response.completed")["response"]["usage"]
        return usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]


def step(agent, turn):
    return text.words(f"{agent.name} {agent.number} {turn}", STEP_WORDS if turn else OPENING_WORDS)


def marked(messages):
    """A copy in which the newest user message, and no older one, carries cache_control. To carry it a
    plain text becomes a list of one part."""
    copy = json.loads(json.dumps(messages))
    newest = [message for message in copy if message["role"] == "user"][-1]
    if isinstance(newest["content"], str):
        newest["content"] = [{"type": "text", "text": newest["content"]}]
    newest["content"][-1]["cache_control"] = {"type": "ephemeral"}
    return copy


def only(events, kind):
    found = [event for event in events if event["type"] == kind]
    if len(found) != 1:
        raise ValueError(f"{len(found)} events {kind} in {[event['type'] for event in events]}"[:300])
    return found[0]


def send(port, agent):
    """Returns (backend that answered, events of the reply)."""
    connection = http.client.HTTPConnection(wire.HOST, port, timeout=wire.TIMEOUT_S)
    headers = {"content-type": "application/json", **agent.headers()}
    try:
        connection.request("POST", agent.path, json.dumps(agent.body()), headers)
        reply = connection.getresponse()
        data = reply.read()
    finally:
        connection.close()
    if reply.status != 200:
        raise ValueError(f"HTTP {reply.status}: {data[:300]!r}")
    lines = [line[6:] for line in data.split(b"\n") if line.startswith(b"data: {")]
    return reply.headers.get("x-shearwater-backend", "-"), [json.loads(line) for line in lines]
