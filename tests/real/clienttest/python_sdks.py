"""Calls through OpenAI's and Anthropic's Python libraries, as their users write them."""

import time

import anthropic
import openai

from .fleet import MODEL
from .outcome import Outcome

KEY = "no-secret"


def counted(module, outcome):
    """An HTTP client of this library that counts; otherwise as the library makes it."""

    def count(_request):
        outcome.requests += 1

    return module.DefaultHttpxClient(event_hooks={"request": [count]})


def call(api, stream, base, model, prompt):
    """One call. Nothing is set but address and key: retries and timeouts are the library's."""
    outcome = Outcome()
    began = time.perf_counter()
    try:
        RUN[api](stream, base, model or MODEL, prompt, outcome)
    except Exception as error:  # Whatever comes out of the library is what its user sees.
        note(error, outcome)
    outcome.seconds = time.perf_counter() - began
    return outcome


def note(error, outcome):
    outcome.error = type(error).__name__
    outcome.status = getattr(error, "status_code", None)
    outcome.message = str(getattr(error, "message", error))


def chat(stream, base, model, prompt, outcome):
    client = openai.OpenAI(base_url=f"{base}/v1", api_key=KEY, http_client=counted(openai, outcome))
    messages = [{"role": "user", "content": prompt}]
    reply = client.chat.completions.create(model=model, messages=messages, stream=stream)
    for chunk in reply if stream else [reply]:
        for choice in chunk.choices:
            said = choice.delta if stream else choice.message
            outcome.text += said.content or ""
            outcome.finished = choice.finish_reason is not None


def responses(stream, base, model, prompt, outcome):
    client = openai.OpenAI(base_url=f"{base}/v1", api_key=KEY, http_client=counted(openai, outcome))
    reply = client.responses.create(model=model, input=prompt, stream=stream)
    if not stream:
        outcome.text, outcome.finished = reply.output_text, reply.status == "completed"
        return
    for event in reply:
        if event.type == "response.output_text.delta":
            outcome.text += event.delta
        elif event.type == "response.completed":
            outcome.finished = event.response.status == "completed"
        elif event.type == "response.failed":
            outcome.error, outcome.message = event.type, event.response.error.message


def messages(stream, base, model, prompt, outcome):
    client = anthropic.Anthropic(base_url=base, api_key=KEY, http_client=counted(anthropic, outcome))
    asked = {"model": model, "max_tokens": 1000, "messages": [{"role": "user", "content": prompt}]}
    if not stream:
        reply = client.messages.create(**asked)
        outcome.text = "".join(block.text for block in reply.content)
        outcome.finished = reply.stop_reason is not None
        return
    with client.messages.stream(**asked) as events:
        for piece in events.text_stream:
            outcome.text += piece
        outcome.finished = events.get_final_message().stop_reason is not None


RUN = {"chat": chat, "responses": responses, "messages": messages}
