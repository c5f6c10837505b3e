//! A full fleet is busy, not broken: requests wait, bounded, and are served; those that cannot wait are told so in their
//! own dialect.

use std::time::Duration;

use loadgen::engine::{EngineOptions, Faults, Persona, ReplyLength, text_hash};
use serde_json::{Value, json};
use tests::harness::{Client, Fleet, Reply, engine, eventually};

use crate::said::{chat, chat_stream, prose};

const CHAT: &str = "/v1/chat/completions";

/// An engine with so many slots.
fn with_slots(persona: Persona, slots: usize) -> EngineOptions {
    let mut options = engine(persona);
    options.params.slots = slots;
    options
}

/// An engine whose replies go on until the client has had enough.
fn endless(persona: Persona) -> EngineOptions {
    let mut options = EngineOptions { reply: ReplyLength::fixed(100_000), ..engine(persona) };
    options.params.decode_tps = 100.0;
    options
}

/// A stream that holds its place until it is dropped.
async fn occupy(fleet: &Fleet, text: &str) -> (Client, String) {
    let mut client = fleet.proxy.client().await;
    client.post(CHAT, &chat_stream(text)).await;
    client.sees("data: ").await;
    let head = client.received();
    let name = head.lines().find_map(|line| line.strip_prefix("x-shearwater-backend: "));
    let name = name.expect("a backend").to_owned();
    (client, name)
}

/// A request that is on its way; its reply is awaited later.
async fn sent(fleet: &Fleet, path: &str, body: &Value) -> Client {
    let mut client = fleet.proxy.client().await;
    client.post(path, body).await;
    client
}

#[tokio::test]
async fn more_requests_than_slots_are_all_served_and_never_queue_inside_an_engine() {
    let fleet = Fleet::start(vec![with_slots(Persona::LlamaCpp, 2); 2], "").await;
    let limits = |all: &[Value]| all.iter().all(|backend| backend["limits"]["requests_max"] == 2);
    fleet.proxy.believes("both told their slots", limits).await;
    let mut running = Vec::new();
    for number in 0..40 {
        let mut client = sent(&fleet, CHAT, &chat(&prose(number, 2_000))).await;
        running.push(tokio::spawn(async move { client.reply().await }));
    }
    let mut waited = 0;
    while running.iter().any(|request| !request.is_finished()) {
        for engine in fleet.alive() {
            let state = engine.state();
            assert!(state.running <= 2 && state.waiting == 0, "{state:?}");
        }
        waited = waited.max(fleet.proxy.waiting());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for request in running {
        let reply: Reply = request.await.expect("a reply");
        assert_eq!(reply.status, 200, "{}", reply.text());
        let answer = reply.json();
        assert!(
            text_hash(answer["choices"][0]["message"]["content"].as_str().unwrap_or_default())
                .is_some()
        );
    }
    assert!(waited > 0, "nobody had to wait, which proves nothing");
    assert_eq!(fleet.proxy.waiting(), 0);
    fleet.proxy.idle().await;
}

#[tokio::test]
async fn a_pool_that_is_full_of_tokens_is_as_full_as_one_without_a_slot() {
    let mut small = endless(Persona::Vllm);
    small.params = small.params.with_kv_tokens(8_192);
    let fleet = Fleet::start(vec![small], "").await;
    fleet.proxy.believes("its pool is known", |all| all[0]["limits"]["tokens_max"] == 8_192).await;
    // 16 KB of prompt and a reply as long as the cap are more than half of the pool.
    let (first, _) = occupy(&fleet, &prose(1, 16_000)).await;
    let mut second = sent(&fleet, CHAT, &chat_stream(&prose(2, 16_000))).await;
    eventually("the second waits", || fleet.proxy.waiting() == 1).await;
    assert_eq!(fleet.proxy.in_flight(0), 1);
    drop(first);
    second.sees("data: ").await;
    assert_eq!(fleet.proxy.in_flight(0), 1);
}

#[tokio::test]
async fn a_request_larger_than_the_pool_goes_alone_and_is_the_engines_to_judge() {
    let mut small = engine(Persona::Vllm);
    small.params = small.params.with_kv_tokens(8_192);
    let fleet = Fleet::start(vec![small], "").await;
    fleet.proxy.believes("its pool is known", |all| all[0]["limits"]["tokens_max"] == 8_192).await;
    let reply = fleet.proxy.client().await.ask(CHAT, &chat(&prose(1, 60_000))).await;
    assert_eq!(reply.status, 400, "{}", reply.text());
    assert!(reply.text().contains("maximum context length"), "{}", reply.text());
    fleet.proxy.idle().await;
}

/// Fills the only slot and the only place to wait, and returns what the next one is told.
async fn turned_away(path: &str, body: &Value) -> Reply {
    let settings = "[routing]\nqueue_max = 1\n";
    let fleet = Fleet::limited(vec![endless(Persona::Vllm)], settings, "slots = 1").await;
    let (_first, _) = occupy(&fleet, "first").await;
    let _second = sent(&fleet, CHAT, &chat("second")).await;
    eventually("the second waits", || fleet.proxy.waiting() == 1).await;
    fleet.proxy.client().await.ask(path, body).await
}

#[tokio::test]
async fn a_chat_that_cannot_even_wait_is_told_when_to_come_again() {
    let reply = turned_away(CHAT, &chat("third")).await;
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (503, &json!("backends_busy")));
    let after: u64 = reply.header("retry-after").and_then(|s| s.parse().ok()).expect("seconds");
    assert!((1..60).contains(&after), "{after}");
    assert!(reply.header("retry-after-ms").is_some() && reply.header("x-request-id").is_some());
}

