//! Why a head or a chunked body was refused. Never carries bytes of the peer, so that it can be
//! logged and answered.

use std::fmt;

/// The kind of answer a refused request deserves; `answer` has its status. The connection is closed after any
/// of them: where this message ends, and so where the next begins, is no longer certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HeadErrorKind {
    /// Malformed, or open to two readings.
    Bad,
    /// CONNECT and TRACE.
    MethodNotAllowed,
    /// A target that is too long.
    UriTooLong,
    /// An expectation besides `100-continue`.
    ExpectationFailed,
    /// Too many or too long fields.
    TooLarge,
    /// A transfer coding that is not known.
    UnknownCoding,
    /// A version that is not spoken.
    UnsupportedVersion,
}

/// Why a head was refused. Section numbers are of RFC 9112 unless another is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HeadError {
    /// More than [`crate::limits::LEADING_EMPTY_LINES_MAX`] empty lines before the start line
    /// (2.2).
    EmptyStartLine,
    /// A line feed without a carriage return before it (2.2 lets a recipient accept it; we do not).
    BareLf,
    /// A carriage return without a line feed after it (2.2).
    BareCr,
    /// Not a token, too long, or a known method in the wrong case (3.1).
    BadMethod,
    /// CONNECT, which would make us a tunnel, or TRACE, which would echo credentials.
    MethodRefused,
    /// A target that is no origin-form, absolute-form or `OPTIONS *`, or holds a byte no URI may
    /// hold (3.2).
    BadTarget,
    /// A path with a dot segment or an encoded NUL, CR or LF: two readers would not agree on what
    /// it names.
    AmbiguousPath,
    /// A request line longer than the limit of a line.
    TargetTooLong,
    /// A start line whose version is no version (2.3).
    BadVersion,
    /// A version other than 1.0 and 1.1, the HTTP/2 preface included.
    UnsupportedVersion,
    /// A status line that is none (4).
    BadStatusLine,
    /// `101 Switching Protocols`, though an upgrade is never asked for.
    UnaskedUpgrade,
    /// A header line that continues the one before it (5.2).
    ObsFold,
    /// An empty name, no colon, a blank before the colon, or a byte no token may hold (5.1).
    BadHeaderName,
    /// A control character in a value (RFC 9110, 5.5).
    BadHeaderValue,
    /// A name that spells a framing field with other punctuation, which some servers take for it.
    AliasedName,
    /// A header line longer than the limit of a line.
    LineTooLong,
    /// No end of the head within its limit.
    HeadTooLarge,
    /// More fields than the limit.
    TooManyHeaders,
    /// HTTP/1.1 without Host (3.2).
    MissingHost,
    /// Two Host fields (3.2).
    DuplicateHost,
    /// A Host that is no `host[:port]`: empty, a list, with user information, with a path (3.2).
    BadHost,
    /// An absolute-form target that names another authority than Host (3.2.2).
    HostMismatch,
    /// A Connection field that is no list of tokens, is too long, or lists a field that frames or
    /// routes.
    BadConnection,
    /// A Content-Length that is not a plain decimal number below 2^64 (6.3).
    BadContentLength,
    /// Two Content-Length fields, equal or not (6.3).
    DuplicateContentLength,
    /// Content-Length and Transfer-Encoding together (6.3).
    LengthAndCoding,
    /// A Transfer-Encoding whose last and only `chunked` is not at its end, or that is no list at
    /// all (6.1).
    BadTransferEncoding,
    /// A Transfer-Encoding with a coding other than `chunked` (6.1).
    UnknownCoding,
    /// A Transfer-Encoding in an HTTP/1.0 message (6.1).
    CodingOnHttp10,
    /// A body on a method without one; some engines leave it unread and take it for the next
    /// request.
    BodyNotAllowed,
    /// An Expect other than `100-continue` (RFC 9110, 10.1.1).
    UnknownExpectation,
}

impl HeadError {
    /// The class of answer this deserves.
    #[must_use]
    pub fn kind(self) -> HeadErrorKind {
        match self {
            Self::MethodRefused => HeadErrorKind::MethodNotAllowed,
            Self::TargetTooLong => HeadErrorKind::UriTooLong,
            Self::UnknownExpectation => HeadErrorKind::ExpectationFailed,
            Self::LineTooLong | Self::HeadTooLarge | Self::TooManyHeaders => {
                HeadErrorKind::TooLarge
            }
            Self::UnknownCoding => HeadErrorKind::UnknownCoding,
            Self::UnsupportedVersion => HeadErrorKind::UnsupportedVersion,
            _ => HeadErrorKind::Bad,
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Self::EmptyStartLine => "empty lines before the start line",
            Self::BareLf => "line feed without carriage return",
            Self::BareCr => "carriage return without line feed",
            Self::BadMethod => "malformed method",
            Self::MethodRefused => "method not supported",
            Self::BadTarget => "malformed request target",
            Self::AmbiguousPath => "ambiguous path",
            Self::TargetTooLong => "request line too long",
            Self::BadVersion => "malformed version",
            Self::UnsupportedVersion => "HTTP version not supported",
            Self::BadStatusLine => "malformed status line",
            Self::UnaskedUpgrade => "protocol switch that was not asked for",
            Self::ObsFold => "folded header line",
            Self::BadHeaderName => "malformed header name",
            Self::BadHeaderValue => "malformed header value",
            Self::AliasedName => "header name that imitates a framing field",
            Self::LineTooLong => "header line too long",
            Self::HeadTooLarge => "head too large",
            Self::TooManyHeaders => "too many headers",
            Self::MissingHost => "missing Host",
            Self::DuplicateHost => "more than one Host",
            Self::BadHost => "malformed Host",
            Self::HostMismatch => "request target and Host differ",
            Self::BadConnection => "malformed Connection",
            Self::BadContentLength => "malformed Content-Length",
            Self::DuplicateContentLength => "more than one Content-Length",
            Self::LengthAndCoding => "both Content-Length and Transfer-Encoding",
            Self::BadTransferEncoding => "malformed Transfer-Encoding",
            Self::UnknownCoding => "transfer coding not supported",
            Self::CodingOnHttp10 => "Transfer-Encoding in an HTTP/1.0 message",
            Self::BodyNotAllowed => "body on a method that has none",
            Self::UnknownExpectation => "expectation not supported",
        }
    }
}

impl fmt::Display for HeadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl std::error::Error for HeadError {}

/// Why a chunked body was refused: 400 to a client, 502 when an engine sent it. RFC 9112, 7.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChunkError {
    /// A size line that does not start with a hexadecimal digit, or holds something else before its
    /// end or its `;`.
    BadSize,
    /// A size of more than sixteen digits, which no u64 holds.
    SizeOverflow,
    /// A line that does not end in CRLF.
    BadLineEnd,
    /// An extension without a name, or with a control character.
    BadExtension,
    /// Extensions beyond the limit of a body.
    ExtensionTooLong,
    /// No CRLF right after the payload of a chunk.
    BadDataEnd,
    /// A trailer line that is no field.
    BadTrailer,
    /// Trailers beyond their limits.
    TrailersTooLarge,
}

impl fmt::Display for ChunkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BadSize => "malformed chunk size",
            Self::SizeOverflow => "chunk size too large",
            Self::BadLineEnd => "chunk line not ended by CRLF",
            Self::BadExtension => "malformed chunk extension",
            Self::ExtensionTooLong => "chunk extensions too long",
            Self::BadDataEnd => "chunk data not ended by CRLF",
            Self::BadTrailer => "malformed trailer",
            Self::TrailersTooLarge => "trailers too large",
        })
    }
}

impl std::error::Error for ChunkError {}
