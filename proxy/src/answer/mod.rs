//! What the proxy answers by itself, in the caller's dialect and in the words each client handles best.
//!
//! One table says what each situation comes to; no status is decided anywhere else. An answer says what to
//! do next and never carries prompt text, an engine's address or a byte the client sent.

mod frames;
pub mod status;
mod table;

use crate::api::Dialect;
use crate::http::{Downstream, write_own_response};

pub use frames::write_broken_frame;
pub use table::Situation;

/// An answer, ready to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its headers besides the framing.
    pub headers: Vec<(&'static str, String)>,
    /// Its body, JSON.
    pub body: Vec<u8>,
}

/// The text form of a request's number.
pub fn request_id(number: u64) -> String {
    format!("req_{number:016x}")
}

/// The answer to `situation` for a caller that speaks `dialect`.
pub fn own(situation: Situation, dialect: Dialect, request_id: &str) -> Answer {
    let row = situation.row();
    let status = row.status(dialect);
    let mut headers = vec![
        ("content-type", "application/json".to_string()),
        ("x-request-id", request_id.to_string()),
    ];
    if dialect == Dialect::Messages {
        headers.push(("request-id", request_id.to_string()));
    }
    match row.retry_after_s {
        Some(seconds) => {
            headers.push(("retry-after", seconds.to_string()));
            headers.push(("retry-after-ms", (seconds * 1000).to_string()));
        }
        None if !row.may_mend => headers.push(("x-should-retry", "false".to_string())),
        None => {}
    }
    Answer { status, headers, body: body_of(row, dialect, request_id) }
}

impl Answer {
    /// Appends it as an HTTP reply.
    pub fn write(&self, out: &mut Vec<u8>, to: Downstream, head_only: bool) {
        let headers: Vec<(&str, &[u8])> =
            self.headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
        write_own_response(out, self.status, to, &headers, &self.body, head_only);
    }
}

fn body_of(row: &table::Row, dialect: Dialect, request_id: &str) -> Vec<u8> {
    let body = match dialect {
        Dialect::Messages => serde_json::json!({
            "type": "error",
            "error": { "type": row.anthropic_type, "message": row.message },
            "request_id": request_id,
        }),
        Dialect::Chat | Dialect::Responses | Dialect::Plain => serde_json::json!({
            "error": {
                "message": row.message,
                "type": row.openai_type,
                "param": null,
                "code": row.code,
            },
        }),
    };
    body.to_string().into_bytes()
}

/// Appends the list of models, prepared elsewhere, as an HTTP reply.
pub fn write_models(
    out: &mut Vec<u8>,
    list: &[u8],
    to: Downstream,
    request_id: &str,
    head_only: bool,
) {
    let headers: [(&str, &[u8]); 2] =
        [("content-type", b"application/json"), ("x-request-id", request_id.as_bytes())];
    write_own_response(out, status::OK, to, &headers, list, head_only);
}

#[cfg(test)]
mod tests;
