//! Engines that break their promises about connections cost nobody a request.

use loadgen::engine::{EngineOptions, Persona, text_hash};
use tests::harness::{Fleet, Proxy, engine, settled};

use crate::said::{chat, chat_stream, prose};

/// Sends so many chats over a few connections, `clients` at a time, and counts those that were not answered whole.
async fn failures(proxy: &Proxy, clients: u64, each: u64, streams: bool) -> Vec<String> {
    let mut running = Vec::new();
    for number in 0..clients {
        let mut client = proxy.client().await;
        running.push(tokio::spawn(async move {
            let mut failed = Vec::new();
            for turn in 0..each {
                let text = prose(number << 16 | turn, 200);
                let body = if streams { chat_stream(&text) } else { chat(&text) };
                let reply = client.ask("/v1/chat/completions", &body).await;
                let told = reply.text();
                let whole = match streams {
                    true => told.contains("data: [DONE]"),
                    false => text_hash(
                        reply.json()["choices"][0]["message"]["content"]
                            .as_str()
                            .unwrap_or_default(),
                    )
                    .is_some(),
                };
                if reply.status != 200 || !reply.complete || !whole {
                    failed.push(format!("{}: {told}", reply.status));
                }
            }
            failed
        }));
    }
    let mut all = Vec::new();
    for client in running {
        all.extend(client.await.expect("it goes on to its end"));
    }
    all
}

#[tokio::test]
async fn an_engine_that_closes_after_every_stream_fails_nobody() {
    let fleet = Fleet::of(2, Persona::LlamaCpp, "").await;
    let failed = failures(&fleet.proxy, 8, 25, true).await;
    assert_eq!(failed, [""; 0]);
    fleet.proxy.idle().await;
    let finished: u64 = fleet.alive().map(|engine| engine.state().finished).sum();
    assert_eq!(finished, 200, "each was asked for once");
    assert!(fleet.proxy.admits(0) && fleet.proxy.admits(1), "that is no failure");
}

#[tokio::test]
async fn an_engine_that_closes_after_a_hundred_requests_fails_nobody() {
    let fleet = Fleet::of(1, Persona::LlamaCpp, "shards = 1\n").await;
    let failed = failures(&fleet.proxy, 2, 130, false).await;
    assert_eq!(failed, [""; 0]);
    let state = fleet.engine("b0").state();
    assert_eq!(state.finished, 260);
    // Far fewer than requests, those of the control thread included; how many depends on how long a busy machine
    // leaves them idle.
    assert!(state.connections < 200, "{} connections were opened", state.connections);
}

#[tokio::test]
async fn an_engine_that_closes_idle_connections_early_fails_nobody() {
    let hasty = EngineOptions { idle_close_ms: 15, ..engine(Persona::Vllm) };
    let fleet = Fleet::start(vec![hasty], "shards = 1\n").await;
    let mut client = fleet.proxy.client().await;
    for number in 0..30_u64 {
        let reply = client.ask("/v1/chat/completions", &chat(&prose(number, 100))).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        // Around the moment at which the engine closes, which is what the test is about.
        tokio::time::sleep(std::time::Duration::from_millis(number)).await;
    }
    assert!(fleet.proxy.admits(0), "that is no failure");
}

#[tokio::test]
async fn an_engine_that_drops_some_requests_fails_nobody_while_there_is_another() {
    let mut dropping = engine(Persona::Vllm);
    dropping.faults.drop_every = Some(5);
    let fleet = Fleet::start(
        vec![dropping, engine(Persona::Vllm)],
        "[routing]\npolicy = \"round_robin\"\n",
    )
    .await;
    let failed = failures(&fleet.proxy, 2, 20, true).await;
    assert_eq!(failed, [""; 0]);
    fleet.proxy.idle().await;
}

/// The shards' connections, once there are so many.
async fn spread(proxy: &Proxy, connections: u64) -> Vec<u64> {
    settled("all connections are taken in", async || {
        let spread = proxy.sessions();
        (spread.iter().sum::<u64>() == connections).then_some(spread)
    })
    .await
}

#[tokio::test]
async fn connections_are_spread_evenly_over_the_shards_and_those_that_lost_some_get_the_next() {
    // Nothing is ever asked here, and on a busy machine that takes a while.
    let settings = "shards = 4\n[timeouts]\nhead_ms = 120000\n";
    let fleet = Fleet::of(1, Persona::Vllm, settings).await;
    let proxy = &fleet.proxy;
    let mut clients = Vec::new();
    for round in 0..2 {
        while clients.len() < 1000 {
            clients.push(proxy.client().await);
        }
        let spread = spread(proxy, 1000).await;
        let even = spread.iter().all(|&sessions| (225..=275).contains(&sessions));
        assert!(even, "round {round}: {spread:?}");
        clients.truncate(500);
        self::spread(proxy, 500).await;
    }
}
