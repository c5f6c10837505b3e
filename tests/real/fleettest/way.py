"""Step: a long prompt gives way to a conversation that comes home. The engine must have most of what it had
computed of it, or giving way costs more than it brings; the conversation must not wait for the rest of it.

The same is done with `give_way_max = 0`, where the conversation waits for all of the long prompt."""

import http.client
import json
import threading
import time
from dataclasses import dataclass

from . import report, text, wire
from .engine import engines
from .proxy import shearwater

MODEL = "small"
# Steps of 512 tokens; a prompt of some 3,700 takes many seconds on a core.
STARTS = {
    "vllm": ("--max-model-len", 8192, "--max-num-batched-tokens", 512),
    "sglang": ("--context-length", 8192, "--chunked-prefill-size", 512, "--max-total-tokens", 32768),
}
LONG_WORDS = 2500
HISTORY_WORDS = 400
REPLY_TOKENS = 4
TIMEOUT_S = 300
START_S = 20
WARM_S = 120
# The share of the long prompt that is computed before the conversation comes.
HEAD_START = 0.15
KEPT_MIN = 0.5


@dataclass
class Streamed:
    first_s: float
    prompt: int
    cached: int
    answer: str


class Asking(threading.Thread):
    """One streamed chat; its reply is read on a thread of its own."""

    def __init__(self, port, messages):
        super().__init__(daemon=True)
        body = {"model": MODEL, "stream": True, "max_tokens": REPLY_TOKENS, "messages": messages}
        body["stream_options"] = {"include_usage": True}
        self.began = time.monotonic()
        self.connection = http.client.HTTPConnection(wire.HOST, port, timeout=TIMEOUT_S)
        self.connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
        self.result = self.error = None
        self.start()

    def run(self):
        try:
            self.result = self.read()
        except Exception as error:  # It is the step that judges.
            self.error = repr(error)
        self.connection.close()

    def read(self):
        reply = self.connection.getresponse()
        if reply.status != 200:
            raise RuntimeError(f"{reply.status} {reply.read()[:200]}")
        first, usage, answer, ended = None, None, "", False
        for line in reply:
            if not line.startswith(b"data: "):
                continue
            if line.strip() == b"data: [DONE]":
                ended = True
                continue
            event = json.loads(line[6:])
            usage = event.get("usage") or usage
            for choice in event["choices"]:
                said = choice["delta"].get("content")
                if said and first is None:
                    first = time.monotonic() - self.began
                answer += said or ""
        if not ended or usage is None:
            raise RuntimeError("the stream did not end properly")
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        return Streamed(first or time.monotonic() - self.began, usage["prompt_tokens"], cached, answer)

    def reply(self):
        self.join(TIMEOUT_S)
        if self.result is None:
            raise RuntimeError(self.error or "no reply in time")
        return self.result


def user(said):
    return {"role": "user", "content": said}


def long_prompt(seed):
    return [user(text.words(seed, LONG_WORDS))]


def warm(backend):
    """SGLang answers before it has warmed up, and says that it is not ready until then."""
    return backend.kind != "sglang" or wire.request(backend.port, "GET", "/ready").status == 200


def play(kind, give_way_max):
    """(the long prompt alone, it while the conversation comes, the conversation, times it gave way)"""
    settings = f"give_way_max = {give_way_max}\n"
    with engines((kind, MODEL, *STARTS[kind])) as backends:
        if wire.wait_until(lambda: all(map(warm, backends)), WARM_S, step_s=0.5) is None:
            raise RuntimeError("the engine does not get ready")
        return hold(kind, backends, settings)


def hold(kind, backends, settings):
    with shearwater(backends, more=settings) as proxy:
        alone = Asking(proxy.port, long_prompt(f"{kind} first")).reply()
        history = [user(text.words(f"{kind} history", HISTORY_WORDS))]
        history.append({"role": "assistant", "content": Asking(proxy.port, history).reply().answer})
        long = Asking(proxy.port, long_prompt(f"{kind} second"))
        if wire.wait_until(lambda: proxy.in_flight() == 1, START_S) is None:
            raise RuntimeError("the long prompt was not sent")
        time.sleep(HEAD_START * alone.first_s)
        home = Asking(proxy.port, [*history, user("and now?")])
        return alone, long.reply(), home.reply(), proxy.metric("shearwater_gave_way_total")


def judge(kind, out):
    report.heading(f"a conversation comes home to a {kind} that prefills a long prompt")
    rows = [["give_way_max", "long alone s", "long s", "of it cached", "conversation s", "gave way"]]
    runs = {}
    for most in (0, 4):
        alone, long, home, times = runs[most] = play(kind, most)
        cells = [f"{alone.first_s:.2f}", f"{long.first_s:.2f}", f"{long.cached} of {long.prompt}"]
        rows.append([most, *cells, f"{home.first_s:.2f}", times])
    report.table(rows)
    out.figure(f"way {kind}", [dict(zip(rows[0], cells)) for cells in rows[1:]])
    (_, _, waited, never), (alone, long, home, once) = runs[0], runs[4]
    out.bar(f"{kind}: nobody gives way where that is switched off", never == 0, f"{never} times")
    out.bar(f"{kind}: the long prompt gives way once", once == 1, f"{once} times")
    sooner = home.first_s < waited.first_s / 2
    out.bar(f"{kind}: the conversation waits less than half as long", sooner, f"{home.first_s:.2f} s, {waited.first_s:.2f} s")
    # The conversation's own prefill and a step belong to what it waited for.
    kept = long.cached >= KEPT_MIN * HEAD_START * long.prompt
    out.bar(f"{kind}: the engine has what it computed of the long one", kept, f"{long.cached} of {long.prompt} cached")


def run(out):
    for kind in STARTS:
        judge(kind, out)
