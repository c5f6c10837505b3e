//! `/v1/completions`.

use serde_json::{Value, json};

use super::super::persona::Persona;
use super::events::{Events, Frame, TEXT};
use super::facts::{Done, Facts};
use super::{Stream, usage};

pub(super) fn whole(facts: &Facts, done: &Done, text: &str) -> Value {
    if facts.persona == Persona::LlamaCpp {
        return llama_end(facts, done, text);
    }
    let mut reply = document(facts, choices(facts, text, Some(facts.finish.openai()), false));
    reply["usage"] = usage::openai(facts, done, false);
    match facts.persona {
        Persona::Sglang => reply["metadata"] = super::native::sglang_weights(done.produced),
        Persona::Vllm => {
            reply["service_tier"] = Value::Null;
            reply["system_fingerprint"] = json!(facts.fingerprint());
            reply["kv_transfer_params"] = Value::Null;
        }
        Persona::OpenAi | Persona::LlamaCpp => {}
    }
    reply
}

/// llama.cpp's whole reply, which is also the last chunk of a stream: usage is told there, asked for or not.
fn llama_end(facts: &Facts, done: &Done, text: &str) -> Value {
    let choices = choices(facts, text, Some(facts.finish.openai()), false);
    json!({"choices": choices, "created": facts.created, "model": facts.model,
        "system_fingerprint": facts.fingerprint(), "object": "text_completion",
        "usage": usage::openai(facts, done, false), "id": facts.chat_id(), "timings": usage::timings(done)})
}

fn document(facts: &Facts, choices: Value) -> Value {
    let (created, model) = (facts.created, &facts.model);
    match facts.persona {
        Persona::LlamaCpp => json!({"choices": choices, "created": created, "model": model,
            "system_fingerprint": facts.fingerprint(), "object": "text_completion", "id": facts.chat_id()}),
        Persona::Sglang => {
            json!({"id": facts.chat_id(), "object": "text_completion", "created": created,
            "model": model, "choices": choices})
        }
        Persona::Vllm | Persona::OpenAi => {
            json!({"id": facts.prefixed_id("cmpl-"), "object": "text_completion",
            "created": created, "model": model, "choices": choices})
        }
    }
}

fn choices(facts: &Facts, text: &str, finish: Option<&str>, streamed: bool) -> Value {
    match facts.persona {
        Persona::LlamaCpp | Persona::OpenAi => {
            json!([{"text": text, "index": 0, "logprobs": null, "finish_reason": finish}])
        }
        Persona::Vllm => {
            let mut choice = json!({"index": 0, "text": text, "logprobs": null, "finish_reason": finish,
                "stop_reason": null, "prompt_token_ids": null, "token_ids": null});
            if !streamed {
                choice["prompt_logprobs"] = Value::Null;
            }
            json!([choice])
        }
        Persona::Sglang => {
            json!([{"index": 0, "text": text, "logprobs": null, "finish_reason": finish,
            "matched_stop": null}])
        }
    }
}

/// A streamed text completion.
pub(super) struct CompletionStream {
    facts: Facts,
    token: Frame,
}

impl CompletionStream {
    pub(super) fn new(facts: Facts) -> Self {
        let token = Frame::new(None, &document(&facts, choices(&facts, TEXT, None, true)));
        Self { facts, token }
    }
}

impl Stream for CompletionStream {
    fn open(&mut self, _: &Done, _: &mut Events) {}

    fn token(&mut self, _: u32, text: &str, last: bool, events: &mut Events) {
        if last && self.facts.persona == Persona::Vllm {
            let finish = Some(self.facts.finish.openai());
            events.json(&document(&self.facts, choices(&self.facts, text, finish, true)));
        } else {
            self.token.push(text, events);
        }
    }

    fn close(&mut self, done: &Done, events: &mut Events) {
        let facts = &self.facts;
        let ended = || document(facts, choices(facts, "", Some(facts.finish.openai()), true));
        if facts.persona == Persona::LlamaCpp {
            events.json(&llama_end(facts, done, ""));
            events.done();
            return;
        }
        if facts.persona != Persona::Vllm {
            events.json(&ended());
        }
        if facts.ask.include_usage {
            let mut chunk = document(facts, json!([]));
            chunk["usage"] = usage::openai(facts, done, true);
            events.json(&chunk);
        }
        events.done();
    }
}
