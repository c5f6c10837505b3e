//! What the proxy counts adds up, and what it says it would do is what it does.

use std::collections::BTreeMap;

use loadgen::engine::{Persona, SimEngine};
use serde_json::{Value, json};
use tests::harness::{Client, Fleet, Proxy, settled};

use crate::said::{Talk, chat, chat_stream, prose, streamed};

const CHAT: &str = "/v1/chat/completions";

/// One line of `/metrics`: labels and value.
#[derive(Debug)]
struct Sample {
    labels: BTreeMap<String, String>,
    value: f64,
}

/// All samples of a metric.
fn samples(text: &str, name: &str) -> Vec<Sample> {
    let lines = text.lines().filter_map(|line| line.strip_prefix(name));
    lines.filter_map(sample).collect()
}

fn sample(rest: &str) -> Option<Sample> {
    let (labels, value) = match rest.strip_prefix('{') {
        Some(rest) => rest.split_once("} ")?,
        None => ("", rest.strip_prefix(' ')?),
    };
    let label = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        Some((name.to_owned(), value.trim_matches('"').to_owned()))
    };
    let labels = labels.split(',').filter_map(label).collect();
    Some(Sample { labels, value: value.split(' ').next()?.parse().ok()? })
}

fn sum(samples: &[Sample], label: &str, value: &str) -> f64 {
    let with = samples.iter().filter(|one| one.labels.get(label).is_some_and(|own| own == value));
    with.map(|one| one.value).sum()
}

/// The metrics, once so many requests have been counted.
async fn counted(proxy: &Proxy, requests: f64) -> String {
    settled("all requests are counted", async || {
        let (_, text) = proxy.admin("/metrics").await;
        let all: f64 =
            samples(&text, "shearwater_requests_total").iter().map(|one| one.value).sum();
        assert!(all <= requests, "{all} requests are counted, {requests} were sent");
        (all == requests).then_some(text)
    })
    .await
}

#[tokio::test]
async fn every_request_is_counted_once_under_what_it_was_and_what_became_of_it() {
    let fleet = Fleet::of(2, Persona::Vllm, "").await;
    let mut client = fleet.proxy.client().await;
    let messages = json!({ "model": "sim", "max_tokens": 9, "messages": [{ "role": "user", "content": "x" }] });
    let unknown = json!({ "model": "nobody's", "messages": [{ "role": "user", "content": "x" }] });
    let rows: [(&str, Value, u64, &str); 7] = [
        (CHAT, chat("hello"), 7, "chat_completions 200"),
        (CHAT, chat_stream("hello"), 5, "chat_completions 200"),
        ("/v1/messages?beta=true", messages.clone(), 4, "messages 200"),
        ("/v1/messages/count_tokens", messages, 3, "count_tokens 200"),
        ("/v1/responses", json!({ "model": "sim", "input": "x" }), 2, "responses 200"),
        ("/v1/embeddings", json!({ "model": "sim", "input": "x" }), 3, "embeddings 200"),
        (CHAT, unknown, 6, "chat_completions 404"),
    ];
    let mut expected: BTreeMap<&str, u64> = BTreeMap::new();
    for (path, body, times, name) in &rows {
        for _ in 0..*times {
            let reply = client.ask(path, body).await;
            assert!(name.ends_with(&reply.status.to_string()), "{path}: {}", reply.text());
        }
        *expected.entry(name).or_default() += times;
    }
    client.post_with(CHAT, "", b"{no json").await;
    assert_eq!(client.reply().await.status, 400);
    expected.insert("chat_completions 400", 1);
    client.get("/v1/models").await;
    expected.insert("models 200", 1);
    // Somebody leaves in the middle.
    let mut long = fleet.proxy.client().await;
    let mut body = chat_stream(&prose(1, 1_000));
    body["min_tokens"] = json!(100_000);
    body["max_tokens"] = json!(100_000);
    long.post(CHAT, &body).await;
    long.sees("data: ").await;
    drop(long);
    let all: u64 = expected.values().sum();
    let text = counted(&fleet.proxy, all as f64 + 1.0).await;
    let requests = samples(&text, "shearwater_requests_total");
    assert_eq!(sum(&requests, "end", "client_gone"), 1.0, "{requests:?}");
    let mut told: BTreeMap<String, u64> = BTreeMap::new();
    for one in requests.iter().filter(|one| one.labels["end"] != "client_gone") {
        *told.entry(format!("{} {}", one.labels["api"], one.labels["status"])).or_default() +=
            one.value as u64;
    }
    let expected: BTreeMap<String, u64> =
        expected.into_iter().map(|(name, times)| (name.to_owned(), times)).collect();
    assert_eq!(told, expected);
    fleet.proxy.idle().await;
    let (_, text) = fleet.proxy.admin("/metrics").await;
    for name in [
        "shearwater_backend_in_flight",
        "shearwater_backend_tokens",
        "shearwater_backend_uncached_tokens",
        "shearwater_requests_waiting",
    ] {
        let rest: f64 = samples(&text, name).iter().map(|one| one.value).sum();
        assert_eq!(rest, 0.0, "{name} is what is left when everybody has gone");
    }
}

