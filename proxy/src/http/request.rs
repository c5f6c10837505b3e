//! The head of a request, parsed and judged: once `parse` says yes there is one way to read it, and
//! it has been read.

use super::HeadLimits;
use super::control::Control;
use super::error::HeadError;
use super::field::{FieldClass, FieldTable, Span};
use super::scan::{self, StartLine};
use super::start_line::{Method, RequestLine, Version, check_method_prefix, parse_request_line};
use super::target::{Target, is_authority, parse_target, path_of};
use crate::limits::LEADING_EMPTY_LINES_MAX;

/// How the body of a request is delimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum RequestFraming {
    /// No body.
    #[default]
    None,
    /// So many bytes; zero when the client said so.
    Length(u64),
    /// Chunks.
    Chunked,
}

/// A parsed request head. Reuse one per connection: `parse` replaces the content and, after
/// warm-up, allocates nothing.
#[derive(Debug, Default)]
pub struct RequestHead {
    table: FieldTable,
    line: LineParts,
    control: Control,
    framing: RequestFraming,
}

/// The request line as offsets into the copied head.
#[derive(Debug, Clone, Copy, Default)]
struct LineParts {
    method: Method,
    method_span: Span,
    target: Span,
    version: Version,
}

impl StartLine for LineParts {
    const LEADING_EMPTY_LINES_MAX: usize = LEADING_EMPTY_LINES_MAX;
    const TOO_LONG: HeadError = HeadError::TargetTooLong;

    fn check_prefix(prefix: &[u8]) -> Result<(), HeadError> {
        check_method_prefix(prefix)
    }

    fn read(&mut self, line: &[u8]) -> Result<(), HeadError> {
        let RequestLine { method, method_bytes, target, version } = parse_request_line(line)?;
        parse_target(target, method)?;
        let target_at = method_bytes.len() + 1;
        *self = Self {
            method,
            method_span: Span::new(0, method_bytes.len()),
            target: Span::new(target_at, target_at + target.len()),
            version,
        };
        Ok(())
    }
}

impl RequestHead {
    /// An empty head; every accessor answers with nothing until `parse` has found a head.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the head at the start of `buf`: `Ok(Some(consumed))` when it is whole, `Ok(None)` when
    /// it needs more bytes (call again with all of them) and what is here is within `limits`
    /// and fine so far.
    ///
    /// # Errors
    /// The head is not to be served. Content from before is gone in every case, so no request can
    /// see another's fields.
    pub fn parse(&mut self, buf: &[u8], limits: &HeadLimits) -> Result<Option<usize>, HeadError> {
        self.clear();
        let parsed = self.try_parse(buf, limits);
        if !matches!(parsed, Ok(Some(_))) {
            self.clear();
        }
        parsed
    }

    fn clear(&mut self) {
        self.table.clear();
        self.line = LineParts::default();
        self.control = Control::default();
        self.framing = RequestFraming::None;
    }

    fn try_parse(&mut self, buf: &[u8], limits: &HeadLimits) -> Result<Option<usize>, HeadError> {
        let Some(bounds) = scan::scan(buf, limits, &mut self.line)? else {
            return Ok(None);
        };
        let head = buf.get(bounds.start..bounds.end).unwrap_or_default();
        let fields_at = bounds.fields - bounds.start;
        self.table.load(head, fields_at, bounds.lines, limits.line_bytes_max)?;
        self.control = Control::read(&mut self.table, self.line.version)?;
        self.check_host()?;
        self.normalise_target()?;
        self.framing = self.decide_framing()?;
        Ok(Some(bounds.end))
    }

    /// One Host that is an authority, on HTTP/1.0 possibly none (RFC 9112, 3.2).
    fn check_host(&self) -> Result<(), HeadError> {
        match (self.control.hosts, self.host()) {
            (0, _) if self.line.version == Version::Http10 => Ok(()),
            (0, _) => Err(HeadError::MissingHost),
            (1, Some(host)) if is_authority(host) => Ok(()),
            (1, _) => Err(HeadError::BadHost),
            _ => Err(HeadError::DuplicateHost),
        }
    }