#[tokio::test]
async fn a_message_that_cannot_even_wait_is_told_that_we_are_overloaded() {
    let body = json!({ "model": "sim", "max_tokens": 9, "messages": [{ "role": "user", "content": "third" }] });
    let reply = turned_away("/v1/messages?beta=true", &body).await;
    assert_eq!((reply.status, &reply.json()["error"]["type"]), (529, &json!("overloaded_error")));
    assert!(reply.header("retry-after").is_some() && reply.header("request-id").is_some());
}

#[tokio::test]
async fn a_response_that_cannot_even_wait_is_not_told_what_would_stop_its_client() {
    let reply = turned_away("/v1/responses", &json!({ "model": "sim", "input": "third" })).await;
    let code = reply.json()["error"]["code"].as_str().map(str::to_owned).expect("a code");
    assert_eq!(reply.status, 503);
    assert!(!["server_is_overloaded", "slow_down"].contains(&code.as_str()), "{code}");
}

#[tokio::test]
async fn everybody_may_wait_as_long_as_is_configured_and_no_longer() {
    let settings = "[routing]\nqueue_wait_ms = 1500\nhome_wait_ms = 50\n";
    let fleet = Fleet::limited(vec![endless(Persona::Vllm)], settings, "slots = 1").await;
    let (_first, _) = occupy(&fleet, "first").await;
    let began = tokio::time::Instant::now();
    let reply = fleet.proxy.client().await.ask(CHAT, &chat("second")).await;
    assert!(began.elapsed() >= Duration::from_millis(1_400), "after {:?}", began.elapsed());
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (503, &json!("backends_busy")));
    assert_eq!((fleet.proxy.waiting(), fleet.proxy.in_flight(0)), (0, 1));
}

/// One engine says it is full whenever it is asked; the other serves.
async fn passed_over(persona: Persona, late: bool) {
    let mut full = EngineOptions { late_refusal: late, ..engine(persona) };
    full.faults.full = true;
    let fleet =
        Fleet::start(vec![full, engine(persona)], "[routing]\npolicy = \"round_robin\"\n").await;
    for number in 0..10 {
        let text = prose(number, 300);
        let body = if number % 2 == 0 { chat(&text) } else { chat_stream(&text) };
        let reply = fleet.proxy.client().await.ask(CHAT, &body).await;
        assert_eq!((reply.status, reply.backend()), (200, "b1"), "{persona}: {}", reply.text());
        assert!(!reply.text().contains("error"), "{persona}: {}", reply.text());
    }
    assert!(fleet.proxy.admits(0), "busy is not broken");
    let (_, metrics) = fleet.proxy.admin("/metrics").await;
    assert!(!metrics.contains("shearwater_busy_answers_total 0"), "it was asked");
    fleet.proxy.idle().await;
}

#[tokio::test]
async fn a_full_sglang_that_says_so_inside_a_200_is_passed_over() {
    passed_over(Persona::Sglang, false).await;
}

