//! HTTP/1 on the wire: heads, framing, chunks, and what is written in their place.
//!
//! This is the edge that strangers reach, so it is strict where RFC 9112 lets a recipient be
//! lenient, and pure: bytes in, values out. It never opens a socket, reads a clock, logs, or
//! forwards the bytes of a head as they came; a head is parsed, judged, and written again from the
//! parsed form, because smuggling lives in the difference between the two.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod chunked;
mod control;
mod error;
mod field;
mod grammar;
mod request;
mod response;
mod scan;
mod start_line;
mod target;
mod write;

pub use chunked::{CHUNK_END, ChunkLimits, ChunkedReader, Fed, LAST_CHUNK, write_chunk_head};
pub use error::{ChunkError, HeadError, HeadErrorKind};
pub use request::{RequestFraming, RequestHead};
pub use response::{ResponseFraming, ResponseHead};
pub use start_line::{Method, Version};
pub use write::{
    CONTINUE, Downstream, ReplyFraming, write_own_response, write_request_head, write_response_head,
};

/// How large a head may be. Over a limit the head is refused as soon as that is certain, before its
/// end has been seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadLimits {
    /// Bytes from the first byte of the start line to the end of the empty line.
    pub bytes_max: usize,
    /// Bytes of one line as it would be written again (`name: value` and CRLF, or the start line
    /// and CRLF).
    pub line_bytes_max: usize,
    /// Fields, at most [`crate::limits::HEAD_FIELDS_CEILING`].
    pub headers_max: usize,
}
