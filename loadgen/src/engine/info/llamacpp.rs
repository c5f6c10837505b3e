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

fn sampling(n_predict: i64) -> Value {
    json!({"seed": 4_294_967_295_u32, "temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05,
        "max_tokens": n_predict, "n_predict": n_predict, "n_keep": 0, "n_discard": 0, "ignore_eos": false,
        "stream": false, "n_probs": 0, "min_keep": 0, "chat_format": "Content-only", "reasoning_format": "none",
        "reasoning_in_content": false, "generation_prompt": "", "samplers": ["top_k", "top_p", "min_p", "temperature"],
        "speculative.types": "none", "timings_per_token": false, "post_sampling_probs": false,
        "backend_sampling": false, "lora": []})
}

pub(in super::super) fn llama_props(options: &EngineOptions) -> Value {
    json!({"default_generation_settings": {"params": sampling(-1), "n_ctx": options.sequence_tokens_max()},
        "total_slots": options.params.slots, "model_alias": options.model, "model_ftype": "F16",
        "model_path": format!("models/{}.gguf", options.model),
        "modalities": {"vision": false, "video": false, "audio": false},
        "endpoint_slots": true, "endpoint_props": false, "endpoint_metrics": true, "ui": false, "ui_settings": {},
        "chat_template": "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}\
            {% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
        "chat_template_caps": {"supports_object_arguments": true, "supports_parallel_tool_calls": true,
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
                "params": sampling(-1),
                "next_token": [{"has_next_token": busy, "has_new_line": false, "n_remain": -1,
                    "n_decoded": if busy { slot.produced } else { 0 }}]})
        })
        .collect();
    Value::Array(slots)
}

pub(in super::super) fn llama_metrics(at: &Snapshot) -> String {
    let mut page = Page::new(&[], false);
    let counters = &at.counters;
    let prefill_s = counters.prefill_us as f64 / 1e6;
    let predicted_s = at.latencies.itl.sum;
    let rate =
        |tokens: u64, seconds: f64| if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 };
    for (name, help, value) in [
        (
            "prompt_tokens_total",
            "Number of prompt tokens processed, excluding cached tokens",
            counters.computed_tokens as f64,
        ),
        (
            "prompt_tokens_cached_total",
            "Number of prompt tokens reused from the cache",
            counters.cached_tokens as f64,
        ),
        ("prompt_seconds_total", "Total time spent processing prompts", prefill_s),
        (
            "tokens_predicted_total",
            "Number of generation tokens processed",
            counters.generated_tokens as f64,
        ),
        ("tokens_predicted_seconds_total", "Total time spent generating tokens", predicted_s),
        (
            "n_tokens_max",
            "Largest observed sequence length (prompt + generation)",
            f64::from(counters.longest_tokens),
        ),
    ] {
        page.counter(&format!("llamacpp:{name}"), help, value);
    }
    for (name, help, value) in [
        (
            "prompt_tokens_seconds",
            "Average prompt throughput in tokens/s",
            rate(counters.computed_tokens, prefill_s),
        ),
        (
            "predicted_tokens_seconds",
            "Average generation throughput in tokens/s",
            rate(counters.generated_tokens, predicted_s),
        ),
        ("requests_processing", "Number of requests processing", at.load.running as f64),
        ("requests_deferred", "Number of requests deferred", at.load.waiting as f64),
        (
            "n_busy_slots_per_decode",
            "Average number of busy slots per llama_decode() call",
            at.load.running as f64,
        ),
    ] {
        page.gauge(&format!("llamacpp:{name}"), help, value);
    }
    page.into_text()
}