#[tokio::test]
async fn a_full_vllm_is_passed_over_whether_it_says_so_early_or_late() {
    passed_over(Persona::Vllm, false).await;
    passed_over(Persona::Vllm, true).await;
}

#[tokio::test]
async fn an_only_engine_that_was_full_for_a_moment_serves_those_who_waited() {
    let mut full = engine(Persona::Vllm);
    full.faults.full = true;
    let fleet = Fleet::start(vec![full], "[routing]\nqueue_wait_ms = 15000\n").await;
    let mut client = sent(&fleet, CHAT, &chat("is there room?")).await;
    eventually("it waits", || fleet.proxy.waiting() == 1).await;
    fleet.engine("b0").patch_faults(&json!({ "full": false })).expect("a fault");
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.backend()), (200, "b0"), "{}", reply.text());
    let waited = fleet.proxy.explained(&reply).await["waited_ms"].as_u64();
    assert!(waited < Some(5_000), "it waited {waited:?} ms for an engine that had room");
}

#[tokio::test]
async fn an_engine_that_was_full_for_a_moment_is_asked_again_while_the_other_is_busy_for_long() {
    let settings = "[routing]\nqueue_wait_ms = 15000\n";
    let fleet = Fleet::limited(vec![endless(Persona::Vllm); 2], settings, "slots = 1").await;
    let (_long, taken) = occupy(&fleet, "a long story").await;
    let other = if taken == "b0" { "b1" } else { "b0" };
    fleet.engine(other).patch_faults(&json!({ "full": true })).expect("a fault");
    let mut client = sent(&fleet, CHAT, &chat_stream("a short question")).await;
    eventually("it waits", || fleet.proxy.waiting() == 1).await;
    fleet.engine(other).patch_faults(&json!({ "full": false })).expect("a fault");
    client.sees("data: ").await;
    assert!(client.received().contains(&format!("x-shearwater-backend: {other}")));
}

/// A pool in which one long reply fits, and two do not.
fn narrow() -> EngineOptions {
    let mut options = EngineOptions { reply: ReplyLength::fixed(600), ..engine(Persona::LlamaCpp) };
    options.params = options.params.with_kv_tokens(1_024);
    // Slow enough for two replies to overlap on a busy machine.
    options.params.decode_tps = 400.0;
    options
}

fn long_reply() -> Value {
    let mut body = chat("tell me more");
    body["max_tokens"] = json!(600);
    body
}

#[tokio::test]
async fn replies_that_would_outgrow_llamacpps_pool_together_run_one_after_the_other() {
    let fleet = Fleet::start(vec![narrow()], "").await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(sent(&fleet, CHAT, &long_reply()).await);
    }
    for mut client in clients {
        let reply = client.reply().await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    assert_eq!(fleet.engine("b0").state().overflowed, 0);
}

#[tokio::test]
async fn llamacpp_whose_pool_ran_out_is_busy_and_not_broken() {
    let fleet = Fleet::start(vec![narrow()], "[routing]\nqueue_wait_ms = 15000\n").await;
    // Somebody else uses the engine, past us: together the two outgrow the pool, and the engine fails both.
    let mut other = Client::connect(fleet.engine("b0").addr()).await;
    other.post(CHAT, &long_reply()).await;
    eventually("the other one runs", || fleet.engine("b0").state().running == 1).await;
    let reply = fleet.proxy.client().await.ask(CHAT, &long_reply()).await;
    assert_eq!(other.reply().await.status, 500);
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert!(fleet.engine("b0").state().overflowed >= 2, "the pool never ran out");
    assert!(fleet.proxy.admits(0), "busy is not broken");
    // What was reserved did not fit, so less of it is let in.
    fleet
        .proxy
        .believes("less is let in", |all| all[0]["limits"]["tokens_max"].as_u64() < Some(1_000))
        .await;
    fleet.proxy.idle().await;
}

/// A chat of many short messages: what the template adds to each makes twice as many tokens of it as its bytes suggest.
fn dense(number: u64) -> Value {
    let messages =
        (0..30).map(|at| json!({ "role": "user", "content": prose(100 * number + at, 25) }));
    let mut body = chat_stream("");
    body["messages"] = messages.collect();
    body["max_tokens"] = json!(60);
    body
}

