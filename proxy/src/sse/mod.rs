//! Reads a stream of server-sent events as it passes: where events end, and what each one is. Fed with the payload slices
//! as they arrive, cut anywhere. It never holds a byte back from the relay, never changes one, and remembers only what
//! belongs to an event that is not complete yet, within a fixed bound. An event that arrives in one slice is read where
//! it lies, without a copy.

mod kind;

pub(crate) use kind::value_behind;
pub use kind::{EventKind, Finish};

use crate::api::Dialect;
use crate::limits::{SSE_CARRY_BYTES_MAX, SSE_CARRY_HEAD_BYTES};
use kind::Classified;

/// One complete event.
#[derive(Clone, Copy)]
pub struct Event<'a> {
    /// What it means to the relay.
    pub kind: EventKind,
    /// The text of its `event:` line, empty without one.
    pub name: &'a [u8],
    /// Its data lines, joined by newlines; empty without one.
    pub data: &'a [u8],
    /// Whether its data holds token counts, for [`crate::usage::Meter`].
    pub has_usage: bool,
    /// How generation ended, if this event says so.
    pub finish: Option<Finish>,
    /// The middle of the event was too large to keep and is missing from `data`.
    pub truncated: bool,
}

impl std::fmt::Debug for Event<'_> {
    // What a model says is never logged.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Event")
            .field("kind", &self.kind)
            .field("data_bytes", &self.data.len())
            .field("has_usage", &self.has_usage)
            .field("finish", &self.finish)
            .field("truncated", &self.truncated)
            .finish_non_exhaustive()
    }
}

/// Follows one stream.
pub struct Scanner {
    dialect: Dialect,
    boundary: Boundary,
    carry: Carry,
    joined: Vec<u8>,
    events: u64,
}

impl std::fmt::Debug for Scanner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scanner")
            .field("dialect", &self.dialect)
            .field("events", &self.events)
            .field("carried_bytes", &self.carry.bytes.len())
            .finish_non_exhaustive()
    }
}

impl Scanner {
    /// A scanner at the start of a stream.
    pub fn new(dialect: Dialect) -> Scanner {
        Scanner {
            dialect,
            boundary: Boundary::default(),
            carry: Carry::default(),
            joined: Vec::new(),
            events: 0,
        }
    }

    /// Takes bytes off the front of `input` up to the end of the next event. `None` when `input` is used up; what is left
    /// of an incomplete event has then been remembered. Call until it returns `None`.
    pub fn next<'s, 'i: 's>(&'s mut self, input: &mut &'i [u8]) -> Option<Event<'s>> {
        // An event that was carried was given out by the call before.
        self.carry.drop_complete();
        let (bytes, truncated) = loop {
            let whole = *input;
            let Some(end) = self.boundary.find(whole) else {
                self.carry.add(whole);
                *input = b"";
                return None;
            };
            let (event, rest) = whole.split_at_checked(end).unwrap_or((whole, b""));
            *input = rest;
            if self.carry.is_empty() && is_blank(event) {
                continue;
            }
            if self.carry.is_empty() {
                break (event, false);
            }
            self.carry.add(event);
            self.carry.complete = true;
            break (self.carry.bytes.as_slice(), self.carry.truncated);
        };
        self.events += 1;
        let lines = Lines::of(bytes, &mut self.joined);
        let Classified { kind, has_usage, finish } =
            kind::classify(self.dialect, lines.name, lines.data, truncated);
        Some(Event { kind, name: lines.name, data: lines.data, has_usage, finish, truncated })
    }

    /// Whether the stream stands inside an event: a frame of our own must then be preceded by a blank line.
    pub fn is_inside_event(&self) -> bool {
        !self.carry.is_empty()
    }

    /// Events seen so far, comments included.
    pub fn events(&self) -> u64 {
        self.events
    }
}

fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == b'\n' || byte == b'\r')
}

/// Finds blank lines. A line ends with a line feed, a carriage return, or both together.
#[derive(Debug)]
struct Boundary {
    at_line_start: bool,
    after_return: bool,
}

