//! What operators do to single backends: draining one loses nothing, switching one off holds whatever becomes of its
//! engine, and enabling brings it back.

use loadgen::engine::{EngineOptions, Persona, ReplyLength};
use serde_json::Value;
use tests::harness::fleet::number_of;
use tests::harness::{Client, Fleet, engine, eventually, settled};

use crate::said::{Talk, chat, chat_stream, prose};

const CHAT: &str = "/v1/chat/completions";

/// An engine whose replies last about so long.
fn slow(reply_ms: u32) -> EngineOptions {
    let mut options = engine(Persona::Vllm);
    options.params.decode_tps = 100.0;
    options.reply = ReplyLength::fixed(reply_ms / 10);
    options
}

/// Turns a switch; returns the status and the answer.
async fn turn(fleet: &Fleet, name: &str, what: &str) -> (u16, Value) {
    let mut operator = Client::connect(fleet.proxy.admin).await;
    operator.post_with(&format!("/admin/backends/{name}/{what}"), "", b"").await;
    let reply = operator.reply().await;
    (reply.status, serde_json::from_slice(&reply.body).unwrap_or_default())
}

/// Who answers a new chat.
async fn answers(fleet: &Fleet) -> String {
    let reply = fleet.proxy.client().await.ask(CHAT, &chat(&prose(fastrand::u64(..), 300))).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.backend().to_owned()
}

/// What the admin address says an operator made of a backend.
async fn switch_of(fleet: &Fleet, number: usize) -> Value {
    let all = fleet.proxy.admin_json("/admin/backends").await;
    all["backends"][number]["state"]["operator"].clone()
}

#[tokio::test]
async fn draining_one_of_two_under_streams_loses_none_and_enabling_brings_it_back() {
    let settings = "[routing]\npolicy = \"round_robin\"\n";
    let fleet = Fleet::start(vec![slow(4_000), slow(4_000)], settings).await;
    let mut streams = Vec::new();
    for number in 0..6 {
        streams.push(streaming(&fleet, number).await);
    }
    // Each shard takes turns by itself, so that the two need not have three each.
    let (drained, other) = if fleet.proxy.in_flight(0) >= 3 { (0, 1) } else { (1, 0) };
    let name = format!("b{drained}");
    let running = fleet.proxy.in_flight(drained);
    let (status, told) = turn(&fleet, &name, "drain").await;
    assert_eq!((status, &told["switch"]), (200, &"draining".into()));
    assert_eq!(told["left"], running, "nothing was cut");
    assert_eq!(switch_of(&fleet, drained).await["left"], running);
    let before = fleet.proxy.in_flight(other);
    for number in 6..10 {
        streams.push(streaming(&fleet, number).await);
    }
    let now = (fleet.proxy.in_flight(drained), fleet.proxy.in_flight(other));
    assert_eq!(now, (running, before + 4), "new ones go elsewhere");
    for mut client in streams {
        let reply = client.reply().await;
        assert!(reply.complete && reply.text().contains("data: [DONE]"), "{}", reply.text());
    }
    settled("it is drained", async || {
        (switch_of(&fleet, drained).await["switch"] == "drained").then_some(())
    })
    .await;
    assert_eq!(fleet.engine(&name).state().finished, u64::from(running), "all came to their end");
    let metrics = fleet.proxy.admin("/metrics").await.1;
    let line = format!("shearwater_backend_enabled{{backend=\"{name}\"}} 0\n");
    assert!(metrics.contains(&line), "{metrics}");
    assert_eq!(turn(&fleet, &name, "enable").await.1["switch"], "enabled");
    settled("it serves again", async || (answers(&fleet).await == name).then_some(())).await;
}

/// A stream under way.
async fn streaming(fleet: &Fleet, number: u64) -> Client {
    let mut client = fleet.proxy.client().await;
    client.post(CHAT, &chat_stream(&prose(number, 300))).await;
    client.sees("data: ").await;
    client
}

#[tokio::test]
async fn a_conversation_whose_home_is_drained_moves_and_its_decision_says_why() {
    let fleet = Fleet::of(3, Persona::Vllm, "").await;
    let mut talk = Talk::new(fleet.proxy.listen, &prose(1, 2_000)).await;
    let home = talk.say("where do you live?").await.backend;
    assert_eq!(talk.say("and now?").await.backend, home);
    turn(&fleet, &home, "drain").await;
    let moved = talk.say("still there?").await;
    assert_ne!(moved.backend, home);
    let why = &fleet.proxy.explained(&moved.reply).await["decision"];
    assert_eq!((&why["reason"], &why["home"]), (&"rehomed".into(), &home.as_str().into()), "{why}");
    let refused = &why["refused"];
    assert_eq!((&refused["disabled"], &refused["breaker_open"]), (&1.into(), &0.into()), "{why}");
    assert_eq!(talk.say("at home?").await.backend, moved.backend, "it lives there now");
}

#[tokio::test]
async fn an_operators_switch_holds_whatever_becomes_of_the_engine() {
    let mut fleet = Fleet::of(2, Persona::Vllm, "").await;
    assert_eq!(turn(&fleet, "b1", "disable").await.1["changed"], true);
    assert_eq!(turn(&fleet, "b1", "disable").await.1["changed"], false, "once is enough");
    let up = async |fleet: &Fleet| {
        let all = fleet.proxy.admin_json("/admin/backends").await;
        all["backends"][1]["state"]["up"].as_bool()
    };
    let listen = fleet.kill("b1").await;
    settled("its death is noticed", async || (up(&fleet).await == Some(false)).then_some(())).await;
    fleet.revive("b1", listen, engine(Persona::Vllm));
    settled("so is its return", async || (up(&fleet).await == Some(true)).then_some(())).await;
    assert!(!fleet.proxy.admits(1), "a good probe is no operator");
    for _ in 0..4 {
        assert_eq!(answers(&fleet).await, "b0");
    }
    turn(&fleet, "b1", "enable").await;
    eventually("it admits at once", || fleet.proxy.admits(1)).await;
}

#[tokio::test]
async fn with_every_backend_drained_callers_are_told_and_models_are_not_unknown() {
    let fleet = Fleet::of(1, Persona::Vllm, "").await;
    turn(&fleet, "b0", "drain").await;
    let reply = fleet.proxy.client().await.ask(CHAT, &chat("anybody?")).await;
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert_eq!(reply.json()["error"]["code"], "no_healthy_backend");
    settled("balancers are told, too", async || {
        (fleet.proxy.admin("/readyz").await.0 == 503).then_some(())
    })
    .await;
}

#[tokio::test]
async fn unknown_names_are_404_and_other_methods_405() {
    let fleet = Fleet::of(1, Persona::Vllm, "").await;
    assert_eq!(turn(&fleet, "nobody", "drain").await.0, 404);
    assert_eq!(turn(&fleet, "b0", "explode").await.0, 404);
    for what in ["drain", "enable", "disable"] {
        assert_eq!(fleet.proxy.admin(&format!("/admin/backends/b0/{what}")).await.0, 405);
    }
    assert!(fleet.proxy.admits(number_of("b0")), "none of that did anything");
}
