//! What the proxy says inside a stream, in its dialect: failures after the first byte, when the status is gone, and
//! signs of life before the first event.
//!
//! No end marker follows such a frame: a client that books a broken stream as a success has lost a reply.

use crate::api::Dialect;

const MESSAGE: &str = "The backend broke while answering. Retry the request.";

/// Appends the event that tells a client its stream broke. `events` is how many it has seen, which numbers
/// the frame where the dialect numbers events.
pub fn write_broken_frame(out: &mut Vec<u8>, dialect: Dialect, events: u64) {
    let frame = match dialect {
        Dialect::Chat | Dialect::Plain => format!(
            "data: {{\"error\":{{\"message\":\"{MESSAGE}\",\"type\":\"server_error\",\"param\":null,\
             \"code\":\"upstream_error\"}}}}\n\n"
        ),
        Dialect::Messages => format!(
            "event: error\ndata: {{\"type\":\"error\",\"error\":{{\"type\":\"api_error\",\
             \"message\":\"{MESSAGE}\"}}}}\n\n"
        ),
        Dialect::Responses => format!(
            "event: response.failed\ndata: {{\"type\":\"response.failed\",\"sequence_number\":{events},\
             \"response\":{{\"id\":\"resp_broken\",\"object\":\"response\",\"status\":\"failed\",\
             \"error\":{{\"code\":\"upstream_error\",\"message\":\"{MESSAGE}\"}}}}}}\n\n"
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
