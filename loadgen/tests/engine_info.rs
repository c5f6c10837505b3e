//! What engines tell about themselves: models, health, load, metrics.

mod engine_support;

use engine_support::{
    Client, chat, chat_stream, eventually, expected, get, options, post, shape, start,
};
use loadgen::engine::{EngineOptions, Persona, ReplyLength, SimEngine};
use serde_json::json;

/// An engine on which one long request runs and one waits.
async fn busy(persona: Persona) -> (SimEngine, Client, Client) {
    let mut options = EngineOptions::new(persona);
    options.params.slots = 1;
    options.reply = ReplyLength::fixed(100_000);
    let engine = start(options);
    let mut clients = Vec::new();
    for _ in 0..2 {
        let mut client = Client::connect(engine.addr()).await;
        client.send("POST", "/v1/chat/completions", &chat_stream(&"shearwater ".repeat(300))).await;
        clients.push(client);
    }
    eventually(&engine, "one running and one waiting", |s| {
        s.generated_tokens > 0 && s.waiting == 1
    })
    .await;
    let second = clients.pop().unwrap();
    (engine, clients.pop().unwrap(), second)
}

/// The value of a metric whose labels contain all of these.
fn metric(page: &str, name: &str, labels: &[&str]) -> f64 {
    let line = page.lines().find(|line| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| {
            rest.starts_with(['{', ' ']) && labels.iter().all(|l| rest.contains(l))
        })
    });
    let line = line.unwrap_or_else(|| panic!("no {name} with {labels:?} in\n{page}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn model_lists_have_the_members_of_their_engine() {
    let cards = [
        (
            Persona::Vllm,
            r#"{"object":"text","data":[{"id":"text","object":"text","created":"int","owned_by":"text","root":"text",
                "parent":"null","max_model_len":"int","permission":[{"id":"text","object":"text","created":"int",
                "allow_create_engine":"bool","allow_sampling":"bool","allow_logprobs":"bool",
                "allow_search_indices":"bool","allow_view":"bool","allow_fine_tuning":"bool","organization":"text",
                "group":"null","is_blocking":"bool"}]}]}"#,
        ),
        (
            Persona::Sglang,
            r#"{"object":"text","data":[{"id":"text","object":"text","created":"int","owned_by":"text","root":"text",
                "parent":"null","max_model_len":"int"}]}"#,
        ),
        (
            Persona::OpenAi,
            r#"{"object":"text","data":[{"id":"text","object":"text","created":"int","owned_by":"text"}]}"#,
        ),
    ];
    for (persona, wanted) in cards {
        let engine = start(options(persona));
        assert_eq!(shape(&get(&engine, "/v1/models").await.json()), expected(wanted), "{persona}");
    }
    let llama = get(&start(options(Persona::LlamaCpp)), "/v1/models").await.json();
    assert_eq!(
        (&llama["models"][0]["name"], &llama["data"][0]["id"]),
        (&json!("sim"), &json!("sim"))
    );
}

#[tokio::test]
async fn llamacpp_tells_slots_and_context_in_its_properties() {
    let mut unified = options(Persona::LlamaCpp);
    unified.params.slots = 4;
    unified.params = unified.params.with_kv_tokens(16_384);
    let mut split = unified.clone();
    split.kv_unified = false;
    for (options, n_ctx) in [(unified, 16_384), (split, 4_096)] {
        let props = get(&start(options), "/props").await.json();
        assert_eq!(props["total_slots"], 4);
        assert_eq!(props["default_generation_settings"]["n_ctx"], n_ctx);
        assert_eq!(props["model_alias"], "sim");
        assert_eq!(props["is_sleeping"], false);
    }
}

