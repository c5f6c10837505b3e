//! A long prompt waits for its turn at an engine that prefills another one, and shorter ones go first. While it is
//! prefilled it gives way to conversations that come home there.

use loadgen::engine::{EngineOptions, Persona, SimEngine};
use tests::harness::{Client, Fleet, engine, eventually};

use crate::said::{Talk, chat_stream, prose, streamed};

const CHAT: &str = "/v1/chat/completions";

/// Takes more than a second to prefill where nobody is ahead.
fn long(seed: u64) -> String {
    prose(seed, 24_000)
}

fn slow(persona: Persona) -> EngineOptions {
    let mut options = engine(persona);
    options.params.prefill_tps = 4_000.0;
    options
}

/// One engine that has shown how fast it prefills.
async fn fleet(persona: Persona, settings: &str, lines: &str, ranks: u64) -> Fleet {
    let fleet = Fleet::limited(vec![slow(persona)], settings, lines).await;
    fleet.proxy.believes("its ranks are known", |all| all[0]["limits"]["ranks"] == ranks).await;
    let reply = fleet.proxy.client().await.ask(CHAT, &chat_stream(&long(1))).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    fleet.proxy.idle().await;
    fleet
}

async fn sent(fleet: &Fleet, text: &str) -> Client {
    let mut client = fleet.proxy.client().await;
    let mut body = chat_stream(text);
    body["stream_options"] = serde_json::json!({ "include_usage": true });
    client.post(CHAT, &body).await;
    client
}

#[tokio::test]
async fn a_long_prompt_waits_while_another_is_prefilled_and_a_short_one_goes_first() {
    let fleet = fleet(Persona::Vllm, "", "", 1).await;
    let mut first = sent(&fleet, &long(2)).await;
    eventually("the first is there", || fleet.proxy.in_flight(0) == 1).await;
    let mut second = sent(&fleet, &long(3)).await;
    eventually("the second waits", || fleet.proxy.waiting() == 1).await;
    let mut short = sent(&fleet, "a short question").await;
    eventually("the short one went first", || {
        (fleet.proxy.in_flight(0), fleet.proxy.waiting()) == (2, 1)
    })
    .await;
    let (first, short, second) = (first.reply().await, short.reply().await, second.reply().await);
    for (reply, waited) in [(first, false), (short, false), (second, true)] {
        assert_eq!(reply.status, 200, "{}", reply.text());
        let waited_ms = fleet.proxy.explained(&reply).await["waited_ms"].as_u64();
        assert_eq!(waited_ms > Some(0), waited, "{waited_ms:?}");
    }
    fleet.proxy.idle().await;
}