#[tokio::test]
async fn a_first_rush_of_dense_prompts_on_a_shared_pool_loses_nobody() {
    let mut options = EngineOptions { reply: ReplyLength::fixed(60), ..narrow() };
    options.params = options.params.with_kv_tokens(4_096);
    options.params.slots = 16;
    let fleet = Fleet::start(vec![options], "").await;
    fleet.proxy.believes("its pool is known", |all| all[0]["limits"]["tokens_max"] == 4_096).await;
    let mut clients = Vec::new();
    for number in 0..16 {
        clients.push(sent(&fleet, CHAT, &dense(number)).await);
    }
    for mut client in clients {
        let reply = client.reply().await;
        assert!(reply.status == 200 && reply.text().contains("[DONE]"), "{}", reply.text());
    }
    assert_eq!(fleet.engine("b0").state().overflowed, 0);
}

#[tokio::test]
async fn before_a_reply_told_hashes_are_taken_for_dense_where_a_full_pool_fails_everybody() {
    let (words, hashes) = (prose(1, 4_000), "3f9a01cc71b2e4d8 ".repeat(240));
    for (persona, dense) in [(Persona::LlamaCpp, true), (Persona::Vllm, false)] {
        let fleet = Fleet::of(1, persona, "").await;
        let tokens = async |text: &str| {
            let body = chat(text).to_string();
            let told = fleet.proxy.dry_run(CHAT, "", body.as_bytes()).await;
            told["prompt_tokens"].as_u64().expect("tokens")
        };
        let (of_words, of_hashes) = (tokens(&words).await, tokens(&hashes).await);
        assert_eq!(
            of_hashes * 10 > of_words * 17,
            dense,
            "{of_hashes} of hashes, {of_words} of words"
        );
        let reply = fleet.proxy.client().await.ask(CHAT, &chat(&words)).await;
        fleet.proxy.explained(&reply).await;
        let (of_words, of_hashes) = (tokens(&words).await, tokens(&hashes).await);
        assert!(of_words.abs_diff(of_hashes) * 10 < of_words, "what was told is gone by");
    }
}

#[tokio::test]
async fn a_prompt_no_backend_can_ever_hold_is_told_so_instead_of_waiting_and_goes_where_nobody_is()
{
    let lines = "kv_tokens = 2000";
    let fleet = Fleet::limited(vec![endless(Persona::Vllm)], "", lines).await;
    let (large, waits) = (prose(1, 40_000), prose(2, 10_000));
    let mut idle = fleet.proxy.client().await;
    let mut body = chat(&large);
    body["max_tokens"] = json!(5);
    assert_eq!(idle.ask(CHAT, &body).await.status, 200, "the engine judges for itself");
    let (stays, _) = occupy(&fleet, "a long story").await;
    let reply = fleet.proxy.client().await.ask(CHAT, &body).await;
    assert_eq!(reply.status, 400, "{}", reply.text());
    assert_eq!(reply.json()["error"]["code"], "context_length_exceeded");
    let message = json!({ "model": "sim", "max_tokens": 5,
        "messages": [{ "role": "user", "content": large }] });
    let reply = fleet.proxy.client().await.ask("/v1/messages", &message).await;
    assert_eq!(
        (reply.status, &reply.json()["error"]["type"]),
        (400, &json!("invalid_request_error"))
    );
    // Larger than the pool by less than the estimate may err: it waits, and goes when it is alone.
    body = chat(&waits);
    body["max_tokens"] = json!(5);
    let mut client = sent(&fleet, CHAT, &body).await;
    eventually("it waits", || fleet.proxy.waiting() == 1).await;
    drop(stays);
    assert_eq!(client.reply().await.status, 200);
}

#[tokio::test]
async fn no_prompt_is_too_large_while_one_pool_is_unknown() {
    let options = vec![EngineOptions { reply: ReplyLength::fixed(8), ..engine(Persona::OpenAi) }];
    let fleet = Fleet::limited(options, "[routing]\nqueue_wait_ms = 200\n", "slots = 1").await;
    fleet.engine("b0").set_faults(Faults { wedge: true, ..Faults::default() });
    let _stays = sent(&fleet, CHAT, &chat("hello")).await;
    eventually("it is there", || fleet.proxy.in_flight(0) == 1).await;
    let reply = fleet.proxy.client().await.ask(CHAT, &chat(&prose(1, 400_000))).await;
    assert_eq!(reply.json()["error"]["code"], "backends_busy", "it waited its time");
}
