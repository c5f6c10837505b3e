//! Reports correct what is believed, and only what they contradict: a prompt whose tokens are spread unevenly over its
//! bytes is no eviction.

use std::time::Duration;

use index::limits::RECENT_MS;
use serde_json::{Value, json};
use tests::harness::{Proxy, Script, settled};

use crate::said::prose;

const CHAT: &str = "/v1/chat/completions";
/// What all conversations begin with: 60 KB, 15,000 tokens.
const SHARED_BYTES: usize = 60_000;
const SHARED_TOKENS: u64 = 15_000;

/// An engine that counts tokens as it is told: each request says what its reply is to report.
async fn accountant() -> Script {
    Script::start(|mut conn| async move {
        while let Some(request) = conn.request().await {
            let start =
                request.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
            let body: Value = serde_json::from_slice(&request[start..]).expect("JSON");
            let [prompt, cached] = ["prompt", "cached"].map(|name| body["report"][name].clone());
            let reply =
                json!({ "choices": [{ "message": { "role": "assistant", "content": "x" } }],
                "usage": { "prompt_tokens": prompt, "completion_tokens": 1,
                    "prompt_tokens_details": { "cached_tokens": cached } } })
                .to_string();
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                reply.len()
            );
            conn.send(&[head.as_bytes(), reply.as_bytes()].concat()).await;
        }
    })
    .await
}

/// A conversation that begins as all do, and goes on with this.
fn body(content: &Value, prompt: u64, cached: u64) -> Value {
    json!({ "model": "sim", "report": { "prompt": prompt, "cached": cached },
        "messages": [{ "role": "system", "content": prose(1, SHARED_BYTES) },
            { "role": "user", "content": content }] })
}

/// A long conversation is there; another one, which shares the beginning with it, reports `prompt` tokens of which the
/// shared ones were cached. Returns how many blocks of the first are believed to be there before and after.
async fn beside_another(content: Value, prompt: u64) -> (Value, Value) {
    let engine = accountant().await;
    let proxy = Proxy::start(&[engine.url()], "");
    let first = body(&json!(prose(2, 20_000)), SHARED_TOKENS + 5_000, 0);
    let mut client = proxy.client().await;
    let reply = client.ask(CHAT, &first).await;
    proxy.explained(&reply).await;
    let held = async || {
        let told = proxy.dry_run(CHAT, "", first.to_string().as_bytes()).await;
        told["decision"]["deepest_blocks"].clone()
    };
    let before = settled("the first is learned", async || {
        Some(held().await).filter(|blocks| blocks.as_u64() > Some(600))
    })
    .await;
    let reply = client.ask(CHAT, &body(&content, prompt, SHARED_TOKENS)).await;
    let explained = proxy.explained(&reply).await;
    assert!(explained["decision"]["overlap_blocks"].as_u64() > Some(450), "{explained}");
    // What was routed a moment ago counts beside what the index holds; after that moment the index stands alone.
    tokio::time::sleep(Duration::from_millis(2 * RECENT_MS)).await;
    (before, held().await)
}

#[tokio::test]
async fn a_sibling_that_found_all_it_shares_takes_nothing_away() {
    let (before, after) = beside_another(json!(prose(3, 4_000)), SHARED_TOKENS + 1_000).await;
    assert_eq!(before, after);
}

#[tokio::test]
async fn an_image_is_many_tokens_and_few_bytes_and_takes_nothing_away() {
    let image =
        json!([{ "type": "image_url", "image_url": { "url": "data:image/png;base64,AAAA" } }]);
    let (before, after) = beside_another(image, SHARED_TOKENS + 3_000).await;
    assert_eq!(before, after);
}

#[tokio::test]
async fn a_text_of_many_tokens_a_byte_takes_nothing_away() {
    // 60 KB at three bytes a token beside 60 KB at four: code beside prose, or another script.
    let (before, after) = beside_another(json!(prose(4, 60_000)), SHARED_TOKENS + 20_000).await;
    assert_eq!(before, after);
}

#[tokio::test]
async fn what_an_engine_does_not_find_any_more_is_taken_away() {
    let engine = accountant().await;
    let proxy = Proxy::start(&[engine.url()], "");
    let mut client = proxy.client().await;
    let first = body(&json!(prose(2, 20_000)), SHARED_TOKENS + 5_000, 0);
    let reply = client.ask(CHAT, &first).await;
    proxy.explained(&reply).await;
    // Another one finds nothing of what both begin with: so the first would not either.
    let second = body(&json!(prose(3, 4_000)), SHARED_TOKENS + 1_000, 0);
    let reply = client.ask(CHAT, &second).await;
    proxy.explained(&reply).await;
    settled("only what both share is known", async || {
        let told = proxy.dry_run(CHAT, "", first.to_string().as_bytes()).await;
        let held = told["decision"]["deepest_blocks"].as_u64();
        (held > Some(450) && held < Some(480)).then_some(())
    })
    .await;
}
