//! Conversations that keep their slot of a llama.cpp server: what they find there, and that no busy slot is ever named.

use loadgen::engine::{EngineOptions, Persona};
use serde_json::{Value, json};
use tests::harness::{Client, Fleet, engine};

use crate::said::{Talk, chat_stream, prose, streamed};

const PINNED: &str = "[routing]\npin_llamacpp_slots = true\n";
const SLOTS: usize = 4;
const TURNS: u64 = 4;

/// A server as the real one is: every slot keeps its own cache, and nothing of the others'.
fn server() -> EngineOptions {
    let mut options = engine(Persona::LlamaCpp);
    options.params.slots = SLOTS;
    options.params.slot_caches = true;
    options
}

/// As many conversations as there are slots, in turn, under one long system prompt. Returns how many follow-ups found
/// the whole of what was said before.
async fn found_again(settings: &str) -> (u64, u64) {
    let fleet = Fleet::start(vec![server()], settings).await;
    let mut talks = Vec::new();
    for number in 0..SLOTS as u64 {
        let mut talk = Talk::new(fleet.proxy.listen, &prose(1, 8_000)).await;
        let first = talk.say(&prose(100 + number, 4_000)).await;
        talks.push((talk, first.prompt));
    }
    let mut found = 0;
    for turn in 1..TURNS {
        for (number, (talk, before)) in talks.iter_mut().enumerate() {
            let said = talk.say(&prose(1_000 * turn + number as u64, 300)).await;
            found += u64::from(said.cached + 8 >= *before);
            *before = said.prompt;
        }
    }
    (found, fleet.engine("b0").state().named_busy)
}

#[tokio::test]
async fn follow_ups_find_their_prefix_in_the_slot_they_keep() {
    let all = (TURNS - 1) * SLOTS as u64;
    assert_eq!(found_again(PINNED).await, (all, 0));
    // Without, one system prompt pulls all of them into one slot.
    let (found, _) = found_again("").await;
    assert!(found < all / 2, "{found} of {all} found their prefix without pinning");
}

#[tokio::test]
async fn with_more_conversations_than_slots_the_ones_that_come_back_soon_keep_theirs() {
    let fleet = Fleet::start(vec![server()], PINNED).await;
    let mut lively = Talk::new(fleet.proxy.listen, &prose(1, 8_000)).await;
    let mut before = lively.say(&prose(2, 4_000)).await.prompt;
    for number in 0..3 * SLOTS as u64 {
        let mut other = Talk::new(fleet.proxy.listen, &prose(1, 8_000)).await;
        other.say(&prose(100 + number, 4_000)).await;
        let said = lively.say(&prose(200 + number, 300)).await;
        assert!(said.cached + 8 >= before, "turn {number}: {} of {before}", said.cached);
        before = said.prompt;
    }
    assert_eq!(fleet.engine("b0").state().named_busy, 0);
}

/// Whoever it is: chats and streams that end, streams that are left, messages, batches, clients that name slots.
async fn client(fleet_addr: std::net::SocketAddr, number: u64) {
    let mut rng = fastrand::Rng::with_seed(number);
    for turn in 0..12 {
        let mut client = Client::connect(fleet_addr).await;
        let text = prose(number * 100 + turn, 400);
        match rng.u8(0..12) {
            0 => {
                client.post("/v1/chat/completions", &chat_stream(&text)).await;
                client.sees("data:").await;
            }
            1 => client.post("/v1/chat/completions", &chat_stream(&text)).await,
            2 => {
                let messages = json!([{ "role": "user", "content": text }]);
                let body = json!({ "model": "sim", "max_tokens": 8, "messages": messages });
                client.ask("/v1/messages", &body).await;
            }
            3 => {
                let body = json!({ "model": "sim", "prompt": text, "id_slot": 1, "max_tokens": 4 });
                client.ask("/v1/completions", &body).await;
            }
            4..8 => {
                client.ask("/v1/chat/completions", &crate::said::chat(&text)).await;
            }
            _ => {
                let body = streamed(json!({ "model": "sim",
                    "messages": [{ "role": "user", "content": prose(number, 2_000) }] }));
                client.ask("/v1/chat/completions", &body).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_busy_slot_is_named_whatever_clients_do() {
    let fleet = Fleet::start(vec![server(), server()], PINNED).await;
    let clients: Vec<_> =
        (0..16).map(|number| tokio::spawn(client(fleet.proxy.listen, number))).collect();
    for client in clients {
        client.await.expect("it goes on to its end");
    }
    fleet.proxy.idle().await;
    let states: Vec<_> = fleet.alive().map(|engine| engine.state()).collect();
    assert!(states.iter().map(|state| state.named).sum::<u64>() > 4, "{states:?}");
    assert!(states.iter().all(|state| state.named_busy == 0), "{states:?}");
}

#[tokio::test]
async fn a_restarted_server_holds_nobodys_cache() {
    let mut fleet = Fleet::start(vec![server()], PINNED).await;
    let mut talk = Talk::new(fleet.proxy.listen, &prose(1, 4_000)).await;
    talk.say("first").await;
    let addr = fleet.kill("b0").await;
    fleet.proxy.believes("it is down", |all| all[0]["state"]["up"] == false).await;
    fleet.revive("b0", addr, server());
    let known = |all: &[Value]| {
        all[0]["state"]["up"] == true && all[0]["restarts"]["count"].as_u64() > Some(0)
    };
    fleet.proxy.believes("the new one is known", known).await;
    let said = talk.say("second").await;
    assert_eq!(said.cached, 0);
    let state = fleet.engine("b0").state();
    assert_eq!(state.named_busy, 0);
}
