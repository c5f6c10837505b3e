//! Clients that leave a llama.cpp server before it has answered: it may work on for nobody, and until it is seen to be done
//! its place and its slot are nobody else's.

use loadgen::engine::{EngineOptions, Persona, ReplyLength};
use serde_json::json;
use tests::harness::{Client, Fleet, engine, eventually, settled};

use crate::said::{chat, prose};

const PINNED: &str = "[routing]\npin_llamacpp_slots = true\n";
const CHAT: &str = "/v1/chat/completions";

/// One slot, and replies that take three seconds, whoever waits for them.
fn server(works_for_nobody: bool) -> EngineOptions {
    let mut options = engine(Persona::LlamaCpp);
    options.params.slots = 1;
    options.params.slot_caches = true;
    options.params.decode_tps = 100.0;
    EngineOptions { reply: ReplyLength::fixed(300), works_for_nobody, ..options }
}

/// A client asks for a whole reply and leaves as soon as the engine is at work.
async fn asks_and_leaves(fleet: &Fleet) {
    let mut client = Client::connect(fleet.proxy.listen).await;
    client.post(CHAT, &chat(&prose(1, 400))).await;
    eventually("the engine is at work", || fleet.engine("b0").state().running == 1).await;
    drop(client);
}

#[tokio::test]
async fn the_place_of_a_reply_that_nobody_waits_for_stays_taken_until_the_engine_is_done() {
    for settings in ["", PINNED] {
        let fleet = Fleet::start(vec![server(true)], settings).await;
        asks_and_leaves(&fleet).await;
        // It is short, and would be served inside the engine behind what nobody waits for.
        let mut next = Client::connect(fleet.proxy.listen).await;
        let body = json!({ "model": "sim", "max_tokens": 4,
            "messages": [{ "role": "user", "content": "next" }] });
        next.post(CHAT, &body).await;
        eventually("it waits", || fleet.proxy.waiting() == 1).await;
        while fleet.engine("b0").state().running == 1 && fleet.proxy.waiting() == 1 {
            assert_eq!(fleet.proxy.in_flight(0), 1);
            tokio::task::yield_now().await;
        }
        assert_eq!(fleet.engine("b0").state().running, 0, "the next went while it was at work");
        let reply = next.reply().await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(fleet.engine("b0").state().named_busy, 0);
        fleet.proxy.idle().await;
    }
}

#[tokio::test]
async fn an_engine_that_notices_gets_its_next_request_soon() {
    let fleet = Fleet::start(vec![server(false)], "").await;
    asks_and_leaves(&fleet).await;
    let left = tokio::time::Instant::now();
    settled("the place comes back", async || (fleet.proxy.in_flight(0) == 0).then_some(())).await;
    assert!(left.elapsed() < std::time::Duration::from_millis(2_600), "{:?}", left.elapsed());
}

#[tokio::test]
async fn whoever_leaves_another_engine_leaves_nothing_behind() {
    let mut options = engine(Persona::Vllm);
    options.params.decode_tps = 100.0;
    let options = EngineOptions { reply: ReplyLength::fixed(300), ..options };
    let fleet = Fleet::start(vec![options], "").await;
    asks_and_leaves(&fleet).await;
    let left = tokio::time::Instant::now();
    settled("the place comes back", async || (fleet.proxy.in_flight(0) == 0).then_some(())).await;
    assert!(left.elapsed() < std::time::Duration::from_millis(500), "{:?}", left.elapsed());
}