    /// Brings an absolute-form target into origin-form, given that Host names the same authority.
    /// RFC 9112, 3.2.2 lets the target win over Host; a client that sends both different is
    /// refused instead, since no honest one does.
    fn normalise_target(&mut self) -> Result<(), HeadError> {
        let target = self.table.text(self.line.target);
        let Target::Absolute { authority, rest } = parse_target(target, self.line.method)? else {
            return Ok(());
        };
        if self.host().is_some_and(|host| !host.eq_ignore_ascii_case(authority)) {
            return Err(HeadError::HostMismatch);
        }
        self.line.target = match rest {
            // Of a server as a whole, OPTIONS asks with an asterisk (RFC 9112, 3.2.4).
            [] if self.line.method == Method::Options => self.table.append(b"*", Span::default()),
            [b'/', ..] => self.line.target.last(rest.len()),
            _ => self.table.append(b"/", self.line.target.last(rest.len())),
        };
        Ok(())
    }

    fn decide_framing(&self) -> Result<RequestFraming, HeadError> {
        if self.control.unknown_expectation {
            return Err(HeadError::UnknownExpectation);
        }
        let framing = match (self.control.chunked, self.control.content_length) {
            (true, _) => RequestFraming::Chunked,
            (false, Some(length)) => RequestFraming::Length(length),
            (false, None) => RequestFraming::None,
        };
        let has_body = !matches!(framing, RequestFraming::None | RequestFraming::Length(0));
        if has_body && !self.line.method.may_have_body() {
            return Err(HeadError::BodyNotAllowed);
        }
        Ok(framing)
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> Method {
        self.line.method
    }

    /// The method as it was sent.
    #[must_use]
    pub fn method_bytes(&self) -> &[u8] {
        self.table.text(self.line.method_span)
    }

    /// The target in origin-form (path and query) or `*`, whatever form it was sent in.
    #[must_use]
    pub fn target(&self) -> &[u8] {
        self.table.text(self.line.target)
    }

    /// The target up to its `?`.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        path_of(self.target())
    }

    /// The target after its first `?`, `None` without one.
    #[must_use]
    pub fn query(&self) -> Option<&[u8]> {
        self.target().get(self.path().len() + 1..)
    }

    /// The client's version.
    #[must_use]
    pub fn version(&self) -> Version {
        self.line.version
    }

    /// The authority the client asked for; only on HTTP/1.0 `None`.
    #[must_use]
    pub fn host(&self) -> Option<&[u8]> {
        self.control.host.map(|host| self.table.text(host))
    }

    /// How the body is delimited.
    #[must_use]
    pub fn framing(&self) -> RequestFraming {
        self.framing
    }

    /// Whether the client means to use the connection again (RFC 9112, 9.3).
    #[must_use]
    pub fn keep_alive(&self) -> bool {
        self.control.persists(self.line.version)
    }

    /// Whether the client waits for `100 Continue` before it sends its body. Never on HTTP/1.0 or
    /// without a body (RFC 9110, 10.1.1).
    #[must_use]
    pub fn expects_continue(&self) -> bool {
        let waits = !matches!(self.framing, RequestFraming::None | RequestFraming::Length(0));
        self.control.expects_continue && waits && self.line.version == Version::Http11
    }

    /// Whether the client said `TE: trailers`.
    #[must_use]
    pub fn accepts_trailers(&self) -> bool {
        self.control.accepts_trailers
    }

    /// The value of the first field of this name, given in lower case.
    #[must_use]
    pub fn header(&self, lower_name: &str) -> Option<&[u8]> {
        self.table.get(lower_name)
    }

    /// The media type of the body, as sent.
    #[must_use]
    pub fn content_type(&self) -> Option<&[u8]> {
        self.table.first(FieldClass::ContentType)
    }

    /// Every field as it came, in order, hop-by-hop ones included: the name as the client spelled
    /// it, the value without the blanks around it.
    pub fn headers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.table.iter()
    }

    pub(super) fn table(&self) -> &FieldTable {
        &self.table
    }
}
