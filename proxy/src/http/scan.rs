//! Finds the end of a head, line by line, and refuses on the way what the field parser would let
//! pass: bare LF, bare CR, folded lines, and anything over a limit. A verdict depends on the bytes
//! up to the offending one only, never on how reads cut them, so a bad head is refused as soon as
//! its bad byte is here.

use super::HeadLimits;
use super::error::HeadError;
use crate::limits::HEAD_BYTES_CEILING;

/// Where the parts of a whole head are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HeadBounds {
    /// First byte of the start line.
    pub(super) start: usize,
    /// First byte of the first header line.
    pub(super) fields: usize,
    /// One past the empty line.
    pub(super) end: usize,
    /// Header lines.
    pub(super) lines: usize,
}

/// What differs between the heads of requests and of responses.
pub(super) trait StartLine {
    /// Empty lines to pass over before the start line.
    const LEADING_EMPTY_LINES_MAX: usize;
    /// What a start line over the limit of a line is.
    const TOO_LONG: HeadError;
    /// Judges the first bytes of a start line whose end may not be here yet.
    fn check_prefix(prefix: &[u8]) -> Result<(), HeadError>;
    /// Reads a whole start line, without its CRLF.
    fn read(&mut self, line: &[u8]) -> Result<(), HeadError>;
}

/// Finds the head at the start of `buf`. `Ok(None)`: not all of it is here, and what is here is
/// fine so far.
pub(super) fn scan<S: StartLine>(
    buf: &[u8],
    limits: &HeadLimits,
    start_line: &mut S,
) -> Result<Option<HeadBounds>, HeadError> {
    let bytes_max = limits.bytes_max.min(HEAD_BYTES_CEILING);
    // Bytes beyond the limit are not looked at, so that a head over it gets one verdict however
    // much of it has arrived.
    let window = buf.get(..bytes_max).unwrap_or(buf);
    let bounds = scan_window(window, limits, start_line)?;
    if bounds.is_none() && window.len() >= bytes_max {
        return Err(HeadError::HeadTooLarge);
    }
    Ok(bounds)
}

fn scan_window<S: StartLine>(
    window: &[u8],
    limits: &HeadLimits,
    start_line: &mut S,
) -> Result<Option<HeadBounds>, HeadError> {
    let Some(start) = skip_empty_lines(window, S::LEADING_EMPTY_LINES_MAX)? else {
        return Ok(None);
    };
    S::check_prefix(tail(window, start))?;
    let Some(line) = next_line(tail(window, start), limits.line_bytes_max, S::TOO_LONG)? else {
        return Ok(None);
    };
    start_line.read(line)?;
    let fields = start + line.len() + 2;
    let mut at = fields;
    let mut lines = 0;
    loop {
        let rest = tail(window, at);
        if matches!(rest, [b' ' | b'\t', ..]) {
            return Err(HeadError::ObsFold);
        }
        // A line that has begun and is not the empty one is one more field, complete or not.
        if lines >= limits.headers_max && !rest.is_empty() && !rest.starts_with(b"\r") {
            return Err(HeadError::TooManyHeaders);
        }
        let Some(line) = next_line(rest, limits.line_bytes_max, HeadError::LineTooLong)? else {
            return Ok(None);
        };
        at += line.len() + 2;
        if line.is_empty() {
            return Ok(Some(HeadBounds { start, fields, end: at, lines }));
        }
        lines += 1;
    }
}

/// The offset of the first byte that is not part of a leading empty line, `None` when that byte is
/// not here yet.
fn skip_empty_lines(window: &[u8], lines_max: usize) -> Result<Option<usize>, HeadError> {
    let mut at = 0;
    loop {
        match tail(window, at) {
            [] | [b'\r'] => return Ok(None),
            [b'\r', b'\n', ..] if at / 2 >= lines_max => return Err(HeadError::EmptyStartLine),
            [b'\r', b'\n', ..] => at += 2,
            _ => return Ok(Some(at)),
        }
    }
}

/// The line at the start of `rest` without its CRLF, `None` when its end is not here yet.
fn next_line(
    rest: &[u8],
    line_bytes_max: usize,
    too_long: HeadError,
) -> Result<Option<&[u8]>, HeadError> {
    // What counts against the limit is the line with its CRLF, the way the strictest engines count.
    let content_max = line_bytes_max.saturating_sub(2);
    let Some(stop) = memchr::memchr2(b'\r', b'\n', rest) else {
        return if rest.len() > content_max { Err(too_long) } else { Ok(None) };
    };
    if stop > content_max {
        return Err(too_long);
    }
    match tail(rest, stop) {
        [b'\r', b'\n', ..] => Ok(rest.get(..stop)),
        [b'\r'] => Ok(None),
        [b'\r', ..] => Err(HeadError::BareCr),
        _ => Err(HeadError::BareLf),
    }
}

fn tail(bytes: &[u8], from: usize) -> &[u8] {
    bytes.get(from..).unwrap_or_default()
}
