//! The whole proxy against scripted backends: what goes in, what comes out, what is left behind.

mod breaker;
mod failure;
mod framing;
mod kept_alive;
mod leaving;
mod limits;
mod memory;
mod repairs;
mod retry;
mod silences;
mod slow;
mod streaming;

use serde_json::{Value, json};
use tests::harness::{Conn, Script};

/// A one-turn chat.
fn chat(text: &str) -> Value {
    json!({ "model": "sim", "messages": [{ "role": "user", "content": text }] })
}

/// The same, streamed.
fn chat_stream(text: &str) -> Value {
    let mut body = chat(text);
    body["stream"] = Value::Bool(true);
    body
}

/// A backend whose connections serve one request, promise to be kept, and are reset when the next one comes.
async fn resetting_when_reused() -> Script {
    Script::start(|mut conn: Conn| async move {
        conn.request().await.expect("a request");
        conn.send(ok_json("{\"a\":1}").as_bytes()).await;
        if conn.request().await.is_some() {
            conn.reset();
        }
    })
    .await
}

/// A JSON reply with its length.
fn ok_json(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}
