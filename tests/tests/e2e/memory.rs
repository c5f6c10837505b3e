//! What is held for requests is bounded in sum: beyond it bodies are refused early, in words that bring clients back.

use serde_json::json;
use tests::harness::{Conn, Proxy, Script, eventually, settled};
use tokio::sync::watch;

use crate::{chat, ok_json};

const CHAT: &str = "/v1/chat/completions";
const BUDGET: u64 = 1 << 20;
const ONE_MIB: &str = "[limits]\nbody_memory = \"1MiB\"\n";

/// A backend that answers when the gate is opened.
async fn gated() -> (Script, watch::Sender<bool>) {
    let (open, gate) = watch::channel(false);
    let script = Script::start(move |mut conn: Conn| {
        let mut gate = gate.clone();
        async move {
            while conn.request().await.is_some() {
                gate.wait_for(|open| *open).await.expect("the test runs");
                conn.send(ok_json("{}").as_bytes()).await;
            }
        }
    })
    .await;
    (script, open)
}

/// Waits until nothing is held.
async fn all_given_back(proxy: &Proxy) {
    settled("all memory is given back", async || {
        (proxy.metric("shearwater_body_memory_bytes").await == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn beyond_the_budget_requests_are_told_to_come_back_and_the_rest_is_served() {
    let (script, open) = gated().await;
    let proxy = Proxy::start(&[script.url()], ONE_MIB);
    let body = chat(&"x".repeat(100_000));
    let mut held = Vec::new();
    // As many as fit, with what a shard keeps in hand; each is with the backend before the next is sent.
    for number in 1..=6 {
        let mut client = proxy.client().await;
        client.post(CHAT, &body).await;
        eventually("it reached the backend", || script.requests().len() == number).await;
        held.push(client);
    }
    let used = settled("what is held shows", async || {
        let used = proxy.metric("shearwater_body_memory_bytes").await;
        (used >= 600_000).then_some(used)
    })
    .await;
    assert!(used <= BUDGET, "{used}");
    let mut refused = 0;
    for _ in 0..20 {
        let mut client = proxy.client().await;
        let reached = script.requests().len();
        client.post(CHAT, &body).await;
        tokio::select! {
            reply = client.reply() => {
                assert_eq!((reply.status, &reply.json()["error"]["code"]), (503, &json!("proxy_busy")));
                assert_eq!(reply.header("retry-after"), Some("2"));
                assert_eq!(reply.header("connection"), Some("close"));
                refused += 1;
                continue;
            }
            () = eventually("it is refused or forwarded", || script.requests().len() > reached) => {}
        }
        held.push(client);
    }
    assert!((10..=20).contains(&refused), "{refused} of 20 refused");
    assert_eq!(held.len() + refused, 26);
    open.send(true).expect("the backend runs");
    for client in &mut held {
        assert_eq!(client.reply().await.status, 200);
    }
    all_given_back(&proxy).await;
    assert_eq!(proxy.metric("shearwater_bodies_refused_total").await, refused as u64);
    // There is room again.
    assert_eq!(proxy.client().await.ask(CHAT, &body).await.status, 200);
}

#[tokio::test]
async fn a_body_in_chunks_is_refused_when_it_has_grown_beyond_what_is_left() {
    let (script, _open) = gated().await;
    let proxy = Proxy::start(&[script.url()], &format!("shards = 1\n{ONE_MIB}"));
    let mut first = proxy.client().await;
    first.post(CHAT, &chat(&"x".repeat(900_000))).await;
    eventually("it reached the backend", || script.requests().len() == 1).await;
    let chunk = format!("8000\r\n{}\r\n", "x".repeat(0x8000));
    let head = "POST /v1/messages HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut client = proxy.client().await;
    client.send(head.as_bytes()).await;
    for _ in 0..8 {
        client.send(chunk.as_bytes()).await;
    }
    let reply = client.reply().await;
    assert_eq!((reply.status, &reply.json()["error"]["type"]), (529, &json!("overloaded_error")));
    assert_eq!(reply.header("retry-after"), Some("2"));
    drop(first);
    all_given_back(&proxy).await;
}

#[tokio::test]
async fn a_body_that_would_not_fit_is_refused_before_it_is_asked_for() {
    let (script, _open) = gated().await;
    let proxy = Proxy::start(&[script.url()], &format!("shards = 1\n{ONE_MIB}"));
    let mut first = proxy.client().await;
    first.post(CHAT, &chat(&"x".repeat(900_000))).await;
    eventually("it reached the backend", || script.requests().len() == 1).await;
    let ask = |length: u64| {
        format!(
            "POST {CHAT} HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n"
        )
    };
    let mut client = proxy.client().await;
    client.send(ask(200_000).as_bytes()).await;
    client.sees("HTTP/1.1 503 ").await;
    // One that could never fit is too large, whatever else is held.
    let mut client = proxy.client().await;
    client.send(ask(BUDGET + 1).as_bytes()).await;
    client.sees("HTTP/1.1 413 ").await;
    let mut client = proxy.client().await;
    client.send(ask(20_000).as_bytes()).await;
    client.sees("HTTP/1.1 100 ").await;
}

#[tokio::test]
async fn clients_that_vanish_while_sending_leave_nothing_behind() {
    let (script, open) = gated().await;
    let proxy = Proxy::start(&[script.url()], &format!("shards = 1\n{ONE_MIB}"));
    for chunked in [false, true] {
        let mut senders = Vec::new();
        for _ in 0..4 {
            let framing =
                if chunked { "Transfer-Encoding: chunked" } else { "Content-Length: 200000" };
            let head = format!("POST {CHAT} HTTP/1.1\r\nHost: t\r\n{framing}\r\n\r\n");
            let part = "x".repeat(100_000);
            let part = if chunked { format!("{:x}\r\n{part}", 200_000) } else { part };
            let mut client = proxy.client().await;
            client.send(&[head.as_bytes(), part.as_bytes()].concat()).await;
            senders.push(client);
        }
        settled("half of each is held", async || {
            (proxy.metric("shearwater_body_memory_bytes").await >= 400_000).then_some(())
        })
        .await;
        drop(senders);
        all_given_back(&proxy).await;
    }
    // Those that vanish while the backend thinks, too.
    let mut thinking = Vec::new();
    for number in 1..=4 {
        let mut client = proxy.client().await;
        client.post(CHAT, &chat(&"x".repeat(200_000))).await;
        eventually("it reached the backend", || script.requests().len() == number).await;
        thinking.push(client);
    }
    drop(thinking);
    all_given_back(&proxy).await;
    open.send(true).expect("the backend runs");
    assert_eq!(proxy.client().await.ask(CHAT, &chat(&"x".repeat(1_000_000))).await.status, 200);
    all_given_back(&proxy).await;
    proxy.idle().await;
}

#[tokio::test]
async fn what_is_declared_and_not_sent_keeps_nobody_out() {
    let (script, open) = gated().await;
    open.send(true).expect("the backend runs");
    let proxy = Proxy::start(&[script.url()], &format!("shards = 1\n{ONE_MIB}"));
    let head = format!("POST {CHAT} HTTP/1.1\r\nHost: t\r\nContent-Length: 600000\r\n\r\n{{");
    let mut silent = Vec::new();
    for number in 1..=5_u64 {
        let mut client = proxy.client().await;
        client.send(head.as_bytes()).await;
        settled("it is being read", async || {
            let used = proxy.metric("shearwater_body_memory_bytes").await;
            (used >= number * 60_000).then_some(())
        })
        .await;
        silent.push(client);
    }
    let reply = proxy.client().await.ask(CHAT, &chat(&"x".repeat(500_000))).await;
    assert_eq!(reply.status, 200);
    drop(silent);
    all_given_back(&proxy).await;
}

#[tokio::test]
async fn a_compressed_body_is_only_unpacked_where_there_is_memory_for_it() {
    let (script, _open) = gated().await;
    let proxy = Proxy::start(&[script.url()], &format!("shards = 1\n{ONE_MIB}"));
    let body = chat(&"y".repeat(400_000)).to_string();
    let packed = zstd::encode_all(body.as_bytes(), 3).expect("memory");
    assert!(packed.len() < 4_000, "{}", packed.len());
    let mut small = proxy.client().await;
    small.post_with(CHAT, "Content-Encoding: zstd\r\n", &packed).await;
    eventually("there is room to unpack it", || script.requests().len() == 1).await;
    let mut large = proxy.client().await;
    large.post(CHAT, &chat(&"x".repeat(800_000))).await;
    eventually("it reached the backend", || script.requests().len() == 2).await;
    let mut client = proxy.client().await;
    client.post_with(CHAT, "Content-Encoding: zstd\r\n", &packed).await;
    let reply = client.reply().await;
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (503, &json!("proxy_busy")));
}
