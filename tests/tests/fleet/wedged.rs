//! An engine that takes requests and computes nothing is found out by its silence; one that is busy with a long prefill is
//! left in peace.

use loadgen::engine::{EngineOptions, Faults, Persona};
use serde_json::{Value, json};
use tests::harness::{Client, Fleet, engine, eventually, settled};

use crate::said::{chat, prose, streamed};

const CHAT: &str = "/v1/chat/completions";
const SETTINGS: &str = "[health]\ninterval_ms = 100\nscrape_interval_ms = 100\n\
    wedged_after_ms = 400\n[log]\naccess = \"off\"\nlevel = \"warn\"\n\
    [routing]\npolicy = \"round_robin\"\n";

async fn breaker(fleet: &Fleet) -> Value {
    fleet.proxy.admin_json("/admin/backends").await["backends"][0]["state"]["breaker"].clone()
}

/// Sends so many requests, half of them streamed.
async fn sent(fleet: &Fleet, count: u64, bytes: usize) -> Vec<Client> {
    let mut clients = Vec::new();
    for number in 0..count {
        let body = chat(&prose(number, bytes));
        let mut client = fleet.proxy.client().await;
        client.post(CHAT, &if number % 2 == 0 { body } else { streamed(body) }).await;
        clients.push(client);
    }
    clients
}

/// Requests stand before an engine that has stopped computing; the other one serves them in the end.
async fn found_out(persona: Persona) {
    let fleet = Fleet::of(2, persona, SETTINGS).await;
    // Replies that show what pace is honest here.
    for mut client in sent(&fleet, 12, 8_000).await {
        assert_eq!(client.reply().await.status, 200);
    }
    fleet.engine("b0").set_faults(Faults { wedge: true, ..Faults::default() });
    let clients = sent(&fleet, 8, 2_000).await;
    for mut client in clients {
        let reply = client.reply().await;
        assert_eq!((reply.status, reply.backend(), reply.complete), (200, "b1", true), "{persona}");
    }
    let opened = breaker(&fleet).await;
    assert!(opened["opened"].as_u64() >= Some(1), "{persona}: {opened}");
    let reason = opened["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("it is wedged") && reason.contains("computes nothing"), "{opened}");
    let (_, journal) = fleet.proxy.admin("/admin/journal").await;
    assert!(journal.contains("it is wedged"), "{journal}");
    assert!(fleet.proxy.admits(1), "the other one has done nothing wrong");
    // It computes again, and whoever tries it is served.
    fleet.engine("b0").set_faults(Faults::default());
    settled("trials take it in again", async || {
        let _ = fleet.proxy.client().await.ask(CHAT, &chat("and now?")).await;
        (breaker(&fleet).await["state"] == "closed").then_some(())
    })
    .await;
    settled("the reason is taken back", async || {
        breaker(&fleet).await["reason"].is_null().then_some(())
    })
    .await;
    fleet.proxy.idle().await;
}

#[tokio::test]
async fn a_vllm_that_computes_nothing_is_found_out_and_its_requests_are_served_elsewhere() {
    found_out(Persona::Vllm).await;
}

#[tokio::test]
async fn a_llamacpp_that_computes_nothing_is_found_out_and_its_requests_are_served_elsewhere() {
    found_out(Persona::LlamaCpp).await;
}

#[tokio::test]
async fn an_sglang_that_computes_nothing_is_found_out_and_its_requests_are_served_elsewhere() {
    found_out(Persona::Sglang).await;
}

/// An engine that prefills so many tokens a second.
fn slow(prefill_tps: f64) -> EngineOptions {
    let mut options = engine(Persona::Vllm);
    options.params.prefill_tps = prefill_tps;
    options
}

#[tokio::test]
async fn several_huge_prompts_on_a_slow_engine_are_no_wedge() {
    let fleet = Fleet::start(vec![slow(4_000.0)], SETTINGS).await;
    // 2,000 tokens each, one after the other: seconds in which most have not a byte.
    for mut client in sent(&fleet, 5, 8_000).await {
        assert_eq!(client.reply().await.status, 200);
    }
    assert_eq!(breaker(&fleet).await["opened"], 0);
}

#[tokio::test]
async fn a_single_prefill_that_takes_far_longer_than_any_before_is_no_wedge() {
    let fleet = Fleet::start(vec![slow(100_000.0)], SETTINGS).await;
    for mut client in sent(&fleet, 6, 8_000).await {
        assert_eq!(client.reply().await.status, 200);
    }
    fleet.engine("b0").patch_faults(&json!({ "slow_factor": 100.0 })).expect("a fault");
    let mut client = fleet.proxy.client().await;
    client.post(CHAT, &chat(&prose(99, 8_000))).await;
    eventually("it is there", || fleet.proxy.in_flight(0) == 1).await;
    assert_eq!(client.reply().await.status, 200);
    assert_eq!(breaker(&fleet).await["opened"], 0);
}
