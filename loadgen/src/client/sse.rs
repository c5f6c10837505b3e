//! Incremental reading of Server-Sent Events.
//!
//! Bytes arrive in pieces of any size; each event is handed out once, as slices, as soon as its
//! blank line is seen. It never interprets the data and holds at most one unfinished event. Of comments it knows one: the time
//! at which a simulated engine wrote the event.
//! Format: HTML Living Standard, 9.2.6 "Interpreting an event stream".

use crate::engine::shapes::events::STAMP;

/// Largest event held; more is a malformed stream, not a reason to grow.
pub(crate) const EVENT_BYTES_MAX: usize = 8 << 20;

/// One event as it stood on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event<'a> {
    /// Value of the last `event:` line, empty without one.
    pub(crate) name: &'a [u8],
    /// The `data:` lines, joined by line feeds.
    pub(crate) data: &'a [u8],
    /// When a simulated engine wrote it, microseconds since 1970, if it says so.
    pub(crate) written_us: Option<u64>,
}

/// The stream holds an event larger than [`EVENT_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

/// Parser state between two pieces.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    /// An unfinished line.
    line: Vec<u8>,
    name: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    written_us: Option<u64>,
    /// The last piece ended in a carriage return, whose line feed may still come.
    after_return: bool,
}

impl Parser {
    /// Takes the next piece and calls `each` for every event it completes.
    pub(crate) fn feed(
        &mut self,
        mut piece: &[u8],
        mut each: impl FnMut(Event<'_>),
    ) -> Result<(), TooLarge> {
        if piece.is_empty() {
            return Ok(());
        }
        if std::mem::take(&mut self.after_return) {
            piece = piece.strip_prefix(b"\n").unwrap_or(piece);
        }
        while let Some(end) = memchr::memchr2(b'\n', b'\r', piece) {
            let (line, rest) = piece.split_at(end);
            piece = self.after_line_end(rest);
            if self.line.is_empty() {
                self.take_line(line, &mut each);
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(line);
                self.take_line(&whole, &mut each);
                whole.clear();
                self.line = whole;
            }
            self.check_size(0)?;
        }
        self.check_size(piece.len())?;
        self.line.extend_from_slice(piece);
        Ok(())
    }

    /// Whether the stream stopped inside an event.
    pub(crate) fn has_rest(&self) -> bool {
        self.has_data || !self.line.is_empty() || !self.name.is_empty()
    }

    /// `rest` begins with a line end: CR, LF or CR LF.
    fn after_line_end<'a>(&mut self, rest: &'a [u8]) -> &'a [u8] {
        match rest {
            [b'\r', b'\n', after @ ..] => after,
            [b'\r'] => {
                self.after_return = true;
                &[]
            }
            [_, after @ ..] => after,
            [] => &[],
        }
    }

    fn check_size(&self, more: usize) -> Result<(), TooLarge> {
        let held = self.line.len() + self.data.len() + self.name.len();
        if held + more <= EVENT_BYTES_MAX { Ok(()) } else { Err(TooLarge) }
    }

    fn take_line(&mut self, line: &[u8], each: &mut impl FnMut(Event<'_>)) {
        if line.is_empty() {
            return self.end_event(each);
        }
        if let Some(stamp) = line.strip_prefix(STAMP.as_bytes()) {
            self.written_us = number(stamp);
            return;
        }
        let (field, value) = split_field(line);
        match field {
            b"data" => self.add_data(value),
            b"event" => {
                self.name.clear();
                self.name.extend_from_slice(value);
            }
            // Other comments, ids, retry times and unknown fields say nothing about the reply.
            _ => {}
        }
    }

    fn add_data(&mut self, value: &[u8]) {
        if self.has_data {
            self.data.push(b'\n');
        }
        self.has_data = true;
        self.data.extend_from_slice(value);
    }

    /// An event without data is no event; its name is forgotten with it.
    fn end_event(&mut self, each: &mut impl FnMut(Event<'_>)) {
        let written_us = self.written_us.take();
        if self.has_data {
            each(Event { name: &self.name, data: &self.data, written_us });
        }
        self.name.clear();
        self.data.clear();
        self.has_data = false;
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn split_field(line: &[u8]) -> (&[u8], &[u8]) {
    let Some(colon) = memchr::memchr(b':', line) else { return (line, b"") };
    let (field, rest) = line.split_at(colon);
    let value = rest.get(1..).unwrap_or_default();
    (field, value.strip_prefix(b" ").unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Owned = (String, String);

    fn read(pieces: &[&[u8]]) -> (Vec<Owned>, Parser) {
        let mut parser = Parser::default();
        let mut events = Vec::new();
        for piece in pieces {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            parser.feed(piece, |e| events.push((text(e.name), text(e.data)))).expect("small");
        }
        (events, parser)
    }

    fn event(name: &str, data: &str) -> Owned {
        (name.to_owned(), data.to_owned())
    }

    #[test]
    fn an_event_is_handed_out_at_its_blank_line() {
        let (events, parser) = read(&[b"data: one\n"]);
        assert!(events.is_empty() && parser.has_rest());
        let (events, parser) = read(&[b"data: one\n\nevent: x\ndata:two\n\n"]);
        assert_eq!(events, [event("", "one"), event("x", "two")]);
        assert!(!parser.has_rest());
    }

    #[test]
    fn comments_and_unknown_fields_are_no_events() {
        let (events, parser) = read(&[b": keepalive\n\nid: 7\nretry: 1\n\nevent: lonely\n\n"]);
        assert!(events.is_empty() && !parser.has_rest());
    }

    #[test]
    fn the_time_of_writing_belongs_to_the_event_it_stands_in() {
        let mut times = Vec::new();
        let stream = b"data: a\n: written_us=17\n\ndata: b\n\ndata: c\n: written_us=x\n\n";
        Parser::default().feed(stream, |event| times.push(event.written_us)).expect("small");
        assert_eq!(times, [Some(17), None, None]);
    }

    #[test]
    fn several_data_lines_are_joined() {
        let (events, _) = read(&[b"data: a\ndata\ndata: b\n\n"]);
        assert_eq!(events, [event("", "a\n\nb")]);
    }

    #[test]
    fn every_split_of_a_stream_gives_the_same_events() {
        let stream = b"event: e\r\ndata: one\r\n\r\n: c\rdata: two\r\rdata: three\n\ndata: fo";
        let (whole, _) = read(&[stream]);
        assert_eq!(whole, [event("e", "one"), event("", "two"), event("", "three")]);
        for first in 0..stream.len() {
            for second in first..stream.len() {
                let pieces = [&stream[..first], &stream[first..second], &stream[second..]];
                let (events, parser) = read(&pieces);
                assert_eq!(events, whole, "split at {first} and {second}");
                assert!(parser.has_rest());
            }
        }
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut parser = Parser::default();
        let piece = vec![b'x'; EVENT_BYTES_MAX / 2];
        parser.feed(&piece, |_| ()).expect("half fits");
        parser.feed(&piece, |_| ()).expect("both halves fit");
        assert_eq!(parser.feed(b"x", |_| ()), Err(TooLarge));
    }
}
