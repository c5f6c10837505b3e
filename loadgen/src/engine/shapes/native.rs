//! The engines' own APIs: llama.cpp's `/completion`, SGLang's `/generate`, and embeddings.

use serde_json::{Value, json};

use super::super::ask::Finish;
use super::super::info::sampling;
use super::super::persona::Persona;
use super::super::text::words::text_hash;
use super::events::Events;
use super::facts::{Done, Facts};
use super::{Stream, usage};

/// The part of SGLang's replies that says which weights produced them.
pub(super) fn sglang_weights(produced: u32) -> Value {
    json!({"weight_version": "default",
        "weight_versions": [{"version": "default", "start": 0, "end": produced}]})
}

pub(super) fn llama_whole(facts: &Facts, done: &Done, text: &str) -> Value {
    let stop_type = match facts.finish {
        Finish::Stop => "eos",
        Finish::Length => "limit",
    };
    json!({"index": 0, "content": text, "tokens": [], "id_slot": done.slot, "stop": true, "model": facts.model,
        "tokens_predicted": done.produced, "tokens_evaluated": facts.prompt_tokens,
        "generation_settings": sampling(i64::from(done.produced), facts.ask.stream), "prompt": "",
        "has_new_line": text.contains('\n'), "truncated": false, "stop_type": stop_type, "stopping_word": "",
        "tokens_cached": facts.prompt_tokens + done.produced, "timings": usage::timings(done)})
}

/// A streamed `/completion`.
pub(super) struct LlamaStream {
    facts: Facts,
}

impl LlamaStream {
    pub(super) fn new(facts: Facts) -> Self {
        Self { facts }
    }
}

impl Stream for LlamaStream {
    fn open(&mut self, _: &Done, _: &mut Events) {}

    fn token(&mut self, index: u32, text: &str, _: bool, events: &mut Events) {
        events.json(
            &json!({"index": 0, "content": text, "tokens": [index], "stop": false, "id_slot": -1,
            "tokens_predicted": index + 1, "tokens_evaluated": self.facts.prompt_tokens}),
        );
    }

    fn close(&mut self, done: &Done, events: &mut Events) {
        events.json(&llama_whole(&self.facts, done, ""));
    }
}

pub(super) fn generate_whole(facts: &Facts, done: &Done, text: &str) -> Value {
    generated(facts, done, text, Some(facts.finish))
}

fn generated(facts: &Facts, done: &Done, text: &str, finish: Option<Finish>) -> Value {
    let reason = finish.map(|finish| match finish {
        Finish::Stop => json!({"type": "stop", "matched": 2}),
        Finish::Length => json!({"type": "length", "length": done.produced}),
    });
    let ids: Vec<u32> = (0..done.produced).collect();
    json!({"text": text, "output_ids": ids, "meta_info": {"id": facts.chat_id(), "finish_reason": reason,
        "prompt_tokens": facts.prompt_tokens, "weight_version": "default",
        "completion_tokens": done.produced, "cached_tokens": done.cached,
        "e2e_latency": (done.prefill_us + done.decode_us) as f64 / 1e6}})
}

/// A streamed `/generate`: every event repeats the whole text so far.
pub(super) struct GenerateStream {
    facts: Facts,
    text: String,
    done: Done,
}

impl GenerateStream {
    pub(super) fn new(facts: Facts) -> Self {
        Self { facts, text: String::new(), done: Done::default() }
    }
}

impl Stream for GenerateStream {
    fn open(&mut self, done: &Done, _: &mut Events) {
        self.done = *done;
    }

    fn token(&mut self, index: u32, text: &str, last: bool, events: &mut Events) {
        self.text.push_str(text);
        self.done.produced = index + 1;
        let finish = last.then_some(self.facts.finish);
        events.json(&generated(&self.facts, &self.done, &self.text, finish));
    }

    fn close(&mut self, _: &Done, events: &mut Events) {
        events.done();
    }
}

/// Sixteen numbers that follow from the prompt's hash, which `text` spells.
pub(super) fn embedding(facts: &Facts, text: &str) -> Value {
    let hash = text_hash(text).unwrap_or_default();
    let vector: Vec<f64> =
        (0..16).map(|n| f64::from((hash >> (n * 4)) as u32 & 0xf) / 8.0 - 0.9375).collect();
    let usage = json!({"prompt_tokens": facts.prompt_tokens, "total_tokens": facts.prompt_tokens});
    match facts.persona {
        Persona::LlamaCpp => json!({"model": facts.model, "object": "list", "usage": usage,
            "data": [{"embedding": vector, "index": 0, "object": "embedding"}]}),
        _ => {
            json!({"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": vector}],
            "model": facts.model, "usage": usage})
        }
    }
}
