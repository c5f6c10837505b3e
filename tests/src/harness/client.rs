//! A client that sees every byte.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{PATIENCE, Sips, narrow};

/// One client connection.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
    sips: Option<Sips>,
}

/// A whole reply.
#[derive(Debug, Clone)]
pub struct Reply {
    /// Its status.
    pub status: u16,
    /// Its head, as received.
    pub head: String,
    /// Its body, chunks taken off.
    pub body: Vec<u8>,
    /// Whether its framing was complete.
    pub complete: bool,
}

impl Reply {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// Which backend answered.
    pub fn backend(&self) -> &str {
        self.header("x-shearwater-backend").unwrap_or_else(|| panic!("no backend in {}", self.head))
    }
}

impl Client {
    /// Connects.
    pub async fn connect(addr: SocketAddr) -> Client {
        let stream = TcpStream::connect(addr).await.expect("it listens");
        stream.set_nodelay(true).expect("an option");
        Client { stream, buffer: Vec::new(), sips: None }
    }

    /// Connects so that hardly anything is under way, and reads by such sips.
    pub async fn narrow(addr: SocketAddr, sips: Sips) -> Client {
        let stream = narrow(addr).await.expect("it listens");
        Client { stream, buffer: Vec::new(), sips: Some(sips) }
    }

    /// Sends raw bytes.
    pub async fn send(&mut self, bytes: &[u8]) {
        // The proxy may have closed already; what it said is what counts.
        let _ = self.stream.write_all(bytes).await;
    }

    /// Sends a JSON body.
    pub async fn post(&mut self, path: &str, body: &Value) {
        self.post_with(path, "", body.to_string().as_bytes()).await;
    }

    /// Sends a body with extra header lines, each ended by CRLF.
    pub async fn post_with(&mut self, path: &str, headers: &str, body: &[u8]) {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n{headers}Content-Length: {}\r\n\r\n",
            body.len()
        );
        self.send(&[head.as_bytes(), body].concat()).await;
    }

    /// Sends a JSON body and reads the whole reply.
    pub async fn ask(&mut self, path: &str, body: &Value) -> Reply {
        self.post(path, body).await;
        self.reply().await
    }

    /// A GET and its whole reply.
    pub async fn get(&mut self, path: &str) -> Reply {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n").as_bytes()).await;
        self.reply().await
    }

    /// Reads one whole reply.
    pub async fn reply(&mut self) -> Reply {
        timeout(PATIENCE, self.read_reply(false)).await.expect("a reply in time")
    }

    /// Reads the reply to a HEAD request.
    pub async fn reply_to_head(&mut self) -> Reply {
        timeout(PATIENCE, self.read_reply(true)).await.expect("a reply in time")
    }

    /// Waits until what was received contains `text`.
    pub async fn sees(&mut self, text: &str) {
        let waiting = async {
            while !contains(&self.buffer, text.as_bytes()) {
                assert!(self.read().await, "closed before {text:?}: {}", self.received());
            }
        };
        timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("never saw {text:?}"));
    }

    /// Reads until the proxy closes and returns everything not read before.
    pub async fn until_closed(&mut self) -> String {
        let waiting = async { while self.read().await {} };
        timeout(PATIENCE, waiting).await.expect("the proxy closes");
        self.received()
    }

    /// What was received and not read yet.
    pub fn received(&self) -> String {
        String::from_utf8_lossy(&self.buffer).into_owned()
    }

    /// Whether the proxy has sent anything that was not read, or closed, by now.
    pub fn is_quiet(&self) -> bool {
        let mut byte = [0_u8; 1];
        self.buffer.is_empty()
            && matches!(self.stream.try_read(&mut byte), Err(e) if e.kind() == std::io::ErrorKind::WouldBlock)
    }

    async fn read(&mut self) -> bool {
        if let Some(sips) = self.sips {
            return matches!(sips.read(&mut self.stream, &mut self.buffer).await, Ok(1..));
        }
        // Into the heap: an array here would be part of every future that awaits this one.
        self.buffer.reserve(64 * 1024);
        matches!(self.stream.read_buf(&mut self.buffer).await, Ok(1..))
    }

    async fn read_reply(&mut self, to_head: bool) -> Reply {
        let head = loop {
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                let head: Vec<u8> = self.buffer.drain(..at + 4).collect();
                let head = String::from_utf8_lossy(&head).into_owned();
                // Interim replies are not the reply.
                if !head.starts_with("HTTP/1.1 1") {
                    break head;
                }
            } else {
                assert!(self.read().await, "closed without a reply: {:?}", self.received());
            }
        };
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        let mut reply = Reply { status, head, body: Vec::new(), complete: true };
        if to_head || matches!(status, 204 | 304) {
            return reply;
        }
        if let Some(length) = reply.header("content-length").map(str::to_owned) {
            let length: usize = length.parse().expect("a length");
            while self.buffer.len() < length && self.read().await {}
            reply.complete = self.buffer.len() >= length;
            reply.body = self.buffer.drain(..length.min(self.buffer.len())).collect();
        } else if reply.header("transfer-encoding") == Some("chunked") {
            (reply.body, reply.complete) = self.read_chunks().await;
        } else {
            while self.read().await {}
            reply.body = std::mem::take(&mut self.buffer);
        }
        reply
    }

    async fn read_chunks(&mut self) -> (Vec<u8>, bool) {
        let mut body = Vec::new();
        loop {
            let Some(line) = self.line().await else { return (body, false) };
            let size = usize::from_str_radix(line.split(';').next().unwrap_or("").trim(), 16)
                .unwrap_or_else(|e| panic!("chunk size {line:?}: {e}"));
            if size == 0 {
                while let Some(line) = self.line().await {
                    if line.is_empty() {
                        return (body, true);
                    }
                }
                return (body, false);
            }
            while self.buffer.len() < size + 2 {
                if !self.read().await {
                    body.append(&mut self.buffer);
                    return (body, false);
                }
            }
            body.extend(self.buffer.drain(..size));
            assert_eq!(self.buffer.drain(..2).collect::<Vec<u8>>(), b"\r\n", "after a chunk");
        }
    }

    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(at) = find(&self.buffer, b"\r\n") {
                let line: Vec<u8> = self.buffer.drain(..at + 2).collect();
                return Some(String::from_utf8_lossy(&line[..at]).into_owned());
            }
            if !self.read().await {
                return None;
            }
        }
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    find(haystack, needle).is_some()
}
