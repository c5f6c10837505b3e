"""Clients in open loop that judge every reply: whole, an error one can act on, or lost.

Nothing is retried, so that what a proxy does is seen and not what a library makes good.
"""

import asyncio
import json
import random
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from storm import REPLY_TOKENS

# Silence after which a client gives up. Every proxy is told to give up sooner.
PATIENCE_S = 10
TOKEN_BYTES = 4
# The simulated engines' replies begin with the hash of their prompt, by which the ledger names it.
HASH_CHARACTERS = 16
WORDS = "river stone light paper window garden number method return import class value string list".split()


@dataclass
class Call:
    """One request and what came of it."""

    number: int
    status: int | None = None
    text: str = ""
    # Seconds from the intended time of sending to the first piece of text.
    first: float | None = None
    done: bool = False
    finished: bool = False
    error: str = ""
    ended: str = ""
    began: float = field(default=0.0, repr=False)

    def verdict(self):
        """(class, kind): `whole`, `error` in words a client can act on, or `lost` in silence."""
        if self.status and self.status != 200:
            return "error", f"status {self.status}"
        if self.error:
            return "error", "error event"
        complete = len(self.text.encode()) == REPLY_TOKENS * TOKEN_BYTES
        if self.ended == "end" and self.done and self.finished and complete:
            return "whole", "whole"
        if self.ended == "end":
            return "lost", "looks complete and is not"
        if self.ended == "silence":
            return "lost", "no byte for 10 s"
        return "lost", "cut without a word" if self.status else "closed before a reply"

    @property
    def prompt(self):
        return self.text[:HASH_CHARACTERS] if len(self.text) >= HASH_CHARACTERS else None

    def take(self, line):
        """A line of the stream."""
        if not line.startswith(b"data:"):
            return
        data = line[5:].strip()
        if data == b"[DONE]":
            self.done = True
            return
        try:
            event = json.loads(data)
        except ValueError:
            return
        if event.get("error"):
            self.error = str(event["error"])[:200]
        for choice in event.get("choices", []):
            piece = choice.get("delta", {}).get("content")
            if piece:
                self.first = self.first if self.first is not None else time.monotonic() - self.began
                self.text += piece
            self.finished |= choice.get("finish_reason") is not None


def body(seed, number):
    """A prompt of its own behind a system prompt that all share."""
    draw = random.Random(f"{seed} {number}")
    own = " ".join(draw.choice(WORDS) for _ in range(60))
    messages = [
        {"role": "system", "content": "You answer briefly. " * 20},
        {"role": "user", "content": f"{number}: {own}"},
    ]
    return json.dumps({"model": "sim", "stream": True, "messages": messages}).encode()


def request(host, payload):
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(payload)}\r\n\r\n".encode() + payload


async def pieces(reader):
    """The body's bytes by its own framing; raises if it ends before that says so."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    yield int(head.split(" ", 2)[1])
    if "transfer-encoding: chunked" in head:
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            yield (await reader.readexactly(size + 2))[:-2]
        await reader.readuntil(b"\r\n")
    elif "content-length:" in head:
        length = int(head.split("content-length:")[1].split("\r\n")[0])
        yield await reader.readexactly(length)
    else:
        while some := await reader.read(65536):
            yield some


async def read(reader, call):
    rest = b""
    parts = pieces(reader)
    while True:
        try:
            part = await asyncio.wait_for(anext(parts), PATIENCE_S)
        except StopAsyncIteration:
            return
        if isinstance(part, int):
            call.status = part
            continue
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            call.take(line)


async def make(call, url, payload):
    at = urlsplit(url)
    writer = None
    try:
        reader, writer = await asyncio.open_connection(at.hostname, at.port)
        writer.write(request(at.netloc, payload))
        await read(reader, call)
        call.ended = "end"
    except TimeoutError:
        call.ended = "silence"
    except (OSError, EOFError, ValueError, asyncio.LimitOverrunError):
        call.ended = "broken"
    finally:
        if writer:
            writer.close()


async def all_calls(url, rate, seconds, seed):
    """Requests at their times, whatever becomes of the earlier ones."""
    began, tasks, calls = time.monotonic(), [], []
    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
        call = Call(number, began=began + number / rate)
        calls.append(call)
        tasks.append(asyncio.create_task(make(call, url, body(seed, number))))
    await asyncio.gather(*tasks)
    return calls
