//! What the proxy says inside a stream, in its dialect: failures after the first byte, when the status is gone, and
//! signs of life.
//!
//! No end marker follows such a frame: a client that books a broken stream as a success has lost a reply.

use super::clipped;
use crate::api::Dialect;
use crate::classify::ReplyClass;

const MESSAGE: &str = "The backend broke while answering. Retry the request.";

/// Appends the event that tells a client its stream broke. `events` is how many it has seen, which numbers
/// the frame where the dialect numbers events.
pub fn write_broken_frame(out: &mut Vec<u8>, dialect: Dialect, events: u64) {
    write_error_frame(out, dialect, events, ReplyClass::Broken, MESSAGE);
}

/// Appends the event that tells a client what its engine said went wrong, in place of one the client could not read.
pub fn write_error_frame(
    out: &mut Vec<u8>,
    dialect: Dialect,
    events: u64,
    class: ReplyClass,
    words: &str,
) {
    let (openai, anthropic, code) = names(class);
    let message = serde_json::Value::from(if words.is_empty() { MESSAGE } else { clipped(words) });
    let frame = match dialect {
        Dialect::Chat | Dialect::Plain => format!(
            "data: {{\"error\":{{\"message\":{message},\"type\":\"{openai}\",\"param\":null,\
             \"code\":\"{code}\"}}}}\n\n"
        ),
        Dialect::Messages => format!(
            "event: error\ndata: {{\"type\":\"error\",\"error\":{{\"type\":\"{anthropic}\",\
             \"message\":{message}}}}}\n\n"
        ),
        Dialect::Responses => format!(
            "event: response.failed\ndata: {{\"type\":\"response.failed\",\"sequence_number\":{events},\
             \"response\":{{\"id\":\"resp_broken\",\"object\":\"response\",\"status\":\"failed\",\
             \"error\":{{\"code\":\"{code}\",\"message\":{message}}}}}}}\n\n"
        ),
    };
    out.extend_from_slice(frame.as_bytes());
}

/// A sign of life: nothing to a reader of events, and enough for whoever waits for bytes. Codex waits for events with
/// data and passes over those it does not know; other clients of that API are not told apart from it.
pub fn keepalive(dialect: Dialect) -> &'static [u8] {
    match dialect {
        Dialect::Chat | Dialect::Plain => b": keepalive\n\n",
        Dialect::Messages => b"event: ping\ndata: {\"type\":\"ping\"}\n\n",
        Dialect::Responses => b"event: keepalive\ndata: {\"type\":\"keepalive\"}\n\n",
    }
}

/// OpenAI's type, Anthropic's type and OpenAI's code. The codes are those on which clients do the right thing: Codex
/// gives up on `invalid_prompt`, waits at `rate_limit_exceeded`, and retries at any it does not know.
fn names(class: ReplyClass) -> (&'static str, &'static str, &'static str) {
    match class {
        ReplyClass::Busy => ("server_error", "overloaded_error", "backends_busy"),
        ReplyClass::RateLimited => ("rate_limit_error", "rate_limit_error", "rate_limit_exceeded"),
        ReplyClass::CallersFault => {
            ("invalid_request_error", "invalid_request_error", "invalid_prompt")
        }
        _ => ("server_error", "api_error", "upstream_error"),
    }
}
