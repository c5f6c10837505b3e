//! SGLang's load, facts and metrics, as far as routers read them.

use serde_json::{Value, json};

use super::super::clock::iso_date;
use super::super::model::Params;
use super::super::options::EngineOptions;
use super::super::state::Snapshot;
use super::prometheus::Page;

const VERSION: &str = "0.5.23";

/// `/server_info`: the real one prints 556 members, most of them its command line.
pub(in super::super) fn sglang_server_info(options: &EngineOptions, at: &Snapshot) -> Value {
    let params = &options.params;
    let longest = options.sequence_tokens_max();
    let pool = params.kv_tokens();
    json!({"model_path": options.model, "tokenizer_path": options.model, "served_model_name": options.model,
        "context_length": longest, "max_running_requests": params.slots, "max_queued_requests": params.queue_max,
        "max_total_tokens": pool, "chunked_prefill_size": 4096, "max_prefill_tokens": 16384,
        "schedule_policy": "fcfs", "page_size": params.block_tokens, "tp_size": 1, "dp_size": 1,
        "disaggregation_mode": "null", "enable_cache_report": options.report_cached, "enable_metrics": true,
        "random_seed": at.identity & 0xffff_ffff, "status": "ready", "max_total_num_tokens": pool,
        "max_req_input_len": longest.saturating_sub(6), "kv_events": null,
        "startup_time": {"load_weight": 0.0, "scheduler_e2e": 0.0},
        "internal_states": [{"effective_max_running_requests_per_dp": params.slots, "last_gen_throughput": 0.0,
            "page_size": params.block_tokens, "memory_usage": {"weight": 0.0, "kvcache": 0.0, "token_capacity": pool}}],
        "version": VERSION})
}

pub(in super::super) fn sglang_model_info(options: &EngineOptions) -> Value {
    json!({"model_path": options.model, "served_model_name": options.model, "tokenizer_path": options.model,
        "is_generation": true, "preferred_sampling_params": null, "weight_version": "default", "load_format": "auto",
        "reasoning_parser": null, "tool_call_parser": null, "disaggregation_mode": "null",
        "has_image_understanding": false, "has_audio_understanding": false, "model_type": "llama",
        "architectures": ["LlamaForCausalLM"]})
}

fn used_tokens(params: &Params, at: &Snapshot) -> u64 {
    at.load.blocks_in_use as u64 * u64::from(params.block_tokens)
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// `/v1/loads`.
pub(in super::super) fn sglang_loads(options: &EngineOptions, at: &Snapshot, now_ms: u64) -> Value {
    let params = &options.params;
    let (used, pool) = (used_tokens(params, at), params.kv_tokens());
    let hit_rate = share(at.counters.cached_tokens, at.counters.prompt_tokens);
    json!({"timestamp": iso_date(now_ms), "version": VERSION, "accelerator": null, "num_accelerators": 1,
        "loads": [{"timestamp": now_ms as f64 / 1e3, "dp_rank": 0, "num_running_reqs": at.load.running,
            "num_waiting_reqs": at.load.waiting, "num_waiting_uncached_tokens": at.load.pending_tokens,
            "num_used_tokens": used, "num_total_tokens": used, "num_active_tokens": used,
            "max_total_num_tokens": pool, "max_running_requests": params.slots, "token_usage": share(used, pool),
            "gen_throughput": 0.0, "cache_hit_rate": hit_rate, "utilization": share(used, pool),
            "total_prefill_uncached_tokens": at.counters.computed_tokens,
            "total_prefill_busy_us": at.counters.prefill_us,
            "memory": {"weight_gb": 0.0, "kv_cache_gb": 0.0, "graph_gb": 0.0, "token_capacity": pool},
            "disaggregation": {"mode": "null"},
            "queues": {"waiting": at.load.waiting, "grammar": 0, "paused": 0, "retracted": 0}}]})
}

pub(in super::super) fn sglang_metrics(options: &EngineOptions, at: &Snapshot) -> String {
    let pid = (at.identity & 0x7fff).to_string();
    let mut retracted = Page::new(
        &[("engine_type", "unified"), ("model_name", &options.model), ("pid", &pid)],
        true,
    );
    retracted.gauge("sglang:num_retracted_reqs", "The number of retracted requests.", 0.0);
    let scheduler = [
        ("engine_type", "unified"),
        ("model_name", options.model.as_str()),
        ("moe_ep_rank", "0"),
        ("pp_rank", "0"),
        ("tp_rank", "0"),
    ];
    let mut page = Page::new(&scheduler, true);
    push_load(options, at, &mut page);
    let mut requests =
        Page::new(&[("engine_type", "unified"), ("model_name", &options.model)], true);
    push_totals(at, &mut requests);
    format!("{}{}{}", retracted.into_text(), requests.into_text(), page.into_text())
}

fn push_load(options: &EngineOptions, at: &Snapshot, page: &mut Page) {
    let params = &options.params;
    let (used, pool) = (used_tokens(params, at), params.kv_tokens());
    let evictable = at.load.blocks_cached as u64 * u64::from(params.block_tokens);
    let hit_rate = share(at.counters.cached_tokens, at.counters.prompt_tokens);
    for (name, help, value) in [
        ("page_size", "KV cache page size in tokens.", f64::from(params.block_tokens)),
        ("num_pages", "Number of KV cache pages.", params.kv_blocks as f64),
        ("context_len", "Maximum context length.", f64::from(options.sequence_tokens_max())),
        (
            "max_total_num_tokens",
            "Maximum total number of tokens in the KV cache pool.",
            pool as f64,
        ),
        ("num_running_reqs", "The number of running requests.", at.load.running as f64),
        ("num_queue_reqs", "The number of requests in the waiting queue.", at.load.waiting as f64),
        ("gen_throughput", "The generation throughput (token/s).", 0.0),
        ("cache_hit_rate", "The prefix cache hit rate.", hit_rate),
        ("token_usage", "The token usage.", share(used, pool)),
        ("num_used_tokens", "The number of used tokens.", used as f64),
        (
            "kv_available_tokens",
            "Number of free token slots in the KV cache pool.",
            pool.saturating_sub(used + evictable) as f64,
        ),
        (
            "kv_evictable_tokens",
            "Number of evictable (radix-cached) token slots in the KV cache pool.",
            evictable as f64,
        ),
        (
            "kv_used_tokens",
            "Number of actively used token slots in the KV cache pool.",
            used as f64,
        ),
    ] {
        page.gauge(&format!("sglang:{name}"), help, value);
    }
}

fn push_totals(at: &Snapshot, page: &mut Page) {
    page.histogram(
        "sglang:time_to_first_token_seconds",
        "Histogram of time to first token in seconds.",
        &at.latencies.ttft,
    );
    for (name, help, value) in [
        ("prompt_tokens_total", "Number of prefill tokens processed.", at.counters.prompt_tokens),
        (
            "generation_tokens_total",
            "Number of generation tokens processed.",
            at.counters.generated_tokens,
        ),
        ("num_requests_total", "Number of requests processed.", at.counters.finished),
        ("num_aborted_requests_total", "Number of requests aborted.", at.aborted),
    ] {
        page.counter(&format!("sglang:{name}"), help, value as f64);
    }
    let cached = "sglang:cached_tokens_total";
    page.family(
        cached,
        "Number of cached prompt tokens by source (device/host/storage).",
        "counter",
    );
    page.sample(cached, &[("cache_source", "device")], at.counters.cached_tokens as f64);
}
