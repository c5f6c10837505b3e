//! Why a head or a chunked body was refused. Never carries bytes of the peer, so that it can be logged and answered.

use std::fmt;

/// The answer a refused request deserves. On the upstream side every kind means 502.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HeadErrorKind {
    /// 400.
    Bad,
    /// 405, for CONNECT and TRACE.
    MethodNotAllowed,
    /// 414.
    UriTooLong,
    /// 417.
    ExpectationFailed,
    /// 431.
    TooLarge,
    /// 501.
    UnknownCoding,
    /// 505.
    UnsupportedVersion,
}

/// Why a head was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HeadError {
    /// Placeholder while the codec is being written.
    Malformed,
}

impl HeadError {
    /// The class of answer this deserves.
    #[must_use]
    pub fn kind(self) -> HeadErrorKind {
        HeadErrorKind::Bad
    }
}

impl HeadErrorKind {
    /// The status code to answer a client with.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            HeadErrorKind::Bad => 400,
            HeadErrorKind::MethodNotAllowed => 405,
            HeadErrorKind::UriTooLong => 414,
            HeadErrorKind::ExpectationFailed => 417,
            HeadErrorKind::TooLarge => 431,
            HeadErrorKind::UnknownCoding => 501,
            HeadErrorKind::UnsupportedVersion => 505,
        }
    }
}

impl fmt::Display for HeadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("malformed head")
    }
}

impl std::error::Error for HeadError {}

/// Why a chunked body was refused: 400 to a client, 502 when an engine sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChunkError {
    /// Placeholder while the codec is being written.
    Malformed,
}

impl fmt::Display for ChunkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("malformed chunk")
    }
}

impl std::error::Error for ChunkError {}