impl Default for Boundary {
    fn default() -> Boundary {
        Boundary { at_line_start: true, after_return: false }
    }
}

impl Boundary {
    /// The offset behind the next blank line. Remembers where it stands, so that no byte is looked at twice.
    fn find(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = self.rest_of_line_end(bytes, 0);
        loop {
            let rest = bytes.get(at..)?;
            let Some(end) = memchr::memchr2(b'\n', b'\r', rest) else {
                self.at_line_start &= rest.is_empty();
                return None;
            };
            let blank = self.at_line_start && end == 0;
            self.at_line_start = true;
            self.after_return = rest.get(end) == Some(&b'\r');
            at = self.rest_of_line_end(bytes, at + end + 1);
            if blank {
                return Some(at);
            }
        }
    }

    // The line feed of a pair belongs to the line that its carriage return ended.
    fn rest_of_line_end(&mut self, bytes: &[u8], at: usize) -> usize {
        match bytes.get(at) {
            Some(b'\n') if std::mem::take(&mut self.after_return) => at + 1,
            Some(_) => {
                self.after_return = false;
                at
            }
            None => at,
        }
    }
}

/// The beginning of an event whose end has not arrived.
#[derive(Debug, Default)]
struct Carry {
    bytes: Vec<u8>,
    complete: bool,
    truncated: bool,
}

impl Carry {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty() || self.complete
    }

    fn drop_complete(&mut self) {
        if self.complete {
            self.bytes.clear();
            self.complete = false;
            self.truncated = false;
        }
    }

    /// Adds bytes; beyond the bound, the head and as much as fits before the end are kept.
    fn add(&mut self, bytes: &[u8]) {
        if self.bytes.is_empty() && is_blank(bytes) {
            return;
        }
        if self.bytes.len() + bytes.len() <= SSE_CARRY_BYTES_MAX {
            return self.bytes.extend_from_slice(bytes);
        }
        self.truncated = true;
        for piece in bytes.chunks(SSE_CARRY_BYTES_MAX / 4) {
            if self.bytes.len() + piece.len() > SSE_CARRY_BYTES_MAX {
                // Halving instead of sliding keeps the cost per byte constant.
                let cut = (self.bytes.len() / 2).max(SSE_CARRY_HEAD_BYTES);
                self.bytes.drain(SSE_CARRY_HEAD_BYTES.min(cut)..cut);
            }
            self.bytes.extend_from_slice(piece);
        }
    }
}

/// The fields of an event.
struct Lines<'a> {
    name: &'a [u8],
    data: &'a [u8],
}

impl<'a> Lines<'a> {
    fn of(event: &'a [u8], joined: &'a mut Vec<u8>) -> Lines<'a> {
        let (mut name, mut data, mut several): (&[u8], Option<&[u8]>, bool) = (b"", None, false);
        for line in lines(event) {
            match field(line) {
                (b"data", value) => {
                    several |= data.is_some();
                    data = data.or(Some(value));
                }
                (b"event", value) => name = value,
                // Older llama.cpp sent its errors under a field of its own.
                (b"error", value) => (name, data) = (b"error", data.or(Some(value))),
                _ => {}
            }
        }
        if !several {
            return Lines { name, data: data.unwrap_or_default() };
        }
        joined.clear();
        for line in lines(event) {
            if let (b"data", value) = field(line) {
                joined.extend_from_slice(value);
                joined.push(b'\n');
            }
        }
        joined.pop();
        Lines { name, data: joined }
    }
}

// An empty line between the two bytes of a pair does no harm here: it holds no field.
fn lines(event: &[u8]) -> impl Iterator<Item = &[u8]> {
    event.split(|&byte| byte == b'\n' || byte == b'\r').filter(|line| !line.is_empty())
}

fn field(line: &[u8]) -> (&[u8], &[u8]) {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    match memchr::memchr(b':', line).and_then(|colon| line.split_at_checked(colon)) {
        Some((name, rest)) => {
            let value = rest.get(1..).unwrap_or_default();
            (name, value.strip_prefix(b" ").unwrap_or(value))
        }
        None => (line, b""),
    }
}

#[cfg(test)]
mod tests;
