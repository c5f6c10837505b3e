//! A site of ten thousand servers behind one proxy. All are one engine, which answers at ten thousand addresses.
//!
//! A program of its own: getting to know so many takes a core for a while, and other tests of one process would be late.

use std::collections::HashSet;

use loadgen::engine::Persona;
use serde_json::{Value, json};
use tests::harness::{Client, Proxy, engine_at_many};

const BACKENDS: usize = 10_000;

/// Asks what is next to be asked, takes the answer in, and returns the backend that gave it.
async fn next(client: &mut Client, messages: &mut Vec<Value>, question: &str) -> String {
    messages.push(json!({ "role": "user", "content": question }));
    let body = json!({ "model": "sim", "messages": messages });
    let reply = client.ask("/v1/chat/completions", &body).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    messages.push(reply.json()["choices"][0]["message"].clone());
    reply.backend().to_owned()
}

#[tokio::test]
async fn conversations_come_home_among_ten_thousand_backends() {
    let (_site, urls) = engine_at_many(Persona::Vllm, BACKENDS);
    let proxy = Proxy::start(&urls, "");
    let mut homes = HashSet::new();
    for number in 0..8 {
        let mut client = proxy.client().await;
        let system = format!("You are the {number}th assistant. ").repeat(400);
        let mut messages = vec![json!({ "role": "system", "content": system })];
        let home = next(&mut client, &mut messages, "Who are you?").await;
        for _ in 0..2 {
            let again = next(&mut client, &mut messages, "And what follows from that?").await;
            assert_eq!(again, home, "conversation {number}");
        }
        homes.insert(home);
    }
    assert!(homes.len() > 1, "all went to {homes:?}");
}
