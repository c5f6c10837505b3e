//! A raw HTTP client for tests of simulated engines: it sees every byte, every chunk and every way a connection ends.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use loadgen::engine::{EngineOptions, EngineState, Persona, ReplyLength, SimEngine};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

/// No wait in these tests may be longer; none should come near.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A fast engine with replies of eight tokens.
pub(crate) fn options(persona: Persona) -> EngineOptions {
    let mut options = EngineOptions::new(persona).speed(50.0);
    options.reply = ReplyLength::fixed(8);
    options
}

pub(crate) fn start(options: EngineOptions) -> SimEngine {
    SimEngine::start(options).expect("a free port on loopback")
}

pub(crate) fn chat(text: &str) -> Value {
    json!({"model": "sim", "messages": [{"role": "user", "content": text}]})
}

pub(crate) fn chat_stream(text: &str) -> Value {
    let mut body = chat(text);
    body["stream"] = json!(true);
    body
}

/// Waits until the engine's state is as wanted.
pub(crate) async fn eventually(
    engine: &SimEngine,
    what: &str,
    wanted: impl Fn(&EngineState) -> bool,
) -> EngineState {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let state = engine.state();
        if wanted(&state) {
            return state;
        }
        assert!(Instant::now() < deadline, "never saw {what}: {state:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// How a read ended early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The connection was closed; these bytes of an unfinished piece had come.
    Closed(Vec<u8>),
    /// The connection was reset.
    Reset,
}

impl From<io::Error> for Broken {
    fn from(_: io::Error) -> Self {
        Broken::Reset
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
}

impl Head {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn names(&self) -> Vec<&str> {
        self.headers.iter().map(|(name, _)| name.as_str()).collect()
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn status(&self) -> u16 {
        self.head.status
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.text()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("UTF-8")
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        events(&self.text())
    }
}

/// One server-sent event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) name: Option<String>,
    pub(crate) data: String,
}

impl Event {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|_| panic!("no JSON: {}", self.data))
    }
}

pub(crate) fn events(text: &str) -> Vec<Event> {
    assert!(text.is_empty() || text.ends_with("\n\n"), "an event is unfinished: {text:?}");
    let parse = |event: &str| {
        let line = |prefix: &str| event.lines().find_map(|line| line.strip_prefix(prefix));
        let name = line("event: ").map(str::to_owned);
        Event { name, data: line("data: ").expect("a data line").to_owned() }
    };
    text.split_terminator("\n\n").map(parse).collect()
}

/// A client connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) async fn connect(addr: SocketAddr) -> Self {
        let stream = timeout(PATIENCE, TcpStream::connect(addr)).await.unwrap().unwrap();
        Self { stream, buffer: Vec::new() }
    }

    pub(crate) async fn send(&mut self, method: &str, path: &str, body: &Value) {
        self.send_with(method, path, &[], body).await;
    }

    pub(crate) async fn send_with(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut head =
            format!("{method} {path} HTTP/1.1\r\nHost: sim\r\nContent-Length: {}\r\n", body.len());
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        self.raw(format!("{head}\r\n{body}").as_bytes()).await.expect("the request is taken");
    }

    pub(crate) async fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    async fn more(&mut self) -> Result<(), Broken> {
        let mut piece = [0; 16 << 10];
        let read = timeout(PATIENCE, self.stream.read(&mut piece)).await.expect("bytes in time")?;
        if read == 0 {
            return Err(Broken::Closed(std::mem::take(&mut self.buffer)));
        }
        self.buffer.extend_from_slice(&piece[..read]);
        Ok(())
    }

    async fn until(&mut self, mark: &[u8]) -> Result<Vec<u8>, Broken> {
        loop {
            if let Some(at) = self.buffer.windows(mark.len()).position(|window| window == mark) {
                return Ok(self.buffer.drain(..at + mark.len()).collect());
            }
            self.more().await?;
        }
    }

    async fn exactly(&mut self, bytes: usize) -> Result<Vec<u8>, Broken> {
        while self.buffer.len() < bytes {
            self.more().await?;
        }
        Ok(self.buffer.drain(..bytes).collect())
    }

    pub(crate) async fn head(&mut self) -> Result<Head, Broken> {
        let text = String::from_utf8(self.until(b"\r\n\r\n").await?).expect("an ASCII head");
        let mut lines = text.trim_end().split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a status line");
        let header = |line: &str| {
            let (name, value) = line.split_once(':').expect("a header line");
            (name.to_owned(), value.trim().to_owned())
        };
        Ok(Head { status: status.parse().expect("a status"), headers: lines.map(header).collect() })
    }

    /// The next chunk; none at the end of the body.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Vec<u8>>, Broken> {
        let line = self.until(b"\r\n").await?;
        let digits = std::str::from_utf8(&line[..line.len() - 2]).expect("a size");
        let size = usize::from_str_radix(digits, 16).expect("a size");
        let mut data = self.exactly(size + 2).await?;
        assert_eq!(data.split_off(size), b"\r\n");
        Ok((size > 0).then_some(data))
    }

    pub(crate) async fn reply(&mut self) -> Result<Reply, Broken> {
        let head = self.head().await?;
        let body = match (head.get("content-length"), head.get("transfer-encoding")) {
            (Some(length), None) => self.exactly(length.parse().expect("a length")).await?,
            (None, Some("chunked")) => {
                let mut body = Vec::new();
                while let Some(chunk) = self.chunk().await? {
                    body.extend(chunk);
                }
                body
            }
            other => panic!("no framing: {other:?}"),
        };
        Ok(Reply { head, body })
    }

    pub(crate) async fn call(&mut self, method: &str, path: &str, body: &Value) -> Reply {
        self.send(method, path, body).await;
        self.reply().await.expect("a whole reply")
    }

    /// How the connection ends, with whatever still came.
    pub(crate) async fn end(&mut self) -> Broken {
        loop {
            if let Err(broken) = self.more().await {
                return broken;
            }
        }
    }
}

/// One request on a connection of its own.
pub(crate) async fn call(engine: &SimEngine, method: &str, path: &str, body: &Value) -> Reply {
    Client::connect(engine.addr()).await.call(method, path, body).await
}

pub(crate) async fn get(engine: &SimEngine, path: &str) -> Reply {
    call(engine, "GET", path, &Value::Null).await
}

pub(crate) async fn post(engine: &SimEngine, path: &str, body: &Value) -> Reply {
    call(engine, "POST", path, body).await
}

/// A value with every scalar replaced by the name of its type, as text: what a reply looks like, whatever it says. Members keep
/// their order.
pub(crate) fn shape(value: &Value) -> String {
    fn reduce(value: &Value) -> Value {
        match value {
            Value::Null => json!("null"),
            Value::Bool(_) => json!("bool"),
            Value::Number(number) if number.is_f64() => json!("float"),
            Value::Number(_) => json!("int"),
            Value::String(_) => json!("text"),
            Value::Array(items) => items.iter().map(reduce).collect(),
            Value::Object(members) => {
                members.iter().map(|(name, value)| (name.clone(), reduce(value))).collect()
            }
        }
    }
    reduce(value).to_string()
}

/// The same, of an expected shape written as JSON.
pub(crate) fn expected(shape: &str) -> String {
    serde_json::from_str::<Value>(shape).expect("JSON").to_string()
}
