//! Chunked bodies.

use super::ChunkError;

/// Ends the data of a chunk.
pub const CHUNK_END: &[u8] = b"\r\n";
/// Ends a chunked body without trailers.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// How much besides payload a chunked body may carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkLimits {
    /// Bytes of chunk extensions in the whole body.
    pub extension_bytes_max: usize,
    /// Bytes of the trailer section.
    pub trailer_bytes_max: usize,
    /// Fields in the trailer section.
    pub trailers_max: usize,
}

/// What one `feed` did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fed {
    /// Bytes of the input that belong to this body. Less than all of it only when `done`.
    pub consumed: usize,
    /// The body is complete; what follows is the next message.
    pub done: bool,
}

/// Walks raw chunked bytes, cut anywhere.
#[derive(Debug)]
pub struct ChunkedReader {
    limits: ChunkLimits,
}

impl ChunkedReader {
    /// At the start of a body.
    #[must_use]
    pub fn new(limits: ChunkLimits) -> Self {
        Self { limits }
    }
    /// Walks `input`, calls `payload` for each run of payload bytes, stops at the end of the body.
    pub fn feed(
        &mut self,
        _input: &[u8],
        _payload: impl FnMut(&[u8]),
    ) -> Result<Fed, ChunkError> {
        let _ = self.limits;
        Err(ChunkError::Malformed)
    }
    /// `Some(n)`: inside a chunk, with `n` payload bytes to come (the CRLF after them excluded).
    #[must_use]
    pub fn payload_left_in_chunk(&self) -> Option<u64> {
        None
    }
    /// Between two chunks, or before the first: a chunk of our own may be inserted here.
    #[must_use]
    pub fn at_chunk_boundary(&self) -> bool {
        true
    }
    /// Fields seen in the trailer section. They are checked and dropped.
    #[must_use]
    pub fn trailer_fields(&self) -> usize {
        0
    }
    /// Bytes of chunk extensions seen so far; a relay that passes raw bytes on compares this before and after.
    #[must_use]
    pub fn extension_bytes(&self) -> usize {
        0
    }
}

/// Appends the size line of a chunk of `len` bytes.
pub fn write_chunk_head(_out: &mut Vec<u8>, _len: usize) {}
