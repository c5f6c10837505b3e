//! What is written in place of a parsed head.

use super::{RequestHead, ResponseFraming, ResponseHead, Version};

/// How the reply goes to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Downstream {
    /// The version the client spoke.
    pub version: Version,
    /// Whether its connection is kept after this reply.
    pub keep_alive: bool,
}

/// How the body of a reply is delimited towards the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReplyFraming {
    /// No body.
    None,
    /// So many bytes.
    Length(u64),
    /// Chunks; the caller writes them.
    Chunked,
    /// Until we close.
    UntilClose,
}

impl Downstream {
    /// The framing this client can be given for a reply that came with `upstream`: a body without a length becomes chunks for
    /// HTTP/1.1 and lasts until close for HTTP/1.0.
    #[must_use]
    pub fn framing_for(&self, upstream: ResponseFraming) -> ReplyFraming {
        match (upstream, self.version) {
            (ResponseFraming::None, _) => ReplyFraming::None,
            (ResponseFraming::Length(bytes), _) => ReplyFraming::Length(bytes),
            (ResponseFraming::Chunked | ResponseFraming::UntilClose, Version::Http11) => {
                ReplyFraming::Chunked
            }
            (ResponseFraming::Chunked | ResponseFraming::UntilClose, Version::Http10) => {
                ReplyFraming::UntilClose
            }
        }
    }
}

/// Appends the head to send upstream.
pub fn write_request_head(
    _out: &mut Vec<u8>,
    _head: &RequestHead,
    _body: Option<u64>,
    _extra: &[(&str, &[u8])],
) {
}

/// Appends the head of a relayed reply.
pub fn write_response_head(
    _out: &mut Vec<u8>,
    _head: &ResponseHead,
    _to: Downstream,
    _framing: ReplyFraming,
    _extra: &[(&str, &[u8])],
) {
}

/// Appends a whole reply of our own.
pub fn write_own_response(
    _out: &mut Vec<u8>,
    _status: u16,
    _to: Downstream,
    _headers: &[(&str, &[u8])],
    _body: &[u8],
    _head_only: bool,
) {
}
