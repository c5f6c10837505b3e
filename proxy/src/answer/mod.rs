//! What the proxy itself says to a client: answers before the first byte of a reply, frames inside a stream that breaks,
//! lists of models; and how it reads what engines say when they fail. Every status the proxy can send stands in one table
//! ([`table`]). A message says what happened and what to do; it never holds text of a prompt or an address of ours.

pub mod fault;
pub mod frames;
pub mod models;
mod table;
mod text;

pub use fault::{Fault, ReplyClass, classify_error, classify_reply};
pub use frames::{Breakage, FrameFacts, engine_error_frame, failure_frame, keepalive};
pub use table::Situation;

use crate::api::Dialect;
use crate::limits::RETRY_AFTER_SECONDS_MAX;
use table::{Retry, Row};
use text::{clean_id, escape, shorten};

/// What an answer needs to know about its request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts<'a> {
    /// The request's id; other than visible ASCII characters are dropped.
    pub request_id: &'a str,
    /// How long the client should wait before it tries again, for answers that say so. Milliseconds; sent as 1 to 59
    /// seconds.
    pub retry_after_ms: u64,
    /// More about this case, appended to the message: the place of a syntax error, a limit, a model's name.
    pub detail: Option<&'a str>,
}

/// A complete answer, not yet framed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status to send.
    pub status: u16,
    /// The JSON body.
    pub body: Vec<u8>,
    headers: Vec<(&'static str, String)>,
}

impl Answer {
    /// Headers beside those of framing, names in lower case.
    pub fn headers(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.headers.iter().map(|(name, value)| (*name, value.as_str()))
    }

    /// The answer as HTTP/1.1. `close` adds `connection: close`; without `with_body` (for HEAD) only the head is written,
    /// with the length the body would have.
    pub fn to_http1(&self, close: bool, with_body: bool) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {} {}\r\n", self.status, table::reason(self.status));
        for (name, value) in self.headers() {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("content-length: {}\r\n", self.body.len()));
        if close {
            head.push_str("connection: close\r\n");
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        if with_body {
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }
}

/// The answer to a request in this situation, in the client's dialect.
pub fn answer(situation: Situation, dialect: Dialect, facts: &Facts<'_>) -> Answer {
    let row = situation.row();
    let id = clean_id(facts.request_id);
    let wait_ms = facts.retry_after_ms.clamp(1, RETRY_AFTER_SECONDS_MAX * 1000);
    let message = message(row, wait_ms, facts.detail);
    let body = match dialect {
        Dialect::Messages => messages_body(row, &message, &id),
        _ => openai_body(row, &message),
    };
    let mut headers = vec![("content-type", "application/json".to_owned())];
    if !id.is_empty() {
        headers.push(("x-request-id", id.clone()));
        if dialect == Dialect::Messages {
            headers.push(("request-id", id));
        }
    }
    match row.retry {
        Retry::Later => {
            headers.push(("retry-after", wait_ms.div_ceil(1000).to_string()));
            headers.push(("retry-after-ms", wait_ms.to_string()));
        }
        Retry::Never => headers.push(("x-should-retry", "false".to_owned())),
        Retry::Unsaid => {}
    }
    Answer { status: row.status(dialect), body: body.into_bytes(), headers }
}

/// The reason phrase of a status the proxy may send.
pub fn reason(status: u16) -> &'static str {
    table::reason(status)
}

fn message(row: &Row, wait_ms: u64, detail: Option<&str>) -> String {
    let mut message = row.message.to_owned();
    if let Some(detail) = detail {
        message.push(' ');
        message.push_str(shorten(detail));
    }
    if row.retry == Retry::Later {
        message.push_str(&format!(" Retry in {} s.", wait_ms.div_ceil(1000)));
    }
    escape(&message)
}

fn openai_body(row: &Row, message: &str) -> String {
    let Row { kind, code, .. } = row;
    format!(r#"{{"error":{{"message":"{message}","type":"{kind}","param":null,"code":"{code}"}}}}"#)
}

fn messages_body(row: &Row, message: &str, id: &str) -> String {
    let kind = row.messages_kind;
    format!(
        r#"{{"type":"error","error":{{"type":"{kind}","message":"{message}"}},"request_id":"{id}"}}"#
    )
}

#[cfg(test)]
mod tests;
