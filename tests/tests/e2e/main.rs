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
mod streaming;

use serde_json::{Value, json};

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

/// A JSON reply with its length.
fn ok_json(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}
