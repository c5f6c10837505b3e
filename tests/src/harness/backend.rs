//! A backend that does exactly what a test says, byte by byte.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::PATIENCE;

/// A listening backend whose connections are each served by a script.
#[derive(Debug)]
pub struct Script {
    /// Where it listens.
    pub addr: SocketAddr,
    requests: Arc<Mutex<Vec<Vec<u8>>>>,
    deaf: Arc<AtomicBool>,
    accepting: JoinHandle<()>,
}

/// One connection of a scripted backend.
#[derive(Debug)]
pub struct Conn {
    stream: TcpStream,
    buffer: Vec<u8>,
    requests: Arc<Mutex<Vec<Vec<u8>>>>,
    /// Which connection of the backend it is, from 0.
    pub number: usize,
}

impl Script {
    /// Serves each connection by `serve`. Probes of the control thread (any GET) are answered apart, with 404.
    pub async fn start<F, Fut>(serve: F) -> Script
    where
        F: Fn(Conn) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let addr = listener.local_addr().expect("an address");
        let requests: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
        let seen = Arc::clone(&requests);
        let serve = Arc::new(serve);
        let numbers = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let deaf = Arc::new(AtomicBool::new(false));
        let to_probes = Arc::clone(&deaf);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (requests, serve, numbers) =
                    (Arc::clone(&seen), Arc::clone(&serve), Arc::clone(&numbers));
                let to_probes = Arc::clone(&to_probes);
                tokio::spawn(async move {
                    let mut conn = Conn { stream, buffer: Vec::new(), requests, number: 0 };
                    if conn.is_probe().await {
                        return conn.answer_probes(&to_probes).await;
                    }
                    // Relaxed is enough for a count; tests use it to tell connections apart.
                    conn.number = numbers.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    serve(conn).await;
                });
            }
        });
        Script { addr, requests, deaf, accepting }
    }

    /// A backend that answers every request with the same bytes and keeps its connections.
    pub async fn always(reply: impl Into<Vec<u8>>) -> Script {
        let reply = Arc::new(reply.into());
        Script::start(move |mut conn| {
            let reply = Arc::clone(&reply);
            async move {
                while conn.request().await.is_some() {
                    conn.send(&reply).await;
                }
            }
        })
        .await
    }

    /// From now on it takes the connections of probes and answers none of them, or does again.
    pub fn deafen(&self, deaf: bool) {
        // Relaxed: a switch that stands alone.
        self.deaf.store(deaf, Ordering::Relaxed);
    }

    /// Its address as the configuration takes it.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Every request it has read so far, head and body.
    pub fn requests(&self) -> Vec<Vec<u8>> {
        self.requests.lock().expect("no test panicked holding it").clone()
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Conn {
    /// Reads one whole request; `None` when the proxy closed first.
    pub async fn request(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(length) = whole_message(&self.buffer) {
                let rest = self.buffer.split_off(length);
                let request = std::mem::replace(&mut self.buffer, rest);
                self.requests.lock().expect("no test panicked").push(request.clone());
                return Some(request);
            }
            if !self.read().await {
                return None;
            }
        }
    }

    async fn read(&mut self) -> bool {
        // Into the heap: an array here would be part of every future that awaits this one.
        self.buffer.reserve(64 * 1024);
        matches!(self.stream.read_buf(&mut self.buffer).await, Ok(1..))
    }

    async fn is_probe(&mut self) -> bool {
        while self.buffer.len() < 4 && self.read().await {}
        self.buffer.starts_with(b"GET ")
    }

    async fn answer_probes(&mut self, deaf: &AtomicBool) {
        loop {
            // Relaxed: a switch that stands alone.
            if deaf.load(Ordering::Relaxed) {
                self.buffer.clear();
            }
            while let Some(length) = whole_message(&self.buffer) {
                let path = self.buffer.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
                // vLLM's liveness; everything else is unknown here.
                let fine = path == b"/health";
                self.buffer.drain(..length);
                let status = if fine { "200 OK" } else { "404 Not Found" };
                self.send(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").as_bytes())
                    .await;
            }
            if !self.read().await {
                return;
            }
        }
    }

    /// Sends bytes. A peer that is gone is the test's business to notice.
    pub async fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    /// Sends a head for a chunked stream of events.
    pub async fn stream_head(&mut self) {
        self.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
        )
        .await;
    }

    /// Sends one event as a chunk of its own.
    pub async fn event(&mut self, event: &str) {
        let chunk = format!("{:x}\r\n{event}\n\n\r\n", event.len() + 2);
        self.send(chunk.as_bytes()).await;
    }

    /// Ends a chunked body.
    pub async fn end(&mut self) {
        self.send(b"0\r\n\r\n").await;
    }

    /// Waits until the proxy closes its side; fails if it never does.
    pub async fn closed(&mut self) {
        let waiting = async { while self.read().await {} };
        timeout(PATIENCE, waiting).await.expect("the proxy closes its upstream connection");
    }

    /// Resets the connection instead of closing it.
    pub fn reset(self) {
        // A zero linger turns the close into a reset.
        let _ = self.stream.set_zero_linger();
    }
}

/// The length of the first whole message, or `None`.
fn whole_message(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length: usize = length.map_or(0, |length| length.trim().parse().expect("a length"));
    (bytes.len() >= head + length).then_some(head + length)
}
