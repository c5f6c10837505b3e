//! The head of a request.

use super::{HeadError, HeadLimits, Method, Version};

/// How the body of a request is delimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestFraming {
    /// No body.
    None,
    /// So many bytes.
    Length(u64),
    /// Chunks.
    Chunked,
}

/// A parsed request head. Reuse one per connection: after warm-up `parse` allocates nothing.
#[derive(Debug, Default)]
pub struct RequestHead {
    bytes: Vec<u8>,
}

impl RequestHead {
    /// An empty head; every accessor answers with nothing until `parse` has succeeded.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    /// `Ok(Some(consumed))` when a whole head is at the start of `buf`, `Ok(None)` when more bytes are needed.
    pub fn parse(&mut self, _buf: &[u8], _limits: &HeadLimits) -> Result<Option<usize>, HeadError> {
        self.bytes.clear();
        Err(HeadError::Malformed)
    }
    /// The method.
    #[must_use]
    pub fn method(&self) -> Method {
        Method::Other
    }
    /// The method as it was sent.
    #[must_use]
    pub fn method_bytes(&self) -> &[u8] {
        &[]
    }
    /// The target in origin-form (or `*`), path and query.
    #[must_use]
    pub fn target(&self) -> &[u8] {
        &[]
    }
    /// The target up to `?`.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        &[]
    }
    /// The target after `?`.
    #[must_use]
    pub fn query(&self) -> Option<&[u8]> {
        None
    }
    /// The client's version.
    #[must_use]
    pub fn version(&self) -> Version {
        Version::Http11
    }
    /// How the body is delimited.
    #[must_use]
    pub fn framing(&self) -> RequestFraming {
        RequestFraming::None
    }
    /// Whether the client wants the connection kept.
    #[must_use]
    pub fn keep_alive(&self) -> bool {
        false
    }
    /// Whether the client waits for `100 Continue` before it sends its body.
    #[must_use]
    pub fn expects_continue(&self) -> bool {
        false
    }
    /// Whether the client said `TE: trailers`.
    #[must_use]
    pub fn accepts_trailers(&self) -> bool {
        false
    }
    /// The first field of this name, given in lower case.
    #[must_use]
    pub fn header(&self, _lower_name: &str) -> Option<&[u8]> {
        None
    }
    /// Every field as it came, in order: name as the client spelled it, value without surrounding blanks.
    pub fn headers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        std::iter::empty()
    }
}
