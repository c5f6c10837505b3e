//! vLLM's metrics, as far as routers read them.

use super::super::options::EngineOptions;
use super::super::state::Snapshot;
use super::prometheus::Page;

/// The header by which a whole reply tells load when asked to.
pub(in super::super) fn vllm_load_header(options: &EngineOptions, at: &Snapshot) -> String {
    format!(
        "TEXT named_metrics.num_requests_waiting={:?}, named_metrics.kv_cache_usage_perc={:?}",
        at.load.waiting as f64,
        usage(options, at)
    )
}

fn usage(options: &EngineOptions, at: &Snapshot) -> f64 {
    at.load.blocks_in_use as f64 / options.params.kv_blocks.max(1) as f64
}

pub(in super::super) fn vllm_metrics(options: &EngineOptions, at: &Snapshot) -> String {
    let mut process = Page::new(&[], true);
    let started = at.started_ms as f64 / 1e3;
    process.gauge(
        "process_start_time_seconds",
        "Start time of the process since unix epoch in seconds.",
        started,
    );
    let mut page = Page::new(&[("engine", "0"), ("model_name", &options.model)], true);
    push_load(options, at, &mut page);
    push_counters(at, started, &mut page);
    push_finished(at, &mut page);
    push_latencies(at, &mut page);
    let mut config = Page::new(&[], true);
    push_config(options, &mut config);
    push_rejections(options, at, &mut config);
    format!("{}{}{}", process.into_text(), page.into_text(), config.into_text())
}

fn push_load(options: &EngineOptions, at: &Snapshot, page: &mut Page) {
    let (running, waiting) = (at.load.running as f64, at.load.waiting as f64);
    page.gauge(
        "vllm:num_requests_running",
        "Number of requests in model execution batches.",
        running,
    );
    page.gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.", waiting);
    let by_reason = "vllm:num_requests_waiting_by_reason";
    page.family(by_reason, "Number of waiting requests by reason.", "gauge");
    page.sample(by_reason, &[("reason", "capacity")], waiting);
    page.sample(by_reason, &[("reason", "deferred")], 0.0);
    page.family("vllm:engine_sleep_state", "Engine sleep state.", "gauge");
    for (state, value) in [("awake", 1.0), ("weights_offloaded", 0.0), ("discard_all", 0.0)] {
        page.sample("vllm:engine_sleep_state", &[("sleep_state", state)], value);
    }
    let perc = usage(options, at);
    page.gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", perc);
}

/// Counters come in pairs: the count and when counting began.
fn push_counters(at: &Snapshot, started: f64, page: &mut Page) {
    let counters = &at.counters;
    for (name, help, value) in [
        (
            "prefix_cache_queries",
            "Prefix cache queries, in terms of number of queried tokens.",
            counters.prompt_tokens,
        ),
        (
            "prefix_cache_hits",
            "Prefix cache hits, in terms of number of cached tokens.",
            counters.cached_tokens,
        ),
        ("num_preemptions", "Cumulative number of preemption from the engine.", 0),
        ("prompt_tokens", "Number of prefill tokens processed.", counters.prompt_tokens),
        (
            "prompt_tokens_cached",
            "Number of cached prompt tokens (local + external).",
            counters.cached_tokens,
        ),
        ("generation_tokens", "Number of generation tokens processed.", counters.generated_tokens),
    ] {
        page.counter(&format!("vllm:{name}_total"), help, value as f64);
        page.gauge(&format!("vllm:{name}_created"), help, started);
    }
}

fn push_finished(at: &Snapshot, page: &mut Page) {
    let name = "vllm:request_success_total";
    page.family(name, "Count of successfully processed requests.", "counter");
    for (reason, value) in
        [("stop", at.counters.finished), ("length", 0), ("abort", at.aborted), ("error", 0)]
    {
        page.sample(name, &[("finished_reason", reason)], value as f64);
    }
}

fn push_latencies(at: &Snapshot, page: &mut Page) {
    let latencies = &at.latencies;
    for (name, help, histogram) in [
        (
            "time_to_first_token_seconds",
            "Histogram of time to first token in seconds.",
            &latencies.ttft,
        ),
        (
            "inter_token_latency_seconds",
            "Histogram of inter-token latency in seconds.",
            &latencies.itl,
        ),
        (
            "e2e_request_latency_seconds",
            "Histogram of e2e request latency in seconds.",
            &latencies.e2e,
        ),
        (
            "request_queue_time_seconds",
            "Histogram of time spent in WAITING phase for request.",
            &latencies.queue,
        ),
    ] {
        page.histogram(&format!("vllm:{name}"), help, histogram);
    }
}

fn push_config(options: &EngineOptions, page: &mut Page) {
    let params = &options.params;
    let (block, blocks) = (params.block_tokens.to_string(), params.kv_blocks.to_string());
    let tokens = params.kv_tokens().to_string();
    let longest = f64::from(options.sequence_tokens_max().max(1));
    let concurrency = format!("{:?}", params.kv_tokens() as f64 / longest);
    page.family("vllm:cache_config_info", "Information of the LLMEngine CacheConfig", "gauge");
    page.sample(
        "vllm:cache_config_info",
        &[
            ("_block_size_resolved", "True"),
            ("block_size", &block),
            ("cache_dtype", "auto"),
            ("effective_attention_block_size", &block),
            ("enable_prefix_caching", "True"),
            ("engine", "0"),
            ("gpu_memory_utilization", "0.92"),
            ("is_attention_free", "False"),
            ("kv_cache_max_concurrency", &concurrency),
            ("kv_cache_size_tokens", &tokens),
            ("num_cpu_blocks", "None"),
            ("num_gpu_blocks", &blocks),
            ("num_gpu_blocks_override", "None"),
            ("prefix_caching_hash_algo", "sha256"),
            ("sliding_window", "None"),
        ],
        1.0,
    );
}

fn push_rejections(options: &EngineOptions, at: &Snapshot, page: &mut Page) {
    let name = "vllm:admission_rejections_total";
    page.family(
        name,
        "Number of admission attempts rejected by a queue limit, by reason.",
        "counter",
    );
    for (reason, value) in
        [("max_num_queued_reqs", at.counters.refused), ("max_num_queued_tokens", 0)]
    {
        page.sample(name, &[("model_name", &options.model), ("reason", reason)], value as f64);
    }
}
