//! llama.cpp's model list, properties, slots and metrics.

use serde_json::{Value, json};

use super::super::options::EngineOptions;
use super::super::state::Snapshot;
use super::prometheus::Page;

pub(super) fn llama_models(options: &EngineOptions, at: &Snapshot) -> Value {
    let model = &options.model;
    json!({"models": [{"name": model, "model": model, "modified_at": "", "size": "", "digest": "", "type": "model",
            "description": "", "tags": [""], "capabilities": ["completion"], "parameters": "",
            "details": {"parent_model": "", "format": "gguf", "family": "", "families": [""], "parameter_size": "",
                "quantization_level": ""}}],
        "object": "list",
        "data": [{"id": model, "aliases": [model], "tags": [], "object": "model",
            "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
            "created": at.started_ms / 1_000, "owned_by": "llamacpp",
            "meta": {"vocab_type": 2, "n_vocab": 65_536, "n_ctx": options.sequence_tokens_max(),
                "n_ctx_train": options.sequence_tokens_max(), "n_embd": 128, "n_params": 2_393_472, "size": 4_788_224,
                "ftype": "F16"}}]})
}

/// Sampling parameters, with llama.cpp's defaults.
pub(in super::super) fn sampling(n_predict: i64, stream: bool) -> Value {
    let mut settings = json!({"seed": 4_294_967_295_u32, "temperature": 0.8, "dynatemp_range": 0.0,
        "dynatemp_exponent": 1.0, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "top_n_sigma": -1.0,
        "xtc_probability": 0.0, "xtc_threshold": 0.1, "typical_p": 1.0, "repeat_last_n": 64, "repeat_penalty": 1.0,
        "presence_penalty": 0.0, "frequency_penalty": 0.0, "dry_multiplier": 0.0, "dry_base": 1.75,
        "dry_allowed_length": 2, "dry_penalty_last_n": 64, "mirostat": 0, "mirostat_tau": 5.0, "mirostat_eta": 0.1,
        "adaptive_target": -1.0, "adaptive_decay": 0.9});
    // In two parts: one macro call cannot hold as many members.
    let rest = json!({"max_tokens": n_predict, "n_predict": n_predict, "n_keep": 0, "n_discard": 0,
        "ignore_eos": false, "stream": stream, "n_probs": 0, "min_keep": 0, "chat_format": "Content-only",
        "reasoning_format": "none", "reasoning_in_content": false, "generation_prompt": "",
        "samplers": ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"],
        "speculative.types": "none", "timings_per_token": false, "post_sampling_probs": false,
        "backend_sampling": false, "lora": []});
    if let (Value::Object(settings), Value::Object(rest)) = (&mut settings, rest) {
        settings.extend(rest);
    }
    settings
}

pub(in super::super) fn llama_props(options: &EngineOptions) -> Value {
    json!({"default_generation_settings": {"params": sampling(-1, false), "n_ctx": options.sequence_tokens_max()},
        "total_slots": options.params.slots, "model_alias": options.model, "model_ftype": "F16",
        "model_path": format!("models/{}.gguf", options.model),
        "modalities": {"vision": false, "video": false, "audio": false},
        "endpoint_slots": true, "endpoint_props": false, "endpoint_metrics": true, "ui": false, "ui_settings": {},
        "chat_template": "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}\
            {% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
        "chat_template_caps": {"supports_object_arguments": true, "supports_parallel_tool_calls": true,
            "supports_preserve_reasoning": false, "supports_reasoning_effort": false,
            "supports_string_content": true, "supports_system_role": true, "supports_tool_calls": true,
            "supports_tools": true, "supports_typed_content": true},
        "bos_token": "<|endoftext|>", "eos_token": "<|im_end|>", "build_info": "b11434-simulated",
        "is_sleeping": false, "cors_proxy_enabled": false})
}

pub(in super::super) fn llama_slots(options: &EngineOptions, at: &Snapshot) -> Value {
    let n_ctx = options.sequence_tokens_max();
    let slots: Vec<Value> = at
        .slots
        .iter()
        .enumerate()
        .map(|(id, slot)| {
            let busy = slot.running.is_some();
            json!({"id": id, "n_ctx": n_ctx, "speculative": false, "is_processing": busy,
                "id_task": slot.running.map_or(-1, |id| id.0 as i64), "n_prompt_tokens": slot.prompt_tokens,
                "n_prompt_tokens_processed": if busy { slot.computed_tokens } else { 0 },
                "n_prompt_tokens_cache": if busy { slot.cached_tokens } else { 0 },
                "params": sampling(-1, false),
                "next_token": [{"has_next_token": busy, "has_new_line": false, "n_remain": -1,
                    "n_decoded": if busy { slot.produced } else { 0 }}]})
        })
        .collect();
    Value::Array(slots)
}

/// Counters and gauges in the order of the real page.
pub(in super::super) fn llama_metrics(at: &Snapshot) -> String {
    let mut page = Page::new(&[], false);
    push_counters(at, &mut page);
    push_gauges(at, &mut page);
    page.into_text()
}

fn push_counters(at: &Snapshot, page: &mut Page) {
    let counters = &at.counters;
    let mut push =
        |name: &str, help: &str, value: f64| page.counter(&format!("llamacpp:{name}"), help, value);
    let computed = counters.computed_tokens as f64;
    push(
        "prompt_tokens_total",
        "Number of prompt tokens processed, excluding cached tokens",
        computed,
    );
    let cached = counters.cached_tokens as f64;
    push("prompt_tokens_cached_total", "Number of prompt tokens reused from the cache", cached);
    push(
        "prompt_seconds_total",
        "Total time spent processing prompts",
        counters.prefill_us as f64 / 1e6,
    );
    let generated = counters.generated_tokens as f64;
    push("tokens_predicted_total", "Number of generation tokens processed", generated);
    push(
        "tokens_predicted_seconds_total",
        "Total time spent generating tokens",
        at.latencies.itl.sum,
    );
    push("n_decode_total", "Total number of llama_decode() calls", generated);
    let longest = f64::from(counters.longest_tokens);
    push("n_tokens_max", "Largest observed sequence length (prompt + generation)", longest);
    push("spec_decode_num_draft_tokens_total", "Speculative: Total draft tokens generated", 0.0);
    push("spec_decode_num_accepted_tokens_total", "Speculative: Total draft tokens accepted", 0.0);
    push("spec_decode_num_drafts_total", "Speculative: Total verification steps", 0.0);
}

fn push_gauges(at: &Snapshot, page: &mut Page) {
    let counters = &at.counters;
    let rate =
        |tokens: u64, seconds: f64| if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 };
    let prompt = rate(counters.computed_tokens, counters.prefill_us as f64 / 1e6);
    let predicted = rate(counters.generated_tokens, at.latencies.itl.sum);
    let running = at.load.running as f64;
    let mut push =
        |name: &str, help: &str, value: f64| page.gauge(&format!("llamacpp:{name}"), help, value);
    push("prompt_tokens_seconds", "Average prompt throughput in tokens/s", prompt);
    push("predicted_tokens_seconds", "Average generation throughput in tokens/s", predicted);
    push("requests_processing", "Number of requests processing", running);
    push("requests_deferred", "Number of requests deferred", at.load.waiting as f64);
    push(
        "n_busy_slots_per_decode",
        "Average number of busy slots per llama_decode() call",
        running,
    );
}
