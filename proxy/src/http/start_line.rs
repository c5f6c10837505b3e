//! Request and status lines: one blank between the parts, nothing else (RFC 9112, sections 3 and
//! 4).

use super::error::HeadError;
use super::grammar::{is_token_byte, is_value};
use crate::limits::METHOD_BYTES_MAX;

/// The version a peer speaks. Everything else is refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    #[default]
    Http11,
}

/// Methods that change how a message is framed or routed. CONNECT and TRACE never get this far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Method {
    /// GET.
    Get,
    /// HEAD: the response has no body, whatever its fields say.
    Head,
    /// POST.
    Post,
    /// PUT.
    Put,
    /// PATCH.
    Patch,
    /// DELETE.
    Delete,
    /// OPTIONS.
    Options,
    /// Any other token.
    #[default]
    Other,
}

impl Method {
    /// Whether a request of this method may carry a body here. For the others some engines never
    /// read one, and would take it for the next request on the connection.
    #[must_use]
    pub fn may_have_body(self) -> bool {
        matches!(self, Self::Post | Self::Put | Self::Patch | Self::Delete)
    }
}

/// The parts of a request line, as offsets into it.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestLine<'a> {
    pub(super) method: Method,
    pub(super) method_bytes: &'a [u8],
    pub(super) target: &'a [u8],
    pub(super) version: Version,
}

/// Refuses the start of a request line that cannot become one: TLS on the plain port, a blank, an
/// endless method.
pub(super) fn check_method_prefix(prefix: &[u8]) -> Result<(), HeadError> {
    let length = prefix.iter().take_while(|&&byte| is_token_byte(byte)).count();
    let ended = prefix.len() > length;
    let ends_well = prefix.get(length).is_none_or(|&byte| byte == b' ');
    let fits = length <= METHOD_BYTES_MAX && !(ended && length == 0);
    if fits && ends_well { Ok(()) } else { Err(HeadError::BadMethod) }
}

/// Reads `method SP target SP version`.
pub(super) fn parse_request_line(line: &[u8]) -> Result<RequestLine<'_>, HeadError> {
    let (method_bytes, rest) = split_at_blank(line).ok_or(HeadError::BadMethod)?;
    let (target, version) = split_at_blank(rest).ok_or(HeadError::BadVersion)?;
    let version = parse_version(version)?;
    let method = parse_method(method_bytes)?;
    if target.is_empty() {
        return Err(HeadError::BadTarget);
    }
    Ok(RequestLine { method, method_bytes, target, version })
}

fn split_at_blank(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let blank = memchr::memchr(b' ', bytes)?;
    Some((bytes.get(..blank)?, bytes.get(blank + 1..)?))
}

fn parse_version(version: &[u8]) -> Result<Version, HeadError> {
    match version {
        b"HTTP/1.1" => Ok(Version::Http11),
        b"HTTP/1.0" => Ok(Version::Http10),
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Err(HeadError::UnsupportedVersion)
        }
        _ => Err(HeadError::BadVersion),
    }
}

fn parse_method(method: &[u8]) -> Result<Method, HeadError> {
    match method {
        b"GET" => Ok(Method::Get),
        b"HEAD" => Ok(Method::Head),
        b"POST" => Ok(Method::Post),
        b"PUT" => Ok(Method::Put),
        b"PATCH" => Ok(Method::Patch),
        b"DELETE" => Ok(Method::Delete),
        b"OPTIONS" => Ok(Method::Options),
        b"CONNECT" | b"TRACE" => Err(HeadError::MethodRefused),
        // Methods are case-sensitive, but not every server knows: `get` may be GET elsewhere and is
        // nothing here.
        _ if method.iter().any(u8::is_ascii_lowercase) => Err(HeadError::BadMethod),
        _ => Ok(Method::Other),
    }
}

/// The parts of a status line.
#[derive(Debug, Clone, Copy)]
pub(super) struct StatusLine<'a> {
    pub(super) version: Version,
    pub(super) status: u16,
    pub(super) reason: &'a [u8],
}

/// Refuses bytes that cannot become a status line.
pub(super) fn check_version_prefix(prefix: &[u8]) -> Result<(), HeadError> {
    const START: &[u8] = b"HTTP/";
    let same = prefix.iter().zip(START).all(|(byte, wanted)| byte == wanted);
    if same { Ok(()) } else { Err(HeadError::BadStatusLine) }
}

/// Reads `version SP status [SP [reason]]`.
pub(super) fn parse_status_line(line: &[u8]) -> Result<StatusLine<'_>, HeadError> {
    let (version, rest) = split_at_blank(line).ok_or(HeadError::BadStatusLine)?;
    let version = parse_version(version)?;
    let (digits, reason) = match rest {
        [a, b, c] => ([*a, *b, *c], &[][..]),
        [a, b, c, b' ', reason @ ..] => ([*a, *b, *c], reason),
        _ => return Err(HeadError::BadStatusLine),
    };
    let status = digits.iter().try_fold(0_u16, |sum, digit| {
        digit.is_ascii_digit().then(|| sum * 10 + u16::from(digit - b'0'))
    });
    match status {
        Some(status @ 100..) if is_value(reason) => Ok(StatusLine { version, status, reason }),
        _ => Err(HeadError::BadStatusLine),
    }
}
