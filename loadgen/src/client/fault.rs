//! The ways a request fails, as a client sees them.

/// What went wrong with one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    /// A short reason for the first example in the report.
    pub(crate) detail: String,
}

/// Kinds of failure, each counted under its own name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum FaultKind {
    /// No connection.
    Connect,
    /// A reused connection was found closed after the request had been written to it.
    DeadConnection,
    /// Reset by the other side.
    Reset,
    /// Closed before the reply's framing said it was over.
    CutShort,
    /// Ended cleanly, but without the dialect's end marker.
    NoTerminator,
    /// A status other than 200.
    Status,
    /// An error carried inside a stream that began with status 200.
    ErrorEvent,
    /// The engine gave the generation up and ended the stream as if nothing were wrong.
    Aborted,
    /// Silence for too long.
    Timeout,
    /// HTTP or chunk framing that cannot be read.
    Framing,
    /// An event that is not what its dialect prescribes: no JSON, no name, after the end.
    BadEvent,
    /// An arrival that was not sent, because too many requests were in flight.
    Overrun,
}

impl FaultKind {
    /// Name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            FaultKind::Connect => "connect",
            FaultKind::DeadConnection => "dead_connection",
            FaultKind::Reset => "reset",
            FaultKind::CutShort => "cut_short",
            FaultKind::NoTerminator => "no_terminator",
            FaultKind::Status => "http_status",
            FaultKind::ErrorEvent => "error_event",
            FaultKind::Aborted => "aborted",
            FaultKind::Timeout => "timeout",
            FaultKind::Framing => "malformed_framing",
            FaultKind::BadEvent => "malformed_event",
            FaultKind::Overrun => "overrun",
        }
    }
}

/// Longest detail kept, in characters.
const DETAIL_CHARS_MAX: usize = 200;

impl Fault {
    pub(crate) fn new(kind: FaultKind, detail: impl AsRef<str>) -> Fault {
        Fault { kind, detail: detail.as_ref().chars().take(DETAIL_CHARS_MAX).collect() }
    }
}
