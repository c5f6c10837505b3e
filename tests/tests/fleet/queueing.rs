//! Who is served first when room comes free, and that nobody stands behind those who could not use it.

use loadgen::engine::{EngineOptions, Persona, ReplyLength};
use serde_json::{Value, json};
use tests::harness::{Client, Fleet, Reply, engine, eventually};

use crate::said::{Talk, chat, chat_stream, prose};

const CHAT: &str = "/v1/chat/completions";

/// Replies last until the client has had enough, if it asks for no limit.
fn endless() -> EngineOptions {
    let mut options = EngineOptions { reply: ReplyLength::fixed(100_000), ..engine(Persona::Vllm) };
    options.params.decode_tps = 200.0;
    options
}

/// Takes a place on the backend of this model and keeps it until dropped.
async fn occupy(fleet: &Fleet, model: &str) -> Client {
    let mut client = fleet.proxy.client().await;
    let mut body = chat_stream("a very long story");
    body["model"] = json!(model);
    client.post(CHAT, &body).await;
    client.sees("data: ").await;
    client
}

/// Sends a request that has to wait, and returns when it does.
async fn waits(fleet: &Fleet, body: &Value) -> Client {
    let before = fleet.proxy.waiting();
    let mut client = fleet.proxy.client().await;
    client.post(CHAT, body).await;
    eventually("it waits", || fleet.proxy.waiting() == before + 1).await;
    client
}

/// A request that ends soon.
fn short(mut body: Value) -> Value {
    body["max_tokens"] = json!(5);
    body
}

/// Reads all replies, and says in which order they came.
async fn order(clients: Vec<(&'static str, Client)>) -> Vec<&'static str> {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    for (name, mut client) in clients {
        let tell = tell.clone();
        tokio::spawn(async move {
            let reply: Reply = client.reply().await;
            assert_eq!(reply.status, 200, "{name}: {}", reply.text());
            let _ = tell.send(name);
        });
    }
    drop(tell);
    let mut order = Vec::new();
    while let Some(name) = told.recv().await {
        order.push(name);
    }
    order
}

#[tokio::test]
async fn a_small_prompt_does_not_stand_behind_a_giant() {
    let fleet = Fleet::limited(vec![endless()], "shards = 1\n", "slots = 1").await;
    let first = occupy(&fleet, "sim").await;
    let giant = waits(&fleet, &short(chat(&prose(1, 200_000)))).await;
    let small = waits(&fleet, &short(chat(&prose(2, 2_000)))).await;
    drop(first);
    assert_eq!(order(vec![("giant", giant), ("small", small)]).await, ["small", "giant"]);
}

#[tokio::test]
async fn a_follow_up_whose_long_prompt_is_cached_does_not_stand_behind_a_new_one() {
    let fleet = Fleet::limited(vec![endless()], "shards = 1\n", "slots = 1").await;
    // A long conversation that lives there already.
    let mut talk = Talk::limited(fleet.proxy.listen, &prose(1, 100_000), 5).await;
    let turn = talk.say("hello").await;
    fleet.proxy.explained(&turn.reply).await;
    fleet.proxy.idle().await;
    let first = occupy(&fleet, "sim").await;
    let new = waits(&fleet, &short(chat(&prose(2, 40_000)))).await;
    let follow_up = waits(&fleet, &talk.body("and then?")).await;
    drop(first);
    // 100 KB of it are there; the 40 KB of the other are not.
    assert_eq!(order(vec![("new", new), ("follow-up", follow_up)]).await, ["follow-up", "new"]);
}

#[tokio::test]
async fn a_giant_does_not_wait_for_ever_behind_small_ones() {
    let fleet = Fleet::limited(vec![endless()], "shards = 1\n", "slots = 1").await;
    let first = occupy(&fleet, "sim").await;
    // 2,000 tokens: older than the small ones by two seconds, it comes before them.
    let giant = waits(&fleet, &short(chat(&prose(1, 8_000)))).await;
    let mut waiting = vec![("giant", giant)];
    tokio::time::sleep(std::time::Duration::from_millis(2_200)).await;
    for number in 2..6 {
        waiting.push(("small", waits(&fleet, &short(chat(&prose(number, 400)))).await));
    }
    drop(first);
    assert_eq!(order(waiting).await[0], "giant");
}

#[tokio::test]
async fn those_who_wait_for_a_full_model_hold_up_nobody_who_wants_another() {
    let serving = |model: &str| EngineOptions { model: model.to_owned(), ..endless() };
    let engines = vec![serving("alpha"), serving("beta")];
    let fleet = Fleet::limited(engines, "shards = 1\n", "slots = 1").await;
    let _alpha = occupy(&fleet, "alpha").await;
    let beta = occupy(&fleet, "beta").await;
    let asking = |model: &str, number: u64, bytes: usize| {
        let mut body = short(chat(&prose(number, bytes)));
        body["model"] = json!(model);
        body
    };
    // Smaller than the one that matters, so all of them come before it.
    let mut crowd = Vec::new();
    for number in 0..20 {
        crowd.push(waits(&fleet, &asking("alpha", number, 300)).await);
    }
    let mut patient = waits(&fleet, &asking("beta", 99, 3_000)).await;
    drop(beta);
    let reply = patient.reply().await;
    assert_eq!((reply.status, reply.backend()), (200, "b1"), "{}", reply.text());
    assert_eq!(fleet.proxy.waiting(), crowd.len(), "alpha is as full as before");
}

#[tokio::test]
async fn a_tenant_with_many_waiting_does_not_starve_one_with_two() {
    let by_tenant = "shards = 1\n[routing]\ntenant_header = \"x-tenant\"\n";
    let fleet = Fleet::limited(vec![endless()], by_tenant, "slots = 1").await;
    let first = occupy(&fleet, "sim").await;
    let mut waiting = Vec::new();
    for number in 0..102 {
        let name = if number < 100 { "many" } else { "few" };
        let body = short(chat(&prose(number, 400))).to_string();
        let mut client = fleet.proxy.client().await;
        client.post_with(CHAT, &format!("X-Tenant: {name}\r\n"), body.as_bytes()).await;
        eventually("it waits", || fleet.proxy.waiting() == number as usize + 1).await;
        waiting.push((name, client));
    }
    drop(first);
    let order = order(waiting).await;
    let last_of_few = order.iter().rposition(|name| *name == "few").expect("both were served");
    // The two came last, and are served in turn with the others; a release on the way may call one more in between.
    assert!(last_of_few < 10, "{last_of_few} were served before");
}

#[tokio::test]
async fn whoever_leaves_while_waiting_is_not_served_and_leaves_no_trace() {
    let fleet = Fleet::limited(vec![endless()], "shards = 1\n", "slots = 1").await;
    let first = occupy(&fleet, "sim").await;
    let gone = waits(&fleet, &short(chat("I will not wait"))).await;
    let stays = waits(&fleet, &short(chat(&prose(1, 4_000)))).await;
    drop(gone);
    eventually("its place is free", || fleet.proxy.waiting() == 1).await;
    drop(first);
    assert_eq!(order(vec![("stays", stays)]).await, ["stays"]);
    fleet.proxy.idle().await;
    assert_eq!(fleet.engine("b0").state().requests, 2, "the one that left was never sent");
}
