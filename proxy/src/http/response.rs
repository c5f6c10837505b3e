//! The head of a response. An engine is trusted more than a client and still held to the same
//! grammar: a head that can be read in two ways would let one client's reply become another's.

use super::HeadLimits;
use super::control::Control;
use super::error::HeadError;
use super::field::{FieldClass, FieldTable, Span};
use super::grammar::trim_blanks;
use super::scan::{self, StartLine};
use super::start_line::{Method, Version, check_version_prefix, parse_status_line};

/// How the body of a response is delimited (RFC 9112, 6.3).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum ResponseFraming {
    /// No body, whatever the fields say: the answer to HEAD, 1xx, 204, 304.
    #[default]
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
    table: FieldTable,
    line: LineParts,
    control: Control,
    framing: ResponseFraming,
}

/// The status line; the reason as an offset into the copied head.
#[derive(Debug, Clone, Copy, Default)]
struct LineParts {
    version: Version,
    status: u16,
    reason: Span,
}

impl StartLine for LineParts {
    const LEADING_EMPTY_LINES_MAX: usize = 0;
    const TOO_LONG: HeadError = HeadError::LineTooLong;

    fn check_prefix(prefix: &[u8]) -> Result<(), HeadError> {
        check_version_prefix(prefix)
    }

    fn read(&mut self, line: &[u8]) -> Result<(), HeadError> {
        let parsed = parse_status_line(line)?;
        // We never forward Upgrade, so a backend that switches protocols has lost the thread.
        if parsed.status == 101 {
            return Err(HeadError::UnaskedUpgrade);
        }
        let reason_at = line.len() - parsed.reason.len();
        *self = Self {
            version: parsed.version,
            status: parsed.status,
            reason: Span::new(reason_at, line.len()),
        };
        Ok(())
    }
}

impl ResponseHead {
    /// An empty head; every accessor answers with nothing until `parse` has found a head.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the head at the start of `buf`, the answer to a request of `request_method`:
    /// `Ok(Some(consumed))` when it is whole, `Ok(None)` when it needs more bytes (call again
    /// with all of them). After a 1xx head another one follows.
    ///
    /// # Errors
    /// The response is not to be relayed and its connection not to be used again.
    pub fn parse(
        &mut self,
        buf: &[u8],
        limits: &HeadLimits,
        request_method: Method,
    ) -> Result<Option<usize>, HeadError> {
        self.clear();
        let parsed = self.try_parse(buf, limits, request_method);
        if !matches!(parsed, Ok(Some(_))) {
            self.clear();
        }
        parsed
    }

    fn clear(&mut self) {
        self.table.clear();
        self.line = LineParts::default();
        self.control = Control::default();
        self.framing = ResponseFraming::None;
    }

    fn try_parse(
        &mut self,
        buf: &[u8],
        limits: &HeadLimits,
        request_method: Method,
    ) -> Result<Option<usize>, HeadError> {
        let Some(bounds) = scan::scan(buf, limits, &mut self.line)? else {
            return Ok(None);
        };
        let head = buf.get(bounds.start..bounds.end).unwrap_or_default();
        let fields_at = bounds.fields - bounds.start;
        self.table.load(head, fields_at, bounds.lines, limits.line_bytes_max)?;
        self.control = Control::read(&mut self.table, self.line.version)?;
        self.framing = self.decide_framing(request_method);
        Ok(Some(bounds.end))
    }

    fn decide_framing(&self, request_method: Method) -> ResponseFraming {
        if request_method == Method::Head || has_no_body(self.line.status) {
            return ResponseFraming::None;
        }
        match (self.control.chunked, self.control.content_length) {
            (true, _) => ResponseFraming::Chunked,
            (false, Some(length)) => ResponseFraming::Length(length),
            (false, None) => ResponseFraming::UntilClose,
        }
    }

    /// The status code, 100 to 999; 0 before a head was parsed.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.line.status
    }

    /// The reason phrase, often empty. Free of control characters.
    #[must_use]
    pub fn reason(&self) -> &[u8] {
        self.table.text(self.line.reason)
    }

    /// The peer's version.
    #[must_use]
    pub fn version(&self) -> Version {
        self.line.version
    }

    /// 1xx: another head follows.
    #[must_use]
    pub fn is_informational(&self) -> bool {
        (100..200).contains(&self.line.status)
    }

    /// How the body is delimited.
    #[must_use]
    pub fn framing(&self) -> ResponseFraming {
        self.framing
    }

    /// Whether the connection may carry another request once this response has been read: the peer
    /// said so, the body has an end of its own, and no status without a body announces one.
    #[must_use]
    pub fn keep_alive(&self) -> bool {
        self.line.status != 0
            && self.framing != ResponseFraming::UntilClose
            && !self.announces_an_impossible_body()
            && self.control.persists(self.line.version)
    }

    /// 1xx and 204 never have a body, and unlike HEAD and 304 do not describe one either (RFC 9110,
    /// 8.6). A peer that announces one may well send it.
    fn announces_an_impossible_body(&self) -> bool {
        let announced = self.control.chunked || self.control.content_length.unwrap_or(0) > 0;
        announced && has_no_body(self.line.status) && self.line.status != 304
    }

    /// `timeout` of the Keep-Alive field, seconds.
    #[must_use]
    pub fn keep_alive_timeout_s(&self) -> Option<u32> {
        self.control.keep_alive_timeout_s
    }

    /// `max` of the Keep-Alive field, requests still allowed on the connection.
    #[must_use]
    pub fn keep_alive_max(&self) -> Option<u32> {
        self.control.keep_alive_max
    }

    /// The length the fields announce, also where there is no body (HEAD, 304).
    #[must_use]
    pub fn content_length(&self) -> Option<u64> {
        self.control.content_length
    }

    /// Whether the body is `text/event-stream`.
    #[must_use]
    pub fn is_event_stream(&self) -> bool {
        self.media_type_is(b"text/event-stream")
    }

    /// Whether the body is `application/json`.
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.media_type_is(b"application/json")
    }

    fn media_type_is(&self, wanted: &[u8]) -> bool {
        self.table.first(FieldClass::ContentType).is_some_and(|value| {
            let media_type = value.split(|&byte| byte == b';').next().unwrap_or_default();
            trim_blanks(media_type).eq_ignore_ascii_case(wanted)
        })
    }

    /// The value of the first field of this name, given in lower case.
    #[must_use]
    pub fn header(&self, lower_name: &str) -> Option<&[u8]> {
        self.table.get(lower_name)
    }

    /// Every field as it came, in order, hop-by-hop ones included.
    pub fn headers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.table.iter()
    }

    /// Bytes of memory it holds on to.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
    }

    pub(super) fn table(&self) -> &FieldTable {
        &self.table
    }
}

/// Whether a response of this status ends with its head.
pub(super) fn has_no_body(status: u16) -> bool {
    matches!(status, 100..200 | 204 | 304)
}