#[tokio::test]
async fn llamacpp_shows_its_slots_and_counts_deferred_requests() {
    let (engine, _one, _two) = busy(Persona::LlamaCpp).await;
    let slots = get(&engine, "/slots").await.json();
    assert_eq!(slots[0]["is_processing"], true);
    assert_eq!(slots[0]["n_prompt_tokens"], slots[0]["n_prompt_tokens_processed"]);
    assert!(slots[0]["next_token"][0]["n_decoded"].as_u64().unwrap() > 0);
    let full = get(&engine, "/slots?fail_on_no_slot=1").await;
    assert_eq!(full.status(), 503);
    assert_eq!(
        full.text(),
        r#"{"error":{"code":503,"message":"no slot available","type":"unavailable_error"}}"#
    );
    let page = get(&engine, "/metrics").await.text();
    assert_eq!(metric(&page, "llamacpp:requests_processing", &[]), 1.0);
    assert_eq!(metric(&page, "llamacpp:requests_deferred", &[]), 1.0);
    assert!(metric(&page, "llamacpp:prompt_tokens_total", &[]) > 800.0);
    assert_eq!(get(&engine, "/health").await.text(), r#"{"status":"ok"}"#);
}

#[tokio::test]
async fn llamacpps_metrics_tell_when_the_process_started() {
    let engine = start(options(Persona::LlamaCpp));
    let reply = get(&engine, "/metrics").await;
    let started: u64 = reply.head.get("Process-Start-Time-Unix").unwrap().parse().unwrap();
    assert_eq!(started, engine.state().started_ms / 1_000);
    assert!(reply.text().contains("# TYPE llamacpp:requests_deferred gauge"));
}

#[tokio::test]
async fn vllms_metrics_tell_load_capacity_and_reuse() {
    let (engine, _one, _two) = busy(Persona::Vllm).await;
    let page = get(&engine, "/metrics").await.text();
    let ours = [r#"engine="0""#, r#"model_name="sim""#];
    assert_eq!(metric(&page, "vllm:num_requests_running", &ours), 1.0);
    assert_eq!(metric(&page, "vllm:num_requests_waiting", &ours), 1.0);
    assert_eq!(
        metric(&page, "vllm:num_requests_waiting_by_reason", &[r#"reason="capacity""#]),
        1.0
    );
    let usage = metric(&page, "vllm:kv_cache_usage_perc", &ours);
    assert!(usage > 0.0 && usage <= 1.0, "{usage}");
    let config =
        [r#"block_size="32""#, r#"num_gpu_blocks="16000""#, r#"kv_cache_size_tokens="512000""#];
    assert_eq!(metric(&page, "vllm:cache_config_info", &config), 1.0);
    assert!(metric(&page, "vllm:prefix_cache_queries_total", &ours) > 800.0);
    assert_eq!(metric(&page, "vllm:prefix_cache_hits_total", &ours), 0.0);
    assert_eq!(metric(&page, "vllm:time_to_first_token_seconds_count", &ours), 1.0);
    assert_eq!(metric(&page, "vllm:time_to_first_token_seconds_bucket", &[r#"le="+Inf""#]), 1.0);
    assert!(metric(&page, "process_start_time_seconds", &[]) > 1.7e9);
    assert_eq!(get(&engine, "/load").await.text(), r#"{"server_load":0}"#);
    assert_eq!(get(&engine, "/is_sleeping").await.text(), r#"{"is_sleeping":false}"#);
    assert_eq!(get(&engine, "/version").await.json()["version"], "0.32.0");
    assert_eq!(get(&engine, "/health").await.body, b"");
}

#[tokio::test]
async fn vllm_tells_its_load_in_a_header_when_asked() {
    let engine = start(options(Persona::Vllm));
    let mut client = Client::connect(engine.addr()).await;
    let ask = [("endpoint-load-metrics-format", "TEXT")];
    client.send_with("POST", "/v1/chat/completions", &ask, &chat("hi")).await;
    let reply = client.reply().await.unwrap();
    assert_eq!(
        reply.head.get("endpoint-load-metrics"),
        Some("TEXT named_metrics.num_requests_waiting=0.0, named_metrics.kv_cache_usage_perc=0.0")
    );
    let unasked = client.call("POST", "/v1/chat/completions", &chat("hi")).await;
    assert_eq!(unasked.head.get("endpoint-load-metrics"), None);
}

#[tokio::test]
async fn sglang_tells_load_and_capacity() {
    let (engine, _one, _two) = busy(Persona::Sglang).await;
    let loads = get(&engine, "/v1/loads?include=core").await.json();
    let core = &loads["loads"][0];
    assert_eq!((&core["num_running_reqs"], &core["num_waiting_reqs"]), (&json!(1), &json!(1)));
    assert!(core["num_waiting_uncached_tokens"].as_u64().unwrap() > 800);
    assert_eq!(core["max_total_num_tokens"], 512_000);
    for path in ["/server_info", "/get_server_info"] {
        let info = get(&engine, path).await.json();
        assert_eq!(info["max_total_num_tokens"], 512_000);
        assert_eq!((&info["max_running_requests"], &info["page_size"]), (&json!(1), &json!(16)));
        assert!(info["internal_states"].is_array());
    }
    assert_eq!(get(&engine, "/model_info").await.json()["served_model_name"], "sim");
    let page = get(&engine, "/metrics").await.text();
    let ours = [r#"engine_type="unified""#, r#"model_name="sim""#];
    assert_eq!(metric(&page, "sglang:num_running_reqs", &ours), 1.0);
    assert_eq!(metric(&page, "sglang:num_queue_reqs", &ours), 1.0);
    assert_eq!(metric(&page, "sglang:max_total_num_tokens", &ours), 512_000.0);
    let used = metric(&page, "sglang:kv_used_tokens", &ours);
    let free = metric(&page, "sglang:kv_available_tokens", &ours);
    let kept = metric(&page, "sglang:kv_evictable_tokens", &ours);
    assert_eq!(used + free + kept, 512_000.0);
}

#[tokio::test]
async fn sglangs_health_takes_a_poll_step_and_ready_does_not() {
    let mut options = options(Persona::Sglang);
    options.health_step_ms = 150;
    let engine = start(options);
    let before = tokio::time::Instant::now();
    assert_eq!(get(&engine, "/ready").await.status(), 200);
    assert!(before.elapsed().as_millis() < 150);
    let before = tokio::time::Instant::now();
    assert_eq!(get(&engine, "/health").await.status(), 200);
    assert!(before.elapsed().as_millis() >= 150);
    assert_eq!(engine.state().requests, 0, "a probe is no request");
}

#[tokio::test]
async fn a_wedged_sglang_fails_its_health_and_then_its_readiness() {
    let mut options = options(Persona::Sglang);
    options.health_step_ms = 5;
    options.faults.wedge = true;
    let engine = start(options);
    assert_eq!(get(&engine, "/ready").await.status(), 200, "nobody looked yet");
    assert_eq!(get(&engine, "/health_generate").await.status(), 503);
    assert_eq!(get(&engine, "/ready").await.status(), 503);
    engine.patch_faults(&json!({"wedge": false})).unwrap();
    assert_eq!(get(&engine, "/health").await.status(), 200);
    assert_eq!(get(&engine, "/ready").await.status(), 200);
}

#[tokio::test]
async fn unknown_paths_and_methods_are_refused_in_each_engines_words() {
    let vllm = start(options(Persona::Vllm));
    assert_eq!(get(&vllm, "/nope").await.text(), r#"{"detail":"Not Found"}"#);
    let method = get(&vllm, "/v1/chat/completions").await;
    assert_eq!(
        (method.status(), method.text().as_str()),
        (405, r#"{"detail":"Method Not Allowed"}"#)
    );
    let llama = start(options(Persona::LlamaCpp));
    for reply in [get(&llama, "/nope").await, get(&llama, "/v1/chat/completions").await] {
        assert_eq!(reply.status(), 404);
        assert_eq!(
            reply.text(),
            r#"{"error":{"message":"File Not Found","type":"not_found_error","code":404}}"#
        );
    }
    let plain = start(options(Persona::OpenAi));
    assert_eq!(get(&plain, "/metrics").await.status(), 404);
    assert_eq!(post(&plain, "/v1/messages", &json!({})).await.status(), 404);
}
