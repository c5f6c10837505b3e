//! Request targets and authorities (RFC 9112, 3.2): what a request names, in one spelling.

use super::error::HeadError;
use super::start_line::Method;

/// A target that was understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target<'a> {
    /// `/path?query`.
    Origin(&'a [u8]),
    /// `http://authority/path?query`; the second part is in origin-form, or starts with `?`, or is
    /// empty.
    Absolute { authority: &'a [u8], rest: &'a [u8] },
    /// `*`.
    Asterisk,
}

/// Reads the target of a request.
pub(super) fn parse_target(target: &[u8], method: Method) -> Result<Target<'_>, HeadError> {
    // `#` never travels in a target; a backslash is a slash to some readers and not to others.
    let allowed = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'#' | b'\\');
    if !target.iter().all(allowed) {
        return Err(HeadError::BadTarget);
    }
    let parsed = match target {
        b"*" if method == Method::Options => Target::Asterisk,
        [b'/', ..] => Target::Origin(target),
        _ => parse_absolute(target)?,
    };
    match parsed {
        Target::Origin(rest) | Target::Absolute { rest, .. } => check_path(path_of(rest))?,
        Target::Asterisk => {}
    }
    Ok(parsed)
}

fn parse_absolute(target: &[u8]) -> Result<Target<'_>, HeadError> {
    let scheme_end = memchr::memmem::find(target, b"://").ok_or(HeadError::BadTarget)?;
    let (scheme, after) = target.split_at_checked(scheme_end).ok_or(HeadError::BadTarget)?;
    if !scheme.eq_ignore_ascii_case(b"http") && !scheme.eq_ignore_ascii_case(b"https") {
        return Err(HeadError::BadTarget);
    }
    let after = after.get(3..).unwrap_or_default();
    let end = memchr::memchr2(b'/', b'?', after).unwrap_or(after.len());
    let (authority, rest) = after.split_at_checked(end).ok_or(HeadError::BadTarget)?;
    if is_authority(authority) {
        Ok(Target::Absolute { authority, rest })
    } else {
        Err(HeadError::BadTarget)
    }
}

/// A target up to its `?`.
pub(super) fn path_of(target: &[u8]) -> &[u8] {
    let end = memchr::memchr(b'?', target).unwrap_or(target.len());
    target.get(..end).unwrap_or_default()
}

/// Refuses paths that two readers would resolve differently. Clients resolve dot segments before
/// they send (RFC 3986, 5.2.4), so one on the wire is an attempt to name one route here and another
/// at the engine.
fn check_path(path: &[u8]) -> Result<(), HeadError> {
    if memchr::memchr2(b'.', b'%', path).is_none() {
        return Ok(());
    }
    let dotted = path.split(|&byte| byte == b'/').any(is_dot_segment);
    let control = memchr::memchr_iter(b'%', path).any(|at| {
        matches!(path.get(at + 1..at + 3), Some([b'0', b'0' | b'a' | b'A' | b'd' | b'D']))
    });
    if dotted || control { Err(HeadError::AmbiguousPath) } else { Ok(()) }
}

/// Whether a path segment is `.` or `..`, spelled plainly or percent-encoded.
fn is_dot_segment(mut segment: &[u8]) -> bool {
    let mut dots = 0;
    while let [b'.', rest @ ..] | [b'%', b'2', b'e' | b'E', rest @ ..] = segment {
        segment = rest;
        dots += 1;
    }
    segment.is_empty() && matches!(dots, 1 | 2)
}

/// Whether `authority` is `host[:port]` and nothing more: no user information, no list, no path.
/// Registered names are held to letters, digits, `-`, `.`, `_` and `~`; the percent codes RFC 3986
/// would allow name no host one can reach.
pub(super) fn is_authority(authority: &[u8]) -> bool {
    if let [b'[', rest @ ..] = authority {
        let Some(end) = memchr::memchr(b']', rest) else { return false };
        let (address, port) = rest.split_at_checked(end).unwrap_or_default();
        let hexadecimal = |byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
        return !address.is_empty()
            && address.iter().all(hexadecimal)
            && is_port_suffix(port.get(1..).unwrap_or_default());
    }
    let end = memchr::memchr(b':', authority).unwrap_or(authority.len());
    let (name, port) = authority.split_at_checked(end).unwrap_or_default();
    let plain =
        |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    !name.is_empty() && name.iter().all(plain) && is_port_suffix(port)
}

/// Nothing, or `:` and a port number.
fn is_port_suffix(suffix: &[u8]) -> bool {
    match suffix {
        [] => true,
        [b':', digits @ ..] => {
            (1..=5).contains(&digits.len())
                && digits.iter().all(u8::is_ascii_digit)
                && digits.iter().fold(0_u32, |sum, digit| sum * 10 + u32::from(digit - b'0'))
                    <= u32::from(u16::MAX)
        }
        _ => false,
    }
}
