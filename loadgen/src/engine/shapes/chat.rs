//! `/v1/chat/completions`.

use serde_json::{Value, json};

use super::super::persona::Persona;
use super::events::{Events, Frame, TEXT};
use super::facts::{Done, Facts};
use super::{Stream, usage};

pub(super) fn whole(facts: &Facts, done: &Done, text: &str) -> Value {
    let finish = facts.finish.openai();
    let (id, created, model) = (facts.chat_id(), facts.created, &facts.model);
    let usage = usage::openai(facts, done, false);
    match facts.persona {
        Persona::LlamaCpp => json!({
            "choices": [{"finish_reason": finish, "index": 0, "message": {"role": "assistant", "content": text}}],
            "created": created, "model": model, "system_fingerprint": facts.fingerprint(),
            "object": "chat.completion", "usage": usage, "id": id, "timings": usage::timings(done)}),
        Persona::Vllm => {
            json!({"id": id, "object": "chat.completion", "created": created, "model": model,
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text, "refusal": null,
                    "annotations": null, "audio": null, "function_call": null, "reasoning": null},
                "logprobs": null, "finish_reason": finish, "stop_reason": null, "token_ids": null,
                "routed_experts": null}],
            "service_tier": null, "system_fingerprint": facts.fingerprint(), "usage": usage,
            "prompt_logprobs": null, "prompt_token_ids": null, "prompt_text": null,
            "kv_transfer_params": null, "ec_transfer_params": null, "metrics": null})
        }
        Persona::Sglang => {
            json!({"id": id, "object": "chat.completion", "created": created, "model": model,
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text, "reasoning_content": null},
                "logprobs": null, "finish_reason": finish, "matched_stop": null}],
            "usage": usage, "metadata": super::native::sglang_weights(done.produced)})
        }
        Persona::OpenAi => {
            json!({"id": id, "object": "chat.completion", "created": created, "model": model,
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text, "refusal": null,
                "annotations": []}, "logprobs": null, "finish_reason": finish}],
            "usage": usage, "service_tier": "default", "system_fingerprint": facts.fingerprint()})
        }
    }
}

/// A streamed chat completion.
pub(super) struct ChatStream {
    facts: Facts,
    token: Frame,
}

impl ChatStream {
    pub(super) fn new(facts: Facts) -> Self {
        let token = Frame::new(None, &chunk(&facts, token_choice(&facts, TEXT, None)));
        Self { facts, token }
    }

    /// vLLM puts its running usage into every chunk if asked to: then no two chunks share their end.
    fn counted(&self, mut chunk: Value, produced: u32) -> Value {
        if self.facts.persona == Persona::Vllm && self.facts.ask.continuous_usage {
            chunk["usage"] = usage::vllm_running(&self.facts, produced);
        }
        chunk
    }
}

impl Stream for ChatStream {
    fn open(&mut self, _: &Done, events: &mut Events) {
        let delta = match self.facts.persona {
            Persona::LlamaCpp => json!({"role": "assistant", "content": null}),
            Persona::Sglang => {
                json!({"reasoning_content": null, "role": "assistant", "content": ""})
            }
            Persona::Vllm => json!({"role": "assistant", "content": ""}),
            Persona::OpenAi => json!({"role": "assistant", "content": "", "refusal": null}),
        };
        let mut first = self.counted(chunk(&self.facts, choice(&self.facts, delta, None)), 0);
        if self.facts.persona == Persona::Vllm {
            first["prompt_token_ids"] = Value::Null;
            first["prompt_text"] = Value::Null;
        }
        events.json(&first);
    }

    fn token(&mut self, index: u32, text: &str, last: bool, events: &mut Events) {
        let ends_with_token = last && self.facts.persona == Persona::Vllm;
        if !ends_with_token && !self.facts.ask.continuous_usage {
            self.token.push(text, events);
            return;
        }
        let finish = ends_with_token.then(|| self.facts.finish.openai());
        let token = chunk(&self.facts, token_choice(&self.facts, text, finish));
        events.json(&self.counted(token, index + 1));
    }

    fn close(&mut self, done: &Done, events: &mut Events) {
        let facts = &self.facts;
        let delta = match facts.persona {
            Persona::Sglang => json!({"reasoning_content": null}),
            Persona::LlamaCpp | Persona::Vllm | Persona::OpenAi => json!({}),
        };
        if facts.persona != Persona::Vllm {
            let mut end = chunk(facts, choice(facts, delta, Some(facts.finish.openai())));
            if facts.persona == Persona::LlamaCpp && !facts.ask.include_usage {
                end["timings"] = usage::timings(done);
            }
            events.json(&end);
        }
        if facts.ask.include_usage {
            events.json(&usage_chunk(facts, done));
        }
        events.done();
    }
}

fn usage_chunk(facts: &Facts, done: &Done) -> Value {
    let mut chunk = chunk(facts, json!([]));
    chunk["usage"] = usage::openai(facts, done, true);
    match facts.persona {
        Persona::LlamaCpp => chunk["timings"] = usage::timings(done),
        Persona::Vllm => chunk["system_fingerprint"] = json!(facts.fingerprint()),
        Persona::Sglang | Persona::OpenAi => {}
    }
    chunk
}

fn chunk(facts: &Facts, choices: Value) -> Value {
    let (id, created, model) = (facts.chat_id(), facts.created, &facts.model);
    let object = "chat.completion.chunk";
    match facts.persona {
        Persona::LlamaCpp => {
            json!({"choices": choices, "created": created, "id": id, "model": model,
            "system_fingerprint": facts.fingerprint(), "object": object})
        }
        Persona::Vllm | Persona::Sglang => {
            json!({"id": id, "object": object, "created": created, "model": model,
            "choices": choices})
        }
        Persona::OpenAi => {
            let mut chunk = json!({"id": id, "object": object, "created": created, "model": model,
                "service_tier": "default", "system_fingerprint": facts.fingerprint(), "choices": choices});
            if facts.ask.include_usage {
                chunk["usage"] = Value::Null;
            }
            chunk
        }
    }
}

fn token_choice(facts: &Facts, text: &str, finish: Option<&str>) -> Value {
    let delta = match facts.persona {
        Persona::Sglang => json!({"reasoning_content": null, "content": text}),
        Persona::LlamaCpp | Persona::Vllm | Persona::OpenAi => json!({"content": text}),
    };
    let mut choices = choice(facts, delta, finish);
    if facts.persona == Persona::Vllm {
        if finish.is_some() {
            choices[0]["stop_reason"] = Value::Null;
        }
        choices[0]["token_ids"] = Value::Null;
    }
    choices
}

fn choice(facts: &Facts, delta: Value, finish: Option<&str>) -> Value {
    match facts.persona {
        Persona::LlamaCpp => json!([{"finish_reason": finish, "index": 0, "delta": delta}]),
        Persona::Vllm | Persona::OpenAi => {
            json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}])
        }
        Persona::Sglang => {
            json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish,
            "matched_stop": null}])
        }
    }
}
