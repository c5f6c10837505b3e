//! Every follow-up goes to the engine that holds its conversation, and that engine says so.

use std::collections::HashSet;

use loadgen::engine::Persona;
use tests::harness::Fleet;

use crate::said::{Talk, Turn, prose};

const CONVERSATIONS: u64 = 8;
const TURNS: u64 = 6;
/// Tokens of a block of the engines here, the least that is cached or not.
const BLOCK_TOKENS: u64 = 32;

/// Four engines behind a proxy of this policy.
async fn four(policy: &str) -> Fleet {
    Fleet::of(4, Persona::Vllm, &format!("[routing]\npolicy = \"{policy}\"\n")).await
}

/// One conversation, six turns long.
async fn talk(fleet: &Fleet, number: u64) -> impl Future<Output = Vec<Turn>> + use<> {
    let mut talk = Talk::new(fleet.proxy.listen, &prose(number, 2_000)).await;
    async move {
        let mut turns = vec![talk.say(&prose(100 + number, 12_000)).await];
        for turn in 1..TURNS {
            turns.push(talk.say(&prose(1_000 * number + turn, 600)).await);
        }
        turns
    }
}

/// Eight conversations at once.
async fn talked(policy: &str) -> Vec<Vec<Turn>> {
    let fleet = four(policy).await;
    let mut running = Vec::new();
    for number in 0..CONVERSATIONS {
        running.push(tokio::spawn(talk(&fleet, number).await));
    }
    let mut all = Vec::new();
    for talk in running {
        all.push(talk.await.expect("it goes on to its end"));
    }
    fleet.proxy.idle().await;
    all
}

/// Whether every turn after the first went where the first went, and found all of the turn before cached.
fn came_home(turns: &[Turn]) -> bool {
    turns.windows(2).all(|pair| {
        pair[1].backend == pair[0].backend && pair[1].cached + BLOCK_TOKENS >= pair[0].prompt
    })
}

fn told(all: &[Vec<Turn>]) -> String {
    let turn = |turn: &Turn| format!("{} {}/{}", turn.backend, turn.cached, turn.prompt);
    let talk = |turns: &Vec<Turn>| turns.iter().map(turn).collect::<Vec<_>>().join(", ");
    all.iter().map(talk).collect::<Vec<_>>().join("\n")
}

async fn everybody_comes_home(policy: &str) {
    let all = talked(policy).await;
    assert!(all.iter().all(|turns| came_home(turns)), "{policy}:\n{}", told(&all));
    let used: HashSet<&str> = all.iter().map(|turns| turns[0].backend.as_str()).collect();
    assert!(used.len() > 1, "all of them on one engine prove nothing:\n{}", told(&all));
}

#[tokio::test]
async fn every_follow_up_goes_home_by_default() {
    everybody_comes_home("cost").await;
}

#[tokio::test]
async fn every_follow_up_goes_home_by_session() {
    everybody_comes_home("session").await;
}

#[tokio::test]
async fn every_follow_up_goes_home_by_prefix() {
    everybody_comes_home("prefix").await;
}

#[tokio::test]
async fn in_turn_nobody_comes_home() {
    let fleet = four("round_robin").await;
    let mut all = Vec::new();
    // One after the other: eight at once keep step on a busy machine, and a multiple of four that keep step come home
    // every time.
    for number in 0..CONVERSATIONS {
        all.push(talk(&fleet, number).await.await);
    }
    let home = all.iter().filter(|turns| came_home(turns)).count();
    assert_eq!(home, 0, "{}", told(&all));
}

#[tokio::test]
async fn a_moved_conversation_is_noticed_and_learned() {
    let fleet = Fleet::of(2, Persona::Vllm, "").await;
    let mut talk = Talk::new(fleet.proxy.listen, &prose(1, 4_000)).await;
    let first = talk.say(&prose(2, 4_000)).await;
    // The engine forgets, and says nothing of it.
    fleet.engine(&first.backend).forget_cache();
    let second = talk.say("and then?").await;
    assert_eq!((second.backend.as_str(), second.cached), (first.backend.as_str(), 0));
    let explained = fleet.proxy.explained(&second.reply).await;
    assert!(explained["cached_tokens"]["predicted"].as_u64() > Some(1_000), "{explained}");
    assert_eq!(explained["cached_tokens"]["reported"], 0);
    // It was counted, and the whole prompt is known to be there again.
    let (_, metrics) = fleet.proxy.admin("/metrics").await;
    let counted = format!("shearwater_evictions_seen_total{{backend=\"{}\"}} 1", first.backend);
    assert!(metrics.contains(&counted), "{counted} is not in {metrics}");
    let third = talk.say("and after that?").await;
    assert_eq!(third.backend, first.backend);
    assert!(third.cached + BLOCK_TOKENS >= second.prompt, "{}/{}", third.cached, second.prompt);
}
