"""Conversations held with the vendors' own client libraries, each growing with the real replies."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import anthropic
import openai

from . import text, wire

REPLY_TOKENS = 24
# A follow-up counts as served from the cache if this much of its predecessor's prompt was found.
REUSED_SHARE = 0.9


@dataclass
class Turn:
    """What the engine reported about one prompt, through the client library."""

    prompt: int
    cached: int
    backend: str


class OpenAIChat:
    name = "openai"

    def __init__(self, port, model, reply_tokens=REPLY_TOKENS):
        self.model, self.reply_tokens = model, reply_tokens
        self.client = openai.OpenAI(
            base_url=f"http://{wire.HOST}:{port}/v1", api_key="none", max_retries=0, timeout=wire.TIMEOUT_S
        )

    def ask(self, system, messages, stream):
        """Returns (reply text, Turn)."""
        everything = [{"role": "system", "content": system}, *messages]
        call = {"model": self.model, "messages": everything, "max_tokens": self.reply_tokens}
        completions = self.client.chat.completions.with_raw_response
        if stream:
            raw = completions.create(**call, stream=True, stream_options={"include_usage": True})
            reply, usage = self.collect(raw.parse())
        else:
            raw = completions.create(**call)
            reply, usage = raw.parse().choices[0].message.content, raw.parse().usage
        cached = usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else 0
        return reply, Turn(usage.prompt_tokens, cached or 0, backend_of(raw))

    def collect(self, chunks):
        reply, usage = "", None
        for chunk in chunks:
            usage = chunk.usage or usage
            reply += "".join(choice.delta.content or "" for choice in chunk.choices)
        if usage is None:
            raise ValueError("the stream ended without usage")
        return reply, usage


class AnthropicMessages:
    name = "anthropic"

    def __init__(self, port, model, reply_tokens=REPLY_TOKENS):
        self.model, self.reply_tokens = model, reply_tokens
        self.client = anthropic.Anthropic(
            base_url=f"http://{wire.HOST}:{port}", api_key="none", max_retries=0, timeout=wire.TIMEOUT_S
        )

    def ask(self, system, messages, stream):
        """Returns (reply text, Turn). Here the reported input tokens leave the cached ones out."""
        call = {"model": self.model, "system": system, "messages": messages, "max_tokens": self.reply_tokens}
        if stream:
            with self.client.messages.stream(**call) as events:
                message, raw = events.get_final_message(), events.response
        else:
            raw = self.client.messages.with_raw_response.create(**call)
            message = raw.parse()
        reply = "".join(block.text for block in message.content if block.type == "text")
        cached = message.usage.cache_read_input_tokens or 0
        return reply, Turn(message.usage.input_tokens + cached, cached, backend_of(raw))


def backend_of(raw):
    return raw.headers.get("x-shearwater-backend", "-")


@dataclass
class Conversation:
    """One chat with a client of its own. `streams(turn)` says which turns stream; a question has
    `words` words and the system text three times as many. It ends at its first error, or leaves that
    turn out and `goes_on`."""

    number: int
    client: object
    streams: object
    words: int
    goes_on: bool = False
    turns: list = field(default_factory=list)
    errors: list = field(default_factory=list)

    def hold(self, turns):
        system = f"You are assistant {self.number}. " + text.words(self.number, 3 * self.words)
        messages = []
        for turn in range(turns):
            question = text.words(1000 * self.number + turn, self.words)
            messages.append({"role": "user", "content": question})
            stream = self.streams(turn)
            try:
                reply, figures = self.client.ask(system, messages, stream)
            except (openai.OpenAIError, anthropic.AnthropicError, ValueError) as error:
                how = "stream" if stream else "whole"
                self.errors.append(f"{self.client.name} {how}, turn {turn}: {error!r}"[:300])
                if not self.goes_on:
                    return
                messages.pop()
                continue
            self.turns.append(figures)
            messages.append({"role": "assistant", "content": reply or "."})

    def follow_ups(self):
        """Pairs (a turn, the turn before it)."""
        return list(zip(self.turns[1:], self.turns))


def hold_all(conversations, turns):
    """All at once, a thread each. On Ctrl-C the threads are left to run into their engines' end."""
    threads = ThreadPoolExecutor(len(conversations))
    try:
        for held in [threads.submit(conversation.hold, turns) for conversation in conversations]:
            held.result()
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def reused(turn, before):
    return turn.cached >= REUSED_SHARE * before.prompt
