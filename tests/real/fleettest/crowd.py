"""More requests at once than engines have room for, and what their clients are told: the part that the
steps about full engines share."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import anthropic
import openai

from . import chats, report, text

ANSWERED, REFUSED, BROKEN, LOST = "answered", "refused", "error in a 200", "lost"
OUTCOMES = (ANSWERED, REFUSED, BROKEN, LOST)


class Counted:
    """Clients of several ports, asked in turn, and how each request ended. An answer has content; a
    refusal came as a status; an error in a 200 is one that looked like success at first; what is lost
    ended in silence."""

    def __init__(self, clients):
        self.clients, self.outcomes = clients, []
        self.name = clients[0].name

    def ask(self, system, messages, stream):
        client = self.clients[len(self.outcomes) % len(self.clients)]
        try:
            reply, figures = client.ask(system, messages, stream)
            if not reply:
                raise ValueError("a reply without content")
        except (openai.OpenAIError, anthropic.AnthropicError, ValueError) as error:
            self.outcomes.append(judged(error))
            raise
        self.outcomes.append(ANSWERED)
        return reply, figures


def clients(ports, model, count, reply_tokens):
    """Of both libraries in turn; each asks the ports one after another, every one beginning elsewhere."""
    made = []
    for number in range(count):
        kind = (chats.OpenAIChat, chats.AnthropicMessages)[number % 2]
        turned = [ports[(number // 2 + i) % len(ports)] for i in range(len(ports))]
        made.append(Counted([kind(port, model, reply_tokens) for port in turned]))
    return made


def judged(error):
    if isinstance(error, (openai.APIConnectionError, anthropic.APIConnectionError)):
        return LOST
    if isinstance(error, (openai.APIError, anthropic.APIError)):
        return REFUSED if getattr(error, "status_code", 200) >= 400 else BROKEN
    return LOST


@dataclass
class Crowd:
    """How all requests of one run ended."""

    where: str
    outcomes: list
    seconds: float
    busy: int = 0
    admitting: bool = True
    errors: list = field(default_factory=list)

    def count(self, outcome):
        return self.outcomes.count(outcome)

    def row(self):
        return [self.where, len(self.outcomes), *map(self.count, OUTCOMES), self.busy, f"{self.seconds:.1f}"]


HEAD = ["in front", "requests", *OUTCOMES, "busy answers held back", "s"]


def converse(where, clients, turns, words, streams):
    """Conversations at once, one for each of `clients`, that go on after an error."""
    held = [chats.Conversation(n, client, streams, words, goes_on=True) for n, client in enumerate(clients)]
    began = time.perf_counter()
    chats.hold_all(held, turns)
    outcomes = [outcome for client in clients for outcome in client.outcomes]
    errors = [error for conversation in held for error in conversation.errors]
    return Crowd(where, outcomes, time.perf_counter() - began, errors=errors)


def rush(where, clients, words, prose=text.words):
    """One streamed request of each of `clients`, all sent at the same moment."""
    start, errors = threading.Barrier(len(clients)), []

    def once(number, client):
        messages = [{"role": "user", "content": prose(f"rush {number}", words)}]
        start.wait()
        try:
            client.ask("Answer at length.", messages, True)
        except (openai.OpenAIError, anthropic.AnthropicError, ValueError) as error:
            errors.append(f"{client.name} {number}: {error!r}"[:300])

    began = time.perf_counter()
    with ThreadPoolExecutor(len(clients)) as threads:
        for asked in [threads.submit(once, n, client) for n, client in enumerate(clients)]:
            asked.result()
    outcomes = [outcome for client in clients for outcome in client.outcomes]
    return Crowd(where, outcomes, time.perf_counter() - began, errors=errors)


def through(proxy, play):
    """Plays it through the proxy, and asks it what the engines said and what it thinks of them now."""
    crowd = play("shearwater", [proxy.port])
    crowd.busy = proxy.metric("shearwater_busy_answers_total")
    crowd.admitting = all(backend["state"]["admits"] for backend in proxy.backends())
    return crowd


def judge(name, direct, proxied, out):
    rows = [HEAD, direct.row(), proxied.row()]
    report.table(rows)
    for error in proxied.errors[:5]:
        print(f"  {error}")
    out.figure(name, [dict(zip(HEAD, cells)) for cells in rows[1:]])
    answered, sent = proxied.count(ANSWERED), len(proxied.outcomes)
    out.bar(f"{name}: everything is answered", answered == sent > 0, f"{answered} of {sent}")
    alone = direct.count(ANSWERED)
    out.bar(f"{name}: without a proxy it is not", alone < sent, f"{alone} of {sent}")
    out.bar(f"{name}: no engine is given up for being full", proxied.admitting, proxied.admitting)
