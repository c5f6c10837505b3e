//! The control thread's own small HTTP client: GETs over one connection a visit, each with a deadline and
//! a bounded reply.
//!
//! A visit opens a fresh connection, because whether the engine accepts one is part of the answer, asks
//! all its questions over it, and closes it: engines close idle ones when it suits them, and some spend a
//! thread on each. Requests of clients never go through here.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{Connection, SendRequest, handshake};
use hyper::header::{ACCEPT, HOST, HeaderMap, USER_AGENT};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::limits::{ENGINE_REPLY_BYTES_MAX, ERROR_BYTES_MAX};

/// A reply, read whole.
#[derive(Debug, Clone)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// Body, at most [`ENGINE_REPLY_BYTES_MAX`] bytes.
    pub body: Vec<u8>,
}

impl Reply {
    /// Whether the status is 2xx.
    pub fn is_ok(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// A header's value, if it is readable text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The body as text; bytes that are none are replaced.
    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.body)
    }
}

/// Why there is no reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FetchError {
    /// The backend's name has no address.
    Unresolved,
    /// Nothing listens there.
    Refused,
    /// No connection for another reason.
    Unreachable(String),
    /// Not answered within this many ms.
    TimedOut(u64),
    /// Something answered, and it was no HTTP or was cut short.
    Broken(String),
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FetchError::Unresolved => f.write_str("its name has no address"),
            FetchError::Refused => f.write_str("connection refused"),
            FetchError::Unreachable(why) => write!(f, "cannot connect: {why}"),
            FetchError::TimedOut(ms) => write!(f, "no answer within {ms} ms"),
            FetchError::Broken(why) => write!(f, "broken reply: {why}"),
        }
    }
}

/// The connection of one visit, from its first question to [`Line::hang_up`].
#[derive(Default)]
pub struct Line(Mutex<Option<Open>>);

/// An open connection. It is driven by whoever asks over it, not by a task of its own, so that nothing
/// outlives a deadline.
struct Open {
    sender: SendRequest<Empty<Bytes>>,
    connection: Pin<Box<Connection<TokioIo<TcpStream>, Empty<Bytes>>>>,
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Line")
    }
}

/// Whom to ask, and how long to wait for the whole reply.
#[derive(Debug, Clone, Copy)]
pub struct Target<'t> {
    /// Where to connect to; `None` fails at once.
    pub address: Option<SocketAddr>,
    /// `host:port` for the `Host` header.
    pub authority: &'t str,
    /// For connecting, asking and reading together.
    pub timeout_ms: u64,
    /// The visit's connection.
    pub line: &'t Line,
}

/// Asks for `path`.
///
/// # Errors
/// See [`FetchError`]; a reply with an error status is none.
pub async fn get(target: Target<'_>, path: &str) -> Result<Reply, FetchError> {
    let address = target.address.ok_or(FetchError::Unresolved)?;
    let asking = target.line.ask(address, target.authority, path);
    match tokio::time::timeout(Duration::from_millis(target.timeout_ms), asking).await {
        Ok(result) => result,
        Err(_) => Err(FetchError::TimedOut(target.timeout_ms)),
    }
}

impl Line {
    /// Ends the visit.
    pub fn hang_up(&self) {
        drop(self.take());
    }

    fn take(&self) -> Option<Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn keep(&self, open: Open) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(open);
    }

    async fn ask(&self, at: SocketAddr, authority: &str, path: &str) -> Result<Reply, FetchError> {
        if let Some(open) = self.take() {
            // The engine may have closed it after its last answer; a fresh one then tells.
            if let Ok(reply) = self.ask_over(open, authority, path).await {
                return Ok(reply);
            }
        }
        let stream = TcpStream::connect(at).await.map_err(not_connected)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(broken)?;
        let open = Open { sender, connection: Box::pin(connection) };
        self.ask_over(open, authority, path).await
    }

    async fn ask_over(
        &self,
        mut open: Open,
        authority: &str,
        path: &str,
    ) -> Result<Reply, FetchError> {
        let reply = {
            let asked = ask(&mut open.sender, authority, path);
            tokio::pin!(asked);
            tokio::select! {
                reply = &mut asked => reply?,
                // It ends first when the peer closes right after its last byte: the reply is there.
                _ = &mut open.connection => return asked.await,
            }
        };
        self.keep(open);
        Ok(reply)
    }
}

async fn ask(
    sender: &mut SendRequest<Empty<Bytes>>,
    authority: &str,
    path: &str,
) -> Result<Reply, FetchError> {
    let request = hyper::Request::get(path)
        .header(HOST, authority)
        .header(USER_AGENT, "shearwater")
        .header(ACCEPT, "*/*")
        .body(Empty::new())
        .map_err(broken)?;
    sender.ready().await.map_err(broken)?;
    let (head, body) = sender.send_request(request).await.map_err(broken)?.into_parts();
    let body = Limited::new(body, ENGINE_REPLY_BYTES_MAX).collect().await.map_err(broken)?;
    Ok(Reply {
        status: head.status.as_u16(),
        headers: head.headers,
        body: body.to_bytes().to_vec(),
    })
}

fn not_connected(error: io::Error) -> FetchError {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => FetchError::Refused,
        _ => FetchError::Unreachable(clipped(&error.to_string())),
    }
}

fn broken(error: impl fmt::Display) -> FetchError {
    FetchError::Broken(clipped(&error.to_string()))
}

/// The first bytes of a text from outside, without control characters.
pub fn clipped(text: &str) -> String {
    let mut kept = String::new();
    for letter in text.chars() {
        if kept.len() + letter.len_utf8() > ERROR_BYTES_MAX {
            break;
        }
        kept.push(if letter.is_control() { ' ' } else { letter });
    }
    kept
}
