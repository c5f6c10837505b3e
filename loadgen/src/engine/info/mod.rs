//! What an engine tells about itself: models, health, load, metrics, in each persona's own form. Read-only.

pub(super) mod histogram;
mod llamacpp;
mod prometheus;
mod sglang;
mod vllm;

use serde_json::{Value, json};

use super::options::EngineOptions;
use super::persona::Persona;
use super::state::Snapshot;

pub(super) use llamacpp::{llama_metrics, llama_props, llama_slots, sampling};
pub(super) use sglang::{sglang_loads, sglang_metrics, sglang_model_info, sglang_server_info};
pub(super) use vllm::{vllm_load_header, vllm_metrics};

/// `/v1/models`.
pub(super) fn models(options: &EngineOptions, at: &Snapshot) -> Value {
    let (model, created) = (&options.model, at.started_ms / 1_000);
    let longest = options.sequence_tokens_max();
    let card = match options.persona {
        Persona::LlamaCpp => return llamacpp::llama_models(options, at),
        Persona::Vllm => {
            json!({"id": model, "object": "model", "created": created, "owned_by": "vllm", "root": model,
            "parent": null, "max_model_len": longest, "permission": [{"id": format!("modelperm-{:016x}", at.identity),
                "object": "model_permission", "created": created, "allow_create_engine": false,
                "allow_sampling": true, "allow_logprobs": true, "allow_search_indices": false, "allow_view": true,
                "allow_fine_tuning": false, "organization": "*", "group": null, "is_blocking": false}]})
        }
        Persona::Sglang => {
            json!({"id": model, "object": "model", "created": created, "owned_by": "sglang",
            "root": model, "parent": null, "max_model_len": longest})
        }
        Persona::OpenAi => {
            json!({"id": model, "object": "model", "created": created, "owned_by": "simulated"})
        }
    };
    json!({"object": "list", "data": [card]})
}
