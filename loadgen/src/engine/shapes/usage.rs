//! Token counts as each engine reports them.

use serde_json::{Value, json};

use super::super::persona::Persona;
use super::facts::{Done, Facts};

/// `usage` of chat and text completions. vLLM prints less of it in streams.
pub(crate) fn openai(facts: &Facts, done: &Done, streamed: bool) -> Value {
    let (prompt, reply) = (facts.prompt_tokens, done.produced);
    let total = prompt + reply;
    match facts.persona {
        Persona::LlamaCpp => {
            json!({"completion_tokens": reply, "prompt_tokens": prompt, "total_tokens": total,
            "prompt_tokens_details": {"cached_tokens": done.cached}})
        }
        Persona::Vllm => {
            let mut usage =
                json!({"prompt_tokens": prompt, "total_tokens": total, "completion_tokens": reply});
            if facts.report_cached {
                usage["prompt_tokens_details"] = vllm_details(facts, done, streamed);
            } else if !streamed {
                usage["prompt_tokens_details"] = Value::Null;
            }
            if !streamed {
                usage["completion_tokens_details"] = Value::Null;
            }
            usage
        }
        Persona::Sglang => {
            let details = facts.report_cached.then(|| json!({"cached_tokens": done.cached}));
            json!({"prompt_tokens": prompt, "total_tokens": total, "completion_tokens": reply,
                "prompt_tokens_details": details, "reasoning_tokens": 0, "completion_tokens_details": null})
        }
        Persona::OpenAi => {
            json!({"prompt_tokens": prompt, "completion_tokens": reply, "total_tokens": total,
            "prompt_tokens_details": {"cached_tokens": done.cached, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0,
                "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}})
        }
    }
}

fn vllm_details(facts: &Facts, done: &Done, streamed: bool) -> Value {
    let created = facts.block_tokens.saturating_sub(done.cached);
    let mut details = json!({"cached_tokens": done.cached, "created_cache_tokens": created});
    if !streamed {
        details["multimodal_tokens"] = Value::Null;
    }
    details
}

/// vLLM's running usage, in every chunk when asked for.
pub(crate) fn vllm_running(facts: &Facts, produced: u32) -> Value {
    json!({"prompt_tokens": facts.prompt_tokens, "total_tokens": facts.prompt_tokens + produced,
        "completion_tokens": produced, "completion_tokens_details": null})
}

/// `usage` of the Responses API.
pub(crate) fn responses(facts: &Facts, done: &Done) -> Value {
    let (prompt, reply) = (facts.prompt_tokens, done.produced);
    let cached = if told(facts) { done.cached } else { 0 };
    match facts.persona {
        Persona::LlamaCpp => {
            json!({"input_tokens": prompt, "output_tokens": reply, "total_tokens": prompt + reply,
            "input_tokens_details": {"cached_tokens": cached}})
        }
        _ => json!({"input_tokens": prompt, "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": reply, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": prompt + reply}),
    }
}

/// `usage` of a whole `/v1/messages` reply: by Anthropic's definition the prompt is the sum of `input_tokens` and both
/// cache members, and all three engines keep to it.
pub(crate) fn messages(facts: &Facts, done: &Done) -> Value {
    let (prompt, reply) = (facts.prompt_tokens, done.produced);
    let cached = if told(facts) { done.cached } else { 0 };
    match facts.persona {
        Persona::LlamaCpp => {
            json!({"cache_read_input_tokens": cached, "input_tokens": prompt - cached,
            "output_tokens": reply})
        }
        Persona::Vllm if !facts.report_cached => {
            json!({"input_tokens": prompt, "output_tokens": reply})
        }
        Persona::Vllm => {
            let created = facts.block_tokens.saturating_sub(done.cached);
            json!({"input_tokens": prompt.saturating_sub(cached + created), "output_tokens": reply,
            "cache_creation_input_tokens": created, "cache_read_input_tokens": cached})
        }
        Persona::Sglang | Persona::OpenAi => json!({"input_tokens": prompt - cached,
            "output_tokens": reply, "cache_read_input_tokens": cached}),
    }
}

fn told(facts: &Facts) -> bool {
    facts.report_cached || matches!(facts.persona, Persona::LlamaCpp | Persona::OpenAi)
}

/// llama.cpp's `timings`.
pub(crate) fn timings(done: &Done) -> Value {
    let prompt_ms = done.prefill_us as f64 / 1e3;
    let predicted_ms = done.decode_us as f64 / 1e3;
    let per_second = |count: u32, ms: f64| if ms > 0.0 { f64::from(count) * 1e3 / ms } else { 0.0 };
    let per_token = |count: u32, ms: f64| if count > 0 { ms / f64::from(count) } else { 0.0 };
    json!({"cache_n": done.cached, "prompt_n": done.computed, "prompt_ms": prompt_ms,
        "prompt_per_token_ms": per_token(done.computed, prompt_ms),
        "prompt_per_second": per_second(done.computed, prompt_ms),
        "predicted_n": done.produced, "predicted_ms": predicted_ms,
        "predicted_per_token_ms": per_token(done.produced, predicted_ms),
        "predicted_per_second": per_second(done.produced, predicted_ms)})
}