#[tokio::test]
async fn what_was_predicted_is_what_the_engines_report() {
    let fleet = Fleet::of(2, Persona::Vllm, "").await;
    let (mut turns, mut prompt, mut cached) = (0, 0, 0);
    for number in 0..3 {
        let mut talk = Talk::new(fleet.proxy.listen, &prose(number, 6_000)).await;
        for turn in 0..4 {
            let turn = talk.say(&prose(number << 8 | turn, 800)).await;
            fleet.proxy.explained(&turn.reply).await;
            turns += 1;
            prompt += turn.prompt;
            cached += turn.cached;
        }
    }
    let text = counted(&fleet.proxy, f64::from(turns)).await;
    let total = |name: &str| samples(&text, name).iter().map(|one| one.value).sum::<f64>();
    assert_eq!(total("shearwater_cached_tokens_reported_total"), cached as f64);
    assert_eq!(total("shearwater_cached_tokens_of_total"), prompt as f64);
    let engines: u64 = fleet.alive().map(|engine| SimEngine::state(engine).cached_tokens).sum();
    assert_eq!(engines, cached, "the engines say the same");
    let predicted = total("shearwater_cached_tokens_predicted_total");
    assert!(
        (predicted - cached as f64).abs() < 0.1 * cached as f64,
        "{predicted} predicted, {cached} reported"
    );
    assert_eq!(total("shearwater_evictions_seen_total"), 0.0);
    let ratio = total("shearwater_cache_hit_ratio");
    assert!((ratio - cached as f64 / prompt as f64).abs() < 0.05, "{ratio}");
}

/// The same prompt, and then more of it, in each dialect.
fn growing(dialect: &str, turn: usize) -> Value {
    let role = |at: usize| if at.is_multiple_of(2) { "user" } else { "assistant" };
    let message = |at: usize| json!({ "role": role(at), "content": prose(at as u64, 3_000) });
    let said: Vec<Value> = (0..=2 * turn).map(message).collect();
    match dialect {
        "/v1/responses" => json!({ "model": "sim", "input": said }),
        "/v1/completions" => {
            let text: String = (0..=turn).map(|at| prose(at as u64, 3_000)).collect();
            json!({ "model": "sim", "prompt": text })
        }
        _ => json!({ "model": "sim", "max_tokens": 9, "messages": said }),
    }
}

#[tokio::test]
async fn tokens_are_read_alike_from_every_engine_in_every_dialect() {
    let dialects = ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"];
    for persona in [Persona::Vllm, Persona::Sglang, Persona::LlamaCpp] {
        for dialect in dialects {
            for streams in [false, true] {
                let fleet = Fleet::of(1, persona, "").await;
                for turn in 0..3 {
                    let mut body = growing(dialect, turn);
                    if streams {
                        body = streamed(body);
                        body["stream_options"] = json!({ "include_usage": true });
                    }
                    let reply = fleet.proxy.client().await.ask(dialect, &body).await;
                    assert_eq!(reply.status, 200, "{}", reply.text());
                    fleet.proxy.explained(&reply).await;
                }
                let text = counted(&fleet.proxy, 3.0).await;
                let total =
                    |name: &str| samples(&text, name).iter().map(|one| one.value).sum::<f64>();
                let told = total("shearwater_prompt_tokens_total");
                let cached = total("shearwater_cached_tokens_reported_total");
                let state = fleet.engine("b0").state();
                let true_figures = (state.prompt_tokens as f64, state.cached_tokens as f64);
                assert_eq!((told, cached), true_figures, "{persona} {dialect} {streams}");
                assert_eq!(
                    total("shearwater_evictions_seen_total"),
                    0.0,
                    "{persona} {dialect} {streams}"
                );
            }
        }
    }
}

