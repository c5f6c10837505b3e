//! What the proxy answers by itself, in the caller's dialect and in the words each client handles best.
//!
//! One table says what each situation comes to; no status is decided anywhere else. An answer says what to
//! do next and never carries prompt text, an engine's address or a byte the client sent; an engine's own words of an
//! error it carries only to the caller they were meant for.

mod frames;
pub mod status;
mod table;

use crate::api::Dialect;
use crate::http::{Downstream, write_own_response};
use crate::limits::ENGINE_WORDS_BYTES_MAX;

pub use frames::{keepalive, write_broken_frame, write_error_frame};
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestId([u8; 20]);

impl RequestId {
    /// Of this number.
    pub fn of(number: u64) -> RequestId {
        let mut text = *b"req_0000000000000000";
        for (place, digit) in text.iter_mut().skip(4).zip(hex(number)) {
            *place = digit;
        }
        RequestId(text)
    }

    /// As bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// The sixteen hexadecimal digits of a number.
pub fn hex(number: u64) -> [u8; 16] {
    let mut digits = [0; 16];
    for (place, byte) in digits.chunks_exact_mut(2).zip(number.to_be_bytes()) {
        let digit = |nibble: u8| nibble + if nibble < 10 { b'0' } else { b'a' - 10 };
        place.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
    }
    digits
}

/// The answer to `situation` for a caller that speaks `dialect`.
pub fn own(situation: Situation, dialect: Dialect, request_id: &str) -> Answer {
    told(situation, dialect, request_id, "")
}

/// The same in an engine's own words, as far as it had any.
pub fn told(situation: Situation, dialect: Dialect, request_id: &str, words: &str) -> Answer {
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
    let message = if words.is_empty() { row.message } else { clipped(words) };
    Answer { status, headers, body: body_of(row, message, dialect, request_id) }
}

impl Answer {
    /// Appends it as an HTTP reply.
    pub fn write(&self, out: &mut Vec<u8>, to: Downstream, head_only: bool) {
        let headers: Vec<(&str, &[u8])> =
            self.headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
        write_own_response(out, self.status, to, &headers, &self.body, head_only);
    }
}

/// As much of an engine's words as is passed on.
fn clipped(words: &str) -> &str {
    let end = (0..=words.len().min(ENGINE_WORDS_BYTES_MAX)).rev();
    words
        .get(..end.into_iter().find(|at| words.is_char_boundary(*at)).unwrap_or(0))
        .unwrap_or_default()
}

fn body_of(row: &table::Row, message: &str, dialect: Dialect, request_id: &str) -> Vec<u8> {
    let body = match dialect {
        Dialect::Messages => serde_json::json!({
            "type": "error",
            "error": { "type": row.anthropic_type, "message": message },
            "request_id": request_id,
        }),
        Dialect::Chat | Dialect::Responses | Dialect::Plain => serde_json::json!({
            "error": {
                "message": message,
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
