//! What clients say: prose, bodies of each dialect, conversations that go on.

use std::net::SocketAddr;

use fastrand::Rng;
use serde_json::{Value, json};
use tests::harness::{Client, Reply};

/// Words without meaning, the same for the same seed. `bytes` is roughly their length.
pub(crate) fn prose(seed: u64, bytes: usize) -> String {
    let mut rng = Rng::with_seed(seed);
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        for _ in 0..rng.usize(2..9) {
            text.push(char::from(rng.u8(b'a'..=b'z')));
        }
        text.push(if rng.u8(0..12) == 0 { '\n' } else { ' ' });
    }
    text
}

/// A one-turn chat.
pub(crate) fn chat(text: &str) -> Value {
    json!({ "model": "sim", "messages": [{ "role": "user", "content": text }] })
}

/// The same, streamed.
pub(crate) fn chat_stream(text: &str) -> Value {
    streamed(chat(text))
}

/// A body with its reply asked for as a stream.
pub(crate) fn streamed(mut body: Value) -> Value {
    body["stream"] = Value::Bool(true);
    body
}

/// A chat that goes on: what was answered becomes part of the next prompt.
#[derive(Debug)]
pub(crate) struct Talk {
    client: Client,
    messages: Vec<Value>,
    max_tokens: Option<u32>,
}

/// What came of one turn of it.
#[derive(Debug)]
pub(crate) struct Turn {
    /// Who answered.
    pub(crate) backend: String,
    /// Prompt tokens, as the engine reports them.
    pub(crate) prompt: u64,
    /// How many of them it had cached.
    pub(crate) cached: u64,
    /// The whole reply.
    pub(crate) reply: Reply,
}

impl Talk {
    /// A chat under this system prompt, on a connection of its own.
    pub(crate) async fn new(addr: SocketAddr, system: &str) -> Talk {
        let messages = vec![json!({ "role": "system", "content": system })];
        Talk { client: Client::connect(addr).await, messages, max_tokens: None }
    }

    /// The same with replies of so many tokens at most.
    pub(crate) async fn limited(addr: SocketAddr, system: &str, max_tokens: u32) -> Talk {
        Talk { max_tokens: Some(max_tokens), ..Talk::new(addr, system).await }
    }

    /// It goes on over a new connection.
    pub(crate) async fn connect(&mut self, addr: SocketAddr) {
        self.client = Client::connect(addr).await;
    }

    /// Its next request.
    pub(crate) fn body(&self, text: &str) -> Value {
        let mut messages = self.messages.clone();
        messages.push(json!({ "role": "user", "content": text }));
        let mut body = json!({ "model": "sim", "messages": messages });
        if let Some(max) = self.max_tokens {
            body["max_tokens"] = max.into();
        }
        body
    }

    /// Says something and takes the answer in.
    pub(crate) async fn say(&mut self, text: &str) -> Turn {
        let body = self.body(text);
        let reply = self.client.ask("/v1/chat/completions", &body).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let answer = reply.json();
        self.messages.push(json!({ "role": "user", "content": text }));
        self.messages.push(answer["choices"][0]["message"].clone());
        let usage = &answer["usage"];
        Turn {
            backend: reply.backend().to_owned(),
            prompt: usage["prompt_tokens"].as_u64().expect("usage"),
            cached: usage["prompt_tokens_details"]["cached_tokens"].as_u64().expect("cached"),
            reply,
        }
    }
}
