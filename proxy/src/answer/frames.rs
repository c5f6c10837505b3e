//! Failures after the first byte: the status is gone, so they travel in the stream, in its dialect.
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
