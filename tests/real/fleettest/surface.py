"""Step: the small requests clients make besides their work."""

from . import report, wire
from .engine import engines
from .proxy import shearwater

MODEL = "mid"
SLOTS = 4
CONTEXT = 16384
ANTHROPIC = {"anthropic-version": "2023-06-01"}


def run(out):
    report.heading("surface: model lists, token counts, HEAD /")
    start = ("llamacpp", MODEL, SLOTS, CONTEXT)
    with engines(start, start) as backends, shearwater(backends, "cost", CONTEXT) as proxy:
        models_openai(proxy.port, out)
        models_anthropic(proxy.port, out)
        count_tokens(proxy.port, backends[0].port, out)
        head(proxy.port, out)


def models_openai(port, out):
    answer = wire.request(port, "GET", "/v1/models")
    right = answer.status == 200 and (listed := answer.json())["object"] == "list"
    right = right and [(m["id"], m["object"]) for m in listed["data"]] == [(MODEL, "model")]
    out.bar("surface: GET /v1/models in OpenAI's shape", right, shown(answer))


def models_anthropic(port, out):
    answer = wire.request(port, "GET", "/v1/models?limit=1000", headers=ANTHROPIC)
    right = answer.status == 200 and (listed := answer.json()).get("has_more") is False
    right = right and [(m["id"], m["type"]) for m in listed["data"]] == [(MODEL, "model")]
    right = right and listed["first_id"] == listed["last_id"] == MODEL
    out.bar("surface: GET /v1/models in Anthropic's shape", right, shown(answer))


def count_tokens(port, engine_port, out):
    """The engine's own answer is the right one."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "how long is this"}]}
    path = "/v1/messages/count_tokens?beta=true"
    answer = wire.request(port, "POST", path, body, ANTHROPIC)
    direct = wire.request(engine_port, "POST", path, body, ANTHROPIC)
    right = answer.status == direct.status == 200 and answer.json() == direct.json()
    out.bar("surface: count_tokens as the engine counts", right, f"{shown(answer)} against {shown(direct)}")


def head(port, out):
    """Any answer will do, 404 as well, but it has no body and is no failure of ours."""
    answer = wire.request(port, "HEAD", "/")
    out.bar("surface: HEAD / is answered", answer.status < 500 and not answer.body, shown(answer))


def shown(answer):
    return f"{answer.status} {answer.body[:120].decode(errors='replace')}".strip()
