"""Step: conversations of both client libraries, more at once than the engines have slots, under
each policy. The engines' own counters say what was served from their caches."""

import time
from dataclasses import dataclass

from . import chats, report
from .engine import engines
from .proxy import shearwater

POLICIES = ("cost", "session", "round_robin")
# Policies that promise to bring a conversation home; round_robin is there for comparison.
HOMING = ("cost", "session")
CONVERSATIONS = 8
TURNS = 6
WORDS = 80
MODEL = "mid"
SLOTS = 3
CONTEXT = SLOTS * 4096
# With fewer slots than conversations llama.cpp loses a prompt now and then, whoever is in front.
FOUND_MIN = 0.85
HOME_MIN = 0.95


@dataclass
class Result:
    """One policy's run. `counted` holds what each engine counted meanwhile."""

    policy: str
    conversations: list
    counted: list
    seconds: float

    def errors(self):
        return [error for conversation in self.conversations for error in conversation.errors]

    def turns(self):
        return [turn for conversation in self.conversations for turn in conversation.turns]

    def follow_ups(self):
        return [pair for conversation in self.conversations for pair in conversation.follow_ups()]

    def counted_sums(self):
        return sum(t.prompt for t in self.counted), sum(t.cached for t in self.counted)

    def told_sums(self):
        return sum(t.prompt for t in self.turns()), sum(t.cached for t in self.turns())

    def reused(self):
        return sum(chats.reused(turn, before) for turn, before in self.follow_ups())

    def moved(self):
        return sum(turn.backend != before.backend for turn, before in self.follow_ups())

    def split(self):
        """Each backend's share of the prompt tokens."""
        prompt, _ = self.counted_sums()
        return [tokens.prompt / prompt if prompt else 0 for tokens in self.counted]


def conversations(port):
    """Both libraries in turn; each streams every other reply."""
    made = []
    for number in range(CONVERSATIONS):
        client = (chats.OpenAIChat, chats.AnthropicMessages)[number % 2](port, MODEL)
        streams = (every_even, every_odd)[number // 2 % 2]
        made.append(chats.Conversation(number, client, streams, WORDS))
    return made


def every_even(turn):
    return turn % 2 == 0


def every_odd(turn):
    return turn % 2 == 1


def play(policy):
    start = ("llamacpp", MODEL, SLOTS, CONTEXT)
    with engines(start, start) as backends, shearwater(backends, policy, CONTEXT) as proxy:
        before = [backend.tokens() for backend in backends]
        held = conversations(proxy.port)
        began = time.perf_counter()
        chats.hold_all(held, TURNS)
        seconds = time.perf_counter() - began
        counted = [backend.tokens() - earlier for backend, earlier in zip(backends, before)]
    return Result(policy, held, counted, seconds)


def row(result):
    prompt, cached = result.counted_sums()
    pairs = result.follow_ups()
    follow_prompt = sum(turn.prompt for turn, _ in pairs)
    follow_cached = sum(turn.cached for turn, _ in pairs)
    return [
        result.policy,
        f"{len(result.turns())}/{CONVERSATIONS * TURNS}",
        prompt,
        report.percent(cached, prompt),
        report.percent(follow_cached, follow_prompt),
        f"{result.reused()}/{len(pairs)}",
        result.moved(),
        " + ".join(f"{100 * share:.0f} %" for share in result.split()),
        f"{result.seconds:.1f} s",
    ]


HEAD = ["policy", "answered", "prompt tokens", "cached", "cached, follow-ups", "found", "moved", "split", "took"]


def judge(result, out):
    errors = result.errors()
    out.bar(f"{result.policy}: no errors", not errors, f"{len(errors)} errors {errors[:2] or ''}".strip())
    out.bar(
        f"{result.policy}: engines counted exactly what clients were told (prompt, cached)",
        result.counted_sums() == result.told_sums(),
        f"{result.counted_sums()} against {result.told_sums()}",
    )
    if result.policy in HOMING:
        count = len(result.follow_ups())
        home = count - result.moved()
        at_least(f"{result.policy}: follow-ups that went home", home, count, HOME_MIN, out)
        at_least(f"{result.policy}: follow-ups that found their prefix", result.reused(), count, FOUND_MIN, out)


def at_least(name, some, count, share, out):
    out.bar(f"{name} >= {100 * share:.0f} %", count and some >= share * count, f"{some} of {count}")


def run(out):
    report.heading(
        f"policies: {CONVERSATIONS} conversations of {TURNS} turns at once, 2 engines of {SLOTS} slots"
    )
    results = [play(policy) for policy in POLICIES]
    rows = [row(result) for result in results]
    report.table([HEAD, *rows])
    out.figure("policies", [dict(zip(HEAD, cells)) for cells in rows])
    for result in results:
        judge(result, out)