#[tokio::test]
async fn an_engine_that_does_not_tell_its_ranks_has_those_of_the_configuration() {
    let fleet = fleet(Persona::OpenAi, "", "ranks = 1", 1).await;
    let mut first = sent(&fleet, &long(2)).await;
    eventually("the first is there", || fleet.proxy.in_flight(0) == 1).await;
    let mut second = sent(&fleet, &long(3)).await;
    eventually("the second waits", || fleet.proxy.waiting() == 1).await;
    for reply in [first.reply().await, second.reply().await] {
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
}

/// Both are with the engine before either has its first token.
async fn nobody_waits(settings: &str, lines: &str, ranks: u64) {
    let fleet = fleet(Persona::Vllm, settings, lines, ranks).await;
    let mut first = sent(&fleet, &long(2)).await;
    eventually("the first is there", || fleet.proxy.in_flight(0) == 1).await;
    let mut second = sent(&fleet, &long(3)).await;
    eventually("the second is there", || fleet.proxy.in_flight(0) == 2).await;
    assert!(!first.received().contains("data: "), "too late to show anything");
    for reply in [first.reply().await, second.reply().await] {
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
}

#[tokio::test]
async fn nobody_waits_where_prompts_are_prefilled_side_by_side() {
    nobody_waits("", "ranks = 2", 2).await;
}

#[tokio::test]
async fn nobody_waits_where_that_is_switched_off() {
    nobody_waits("[routing]\nturn_wait_ms = 0\n", "", 1).await;
}

#[tokio::test]
async fn who_has_no_room_to_wait_in_stands_in_line_at_the_engine() {
    nobody_waits("[routing]\nqueue_max = 0\n", "", 1).await;
}

#[tokio::test]
async fn who_waited_long_enough_stands_in_line_at_the_engine() {
    nobody_waits("[routing]\nturn_wait_ms = 50\n", "", 1).await;
}

/// A conversation that lives at the engine, with some of its history there.
async fn talk(fleet: &Fleet) -> Talk {
    let mut talk = Talk::new(fleet.proxy.listen, &prose(7, 8_000)).await;
    talk.say("the first question").await;
    fleet.proxy.idle().await;
    talk
}

#[tokio::test]
async fn a_long_prompt_gives_way_to_a_conversation_that_comes_home_and_is_sent_again() {
    let fleet = fleet(Persona::Vllm, "", "", 1).await;
    let mut talk = talk(&fleet).await;
    let mut first = sent(&fleet, &long(2)).await;
    eventually("the long one is there", || fleet.proxy.in_flight(0) == 1).await;
    let home = talk.say("the second question").await;
    assert!(!first.received().contains("data: "), "the conversation waited for the long one");
    assert_eq!(fleet.proxy.explained(&home.reply).await["decision"]["asks_way"], true);
    let reply = first.reply().await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert!(reply.text().contains("[DONE]"), "{}", reply.text());
    let explained = fleet.proxy.explained(&reply).await;
    assert_eq!((&explained["gave_way"], &explained["attempts"]), (&1.into(), &1.into()));
    let found = explained["cached_tokens"]["reported"].as_u64();
    assert!(found > Some(0), "the engine has what it computed of it: {explained}");
    assert_eq!(fleet.proxy.metric("shearwater_gave_way_total").await, 1);
    assert_eq!(fleet.proxy.metric("shearwater_retries_total").await, 0);
    fleet.proxy.idle().await;
}

#[tokio::test]
async fn who_gave_way_as_often_as_it_may_is_prefilled_before_whoever_comes() {
    let fleet = fleet(Persona::Vllm, "[routing]\ngive_way_max = 2\n", "", 1).await;
    let mut talk = talk(&fleet).await;
    let mut first = sent(&fleet, &long(2)).await;
    eventually("the long one is there", || fleet.proxy.in_flight(0) == 1).await;
    for text in ["the second", "the third", "the fourth"] {
        talk.say(text).await;
    }
    let reply = first.reply().await;
    let explained = fleet.proxy.explained(&reply).await;
    assert_eq!(explained["gave_way"], 2, "{explained}");
}

#[tokio::test]
async fn a_long_prompt_gives_way_also_while_its_client_is_to_be_kept_alive() {
    let fleet = fleet(Persona::Vllm, "[stream]\nkeepalive_ms = 5000\n", "", 1).await;
    let mut talk = talk(&fleet).await;
    let mut first = sent(&fleet, &long(2)).await;
    eventually("the long one is there", || fleet.proxy.in_flight(0) == 1).await;
    talk.say("the second question").await;
    assert!(!first.received().contains("data: "), "the conversation waited for the long one");
    let reply = first.reply().await;
    assert_eq!(fleet.proxy.explained(&reply).await["gave_way"], 1);
}

#[tokio::test]
async fn one_that_was_wrongly_believed_cached_gives_way_once_it_is_late() {
    let fleet = fleet(Persona::Vllm, "", "", 1).await;
    let text = prose(2, 96_000);
    sent(&fleet, &text).await.reply().await;
    fleet.proxy.idle().await;
    fleet.alive().for_each(SimEngine::forget_cache);
    let mut talk = talk(&fleet).await;
    let mut late = sent(&fleet, &text).await;
    fleet
        .proxy
        .believes("it is late", |all| all[0]["load"]["uncached_tokens"].as_u64() > Some(4_000))
        .await;
    talk.say("the second question").await;
    assert!(!late.received().contains("data: "), "the conversation waited for the late one");
    let reply = late.reply().await;
    let explained = fleet.proxy.explained(&reply).await;
    assert_eq!(explained["gave_way"], 1, "{explained}");
    assert!(explained["decision"]["predicted_uncached_tokens"].as_u64() < Some(1_000));
    fleet.proxy.idle().await;
}

/// The conversation waits until the long prompt has its first token.
async fn nobody_gives_way(persona: Persona, settings: &str, lines: &str, ranks: u64) {
    let fleet = fleet(persona, settings, lines, ranks).await;
    let mut talk = talk(&fleet).await;
    let mut first = sent(&fleet, &long(2)).await;
    eventually("the long one is there", || fleet.proxy.in_flight(0) == 1).await;
    talk.say("the second question").await;
    let reply = first.reply().await;
    assert_eq!(fleet.proxy.explained(&reply).await["gave_way"], 0);
    assert_eq!(fleet.proxy.metric("shearwater_gave_way_total").await, 0);
}

#[tokio::test]
async fn nobody_gives_way_where_that_is_switched_off() {
    nobody_gives_way(Persona::Vllm, "[routing]\ngive_way_max = 0\n", "", 1).await;
}

#[tokio::test]
async fn nobody_gives_way_at_an_engine_that_works_on_for_clients_that_left() {
    nobody_gives_way(Persona::LlamaCpp, "", "", 1).await;
}

#[tokio::test]
async fn nobody_gives_way_where_prompts_are_prefilled_side_by_side() {
    nobody_gives_way(Persona::Vllm, "", "ranks = 2", 2).await;
}

#[tokio::test]
async fn what_an_engine_keeps_the_state_of_gives_way_to_nobody() {
    let fleet = fleet(Persona::Vllm, "", "", 1).await;
    let mut talk = talk(&fleet).await;
    let mut first = fleet.proxy.client().await;
    let body = serde_json::json!({ "model": "sim", "input": long(2), "store": true });
    first.post("/v1/responses", &streamed(body)).await;
    eventually("the long one is there", || fleet.proxy.in_flight(0) == 1).await;
    talk.say("the second question").await;
    let reply = first.reply().await;
    assert_eq!(fleet.proxy.explained(&reply).await["gave_way"], 0);
}
