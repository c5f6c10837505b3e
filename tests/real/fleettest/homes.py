"""Step: sessions of coding agents, turn about. Each must stay where its first turn went."""

import collections
from dataclasses import dataclass, field

from . import agents, chats, report
from .engine import engines
from .proxy import shearwater

SLOTS = 4
CONTEXT = SLOTS * 8192
START = ("llamacpp", agents.MODEL, SLOTS, CONTEXT)
TURNS = 4


@dataclass
class Session:
    """`turns` holds one chats.Turn for each request that was answered."""

    agent: object
    turns: list = field(default_factory=list)

    def take_turn(self, port, number):
        self.agent.ask(number)
        backend, events = agents.send(port, self.agent)
        prompt, cached = self.agent.hear(number, events)
        self.turns.append(chats.Turn(prompt, cached, backend))

    def backends(self):
        return [turn.backend for turn in self.turns]

    def stayed(self):
        """The one backend is named, not the sign for a missing header."""
        return len(set(self.backends())) == 1 and "-" not in self.backends()

    def reused(self):
        return sum(chats.reused(turn, before) for turn, before in zip(self.turns[1:], self.turns))


def sessions():
    """Two projects each; an odd number, so that taking turns brings nobody home by chance."""
    claude = [Session(agents.ClaudeCode(number, f"project-{number % 2}")) for number in range(4)]
    codex = [Session(agents.Codex(number, f"project-{number % 2}")) for number in range(3)]
    return claude + codex


def play(port):
    played = sessions()
    for turn in range(TURNS):
        for session in played:
            session.take_turn(port, turn)
    return played


def through():
    with engines(START, START) as backends, shearwater(backends, "cost", CONTEXT) as proxy:
        return play(proxy.port)


def alone():
    """What one engine keeps for them: llama.cpp moves prompts between its slots and its memory, and
    now and then loses one on the way."""
    with engines(START) as backends:
        return play(backends[0].port)


def run(out):
    played, direct = through(), alone()
    report.heading(f"homes: {len(played)} sessions of {TURNS} turns, one request at a time, 2 engines of {SLOTS} slots")
    head = ["session", "backends", "prompt tokens", "cached", "found", "found, one engine alone"]
    rows = [[*row(session), same.reused()] for session, same in zip(played, direct)]
    report.table([head, *rows])
    out.figure("homes", [dict(zip(head, cells)) for cells in rows])
    for name in (agents.ClaudeCode.name, agents.Codex.name):
        judge(name, of(name, played), of(name, direct), out)
    used = collections.Counter(session.backends()[0] for session in played)
    out.bar("homes: both backends are home to someone", len(used) == 2, dict(used))


def of(name, played):
    return [session for session in played if session.agent.name == name]


def judge(name, mine, direct, out):
    strayed = [session.backends() for session in mine if not session.stayed()]
    stayed = strayed or f"{len(mine)} of {len(mine)}"
    out.bar(f"homes: every {name} session stays on one backend", not strayed, stayed)
    found, possible = (sum(session.reused() for session in some) for some in (mine, direct))
    out.bar(
        f"homes: {name} follow-ups find their prefix as often as on one engine alone",
        found >= possible > 0,
        f"{found} against {possible} of {len(mine) * (TURNS - 1)}",
    )


def row(session):
    turns = session.turns
    return [
        f"{session.agent.name} {session.agent.number} {session.agent.project}",
        " ".join(session.backends()),
        " ".join(str(turn.prompt) for turn in turns),
        " ".join(str(turn.cached) for turn in turns),
        session.reused(),
    ]