#[tokio::test]
async fn the_dry_run_says_what_the_next_request_will_find() {
    let fleet = Fleet::of(4, Persona::Vllm, "").await;
    let mut client = fleet.proxy.client().await;
    for number in 0..6 {
        let mut talk = Talk::new(fleet.proxy.listen, &prose(number, 5_000)).await;
        let first = talk.say("hello").await;
        fleet.proxy.explained(&first.reply).await;
        let body = talk.body(&prose(90 + number, 500));
        let told = fleet.proxy.dry_run(CHAT, "", body.to_string().as_bytes()).await;
        let decision = &told["decision"];
        assert_eq!(
            (&decision["backend"], &decision["reason"]),
            (&json!(first.backend), &json!("conversation"))
        );
        let reply = client.ask(CHAT, &body).await;
        assert_eq!(reply.backend(), first.backend);
        let explained = fleet.proxy.explained(&reply).await;
        assert_eq!(explained["conversation"], told["conversation"]);
        for name in
            ["backend", "reason", "policy", "home", "overlap_blocks", "predicted_cached_tokens"]
        {
            assert_eq!(explained["decision"][name], decision[name], "{name}: {explained}\n{told}");
        }
        let reported = explained["cached_tokens"]["reported"].as_u64().expect("tokens");
        let predicted = explained["cached_tokens"]["predicted"].as_u64().expect("tokens");
        assert!(
            reported.abs_diff(predicted) * 10 < reported,
            "{predicted} predicted, {reported} reported"
        );
        let candidates = decision["candidates"].as_array().expect("a list");
        assert_eq!(candidates.len(), 4, "everybody is told of: {told}");
    }
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let fleet = Fleet::of(2, Persona::Vllm, "").await;
    let body = chat(&prose(1, 5_000)).to_string();
    let first = fleet.proxy.dry_run(CHAT, "", body.as_bytes()).await;
    for _ in 0..20 {
        fleet.proxy.dry_run(CHAT, "", body.as_bytes()).await;
    }
    let last = fleet.proxy.dry_run(CHAT, "", body.as_bytes()).await;
    assert_eq!(first, last);
    let all = fleet.proxy.admin_json("/admin/backends").await;
    for backend in all["backends"].as_array().expect("a list") {
        assert_eq!(
            (&backend["load"]["requests"], &backend["load"]["conversations"]),
            (&json!(0), &json!(0))
        );
    }
    let requests: u64 = fleet.alive().map(|engine| engine.state().requests).sum();
    assert_eq!(requests, 0, "nothing was sent");
}

#[tokio::test]
async fn a_dry_run_of_what_would_be_refused_says_with_what() {
    let fleet = Fleet::of(1, Persona::Vllm, "").await;
    let mut client = Client::connect(fleet.proxy.admin).await;
    for (body, status) in
        [(json!({ "model": "nobody's", "messages": [] }).to_string(), 404), ("{no".to_owned(), 400)]
    {
        client.post_with(&format!("/admin/explain?path={CHAT}"), "", body.as_bytes()).await;
        let reply = client.reply().await;
        assert_eq!(reply.status, status, "{}", reply.text());
        assert!(reply.json()["error"].is_string());
    }
}

#[tokio::test]
async fn the_number_a_client_is_told_is_the_number_in_logs_and_explanations() {
    let fleet = Fleet::of(1, Persona::Vllm, "").await;
    let reply = fleet.proxy.client().await.ask(CHAT, &chat("hello")).await;
    let explained = fleet.proxy.explained(&reply).await;
    // Whoever reports a problem quotes what the client was told, and whoever looks for it looks for that.
    assert_eq!(explained["request_id"].as_str(), reply.header("x-shearwater-request-id"));
}
