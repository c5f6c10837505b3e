"""Step: conversations keep their slot. A llama.cpp server gives a request the slot that begins most alike, so
conversations under one system prompt push one another out of it; with `pin_llamacpp_slots` they do not. A witness before
the server asks it of every slot that is named whether it is free."""

import http.client
import json
import random
from concurrent.futures import ThreadPoolExecutor

import anthropic
import openai

from . import chats, report, text, wire
from .engine import engines
from .proxy import shearwater
from .tap import tap

MODEL = "mid"
SLOTS = 4
# As the documentation of the setting asks; without the cache in main memory, only slots hold prefixes.
START = ("llamacpp", MODEL, SLOTS, SLOTS * 4096, "cache_idle_slots=false", "cache_ram_mib=0")
PINNED = "pin_llamacpp_slots = true"

TURNS = 4
SYSTEM_WORDS = 500
OPENING_WORDS = 250
STEP_WORDS = 30

# More at once than there are slots, and some who leave.
CLIENTS = 10
REQUESTS = 12
CROWD_WORDS = 120


def in_turn(port):
    """As many conversations as slots, one request at a time. Returns their turns."""
    client = chats.OpenAIChat(port, MODEL)
    system = text.words("pinning", SYSTEM_WORDS)
    held = [[] for _ in range(SLOTS)]
    turns = [[] for _ in range(SLOTS)]
    for turn in range(TURNS):
        for number in range(SLOTS):
            says = text.words(f"pin {number} {turn}", STEP_WORDS if turn else OPENING_WORDS)
            held[number].append({"role": "user", "content": says})
            reply, figures = client.ask(system, held[number], turn % 2 == 1)
            held[number].append({"role": "assistant", "content": reply or "."})
            turns[number].append(figures)
    return turns


def row(name, turns):
    pairs = [pair for one in turns for pair in zip(one[1:], one)]
    found = sum(chats.reused(*pair) for pair in pairs)
    prompt, cached = (sum(getattr(turn, of) for turn, _ in pairs) for of in ("prompt", "cached"))
    return found, [name, f"{found} of {len(pairs)}", prompt, cached, report.percent(cached, prompt)]


def leave(port, number, after):
    """A stream that is left: at once, or after some of its events."""
    connection = http.client.HTTPConnection(wire.HOST, port, timeout=wire.TIMEOUT_S)
    messages = [{"role": "user", "content": text.words(f"leave {number}", CROWD_WORDS)}]
    body = {"model": MODEL, "messages": messages, "max_tokens": 100, "stream": True}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
    if after:
        reply = connection.getresponse()
        for _ in range(after):
            reply.readline()
    connection.close()


def client(port, number):
    """Chats whole and streamed, Messages, which name no slot, and streams that are left. Returns the errors."""
    chosen, errors = random.Random(number), []
    chat, messages = chats.OpenAIChat(port, MODEL), chats.AnthropicMessages(port, MODEL)
    for request in range(REQUESTS):
        seed = f"crowd {number} {request}"
        what = chosen.random()
        try:
            if what < 0.25:
                leave(port, seed, chosen.choice((0, 0, 4, 20)))
            else:
                asked = messages if what < 0.35 else chat
                says = [{"role": "user", "content": text.words(seed, CROWD_WORDS)}]
                asked.ask("Answer.", says, chosen.random() < 0.5)
        except (openai.OpenAIError, anthropic.AnthropicError, ValueError, OSError) as error:
            errors.append(f"{seed}: {error!r}"[:300])
    return errors


def crowd(port):
    with ThreadPoolExecutor(CLIENTS) as threads:
        return [error for errors in threads.map(client, [port] * CLIENTS, range(CLIENTS)) for error in errors]


def play(settings):
    """Returns (turns of the conversations, errors of the crowd, the witness)."""
    with engines(START) as (engine,), tap(engine) as witness, shearwater([witness], more=settings) as proxy:
        turns = in_turn(proxy.port)
        errors = crowd(proxy.port) if settings else []
        return turns, errors, witness


def run(out):
    report.heading(f"pinning: {SLOTS} conversations under one system prompt, one server of {SLOTS} slots, then a crowd")
    pinned, errors, witness = play(PINNED)
    free, _, _ = play("")
    (kept, with_pins), (lost, without) = row("pinned", pinned), row("not pinned", free)
    head = ["slots", "follow-ups that found their prefix", "prompt tokens", "cached", "share"]
    report.table([head, with_pins, without])
    out.figure("pinning", [dict(zip(head, cells)) for cells in (with_pins, without)])
    wanted = SLOTS * (TURNS - 1)
    out.bar("pinning: every follow-up finds its prefix in its slot", kept == wanted, f"{kept} of {wanted}")
    out.bar("pinning: without it fewer do", lost < kept, f"{lost} of {wanted}")
    told = f"{witness.busy} of {witness.named} named, slots {sorted(witness.slots)}"
    out.bar("pinning: no busy slot is named", witness.busy == 0 < witness.named, told)
    out.bar("pinning: all slots are used", len(witness.slots) == SLOTS, told)
    for error in errors[:5]:
        print(f"  {error}")
    out.bar("pinning: the crowd is answered", not errors, f"{len(errors)} errors of {CLIENTS * REQUESTS}")
