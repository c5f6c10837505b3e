//! The head of a response.

use super::{HeadError, HeadLimits, Method};

/// How the body of a response is delimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResponseFraming {
    /// No body, whatever the fields say: HEAD, 1xx, 204, 304.
    None,
    /// So many bytes.
    Length(u64),
    /// Chunks.
    Chunked,
    /// Everything until the peer closes.
    UntilClose,
}

/// A parsed response head, reusable like [`super::RequestHead`].
#[derive(Debug, Default)]
pub struct ResponseHead {
    bytes: Vec<u8>,
}

impl ResponseHead {
    /// An empty head.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    /// `Ok(Some(consumed))` when a whole head is at the start of `buf`, `Ok(None)` when more bytes are needed.
    pub fn parse(
        &mut self,
        _buf: &[u8],
        _limits: &HeadLimits,
        _request_method: Method,
    ) -> Result<Option<usize>, HeadError> {
        self.bytes.clear();
        Err(HeadError::Malformed)
    }
    /// The status code, 100 to 999.
    #[must_use]
    pub fn status(&self) -> u16 {
        0
    }
    /// 1xx: another head follows.
    #[must_use]
    pub fn is_informational(&self) -> bool {
        false
    }
    /// How the body is delimited.
    #[must_use]
    pub fn framing(&self) -> ResponseFraming {
        ResponseFraming::None
    }
    /// Whether the connection may carry another request after this response.
    #[must_use]
    pub fn keep_alive(&self) -> bool {
        false
    }
    /// `timeout` of the `Keep-Alive` field, seconds.
    #[must_use]
    pub fn keep_alive_timeout_s(&self) -> Option<u32> {
        None
    }
    /// `max` of the `Keep-Alive` field, requests.
    #[must_use]
    pub fn keep_alive_max(&self) -> Option<u32> {
        None
    }
    /// `text/event-stream`.
    #[must_use]
    pub fn is_event_stream(&self) -> bool {
        false
    }
    /// `application/json`.
    #[must_use]
    pub fn is_json(&self) -> bool {
        false
    }
    /// The first field of this name, given in lower case.
    #[must_use]
    pub fn header(&self, _lower_name: &str) -> Option<&[u8]> {
        None
    }
    /// Every field as it came, in order.
    pub fn headers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        std::iter::empty()
    }
}
