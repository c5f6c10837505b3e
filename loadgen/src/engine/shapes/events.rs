//! Server-sent events before they are put into chunks: a buffer that remembers where each event ends, and frames whose
//! unchanging parts are printed once a stream.

use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{Formatter, Serializer};

/// Begins the comment line that carries the time an event was written: microseconds since 1970 of this machine's clock.
pub(crate) const STAMP: &str = ": written_us=";

/// Events waiting to be written.
#[derive(Debug, Default)]
pub(crate) struct Events {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Written behind each event, if at all.
    written_us: Option<u64>,
}

impl Events {
    /// Events that each carry this time.
    pub(crate) fn written_at(written_us: Option<u64>) -> Self {
        Self { written_us, ..Self::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The events, in order, each with its blank line.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end])
    }

    pub(crate) fn data(&mut self, data: &str) {
        self.push(None, &[data]);
    }

    pub(crate) fn json(&mut self, data: &Value) {
        self.push(None, &[&data.to_string()]);
    }

    /// An event with an `event:` line that repeats the data's `type`, as Anthropic's and the Responses API have it.
    pub(crate) fn typed(&mut self, data: &Value) {
        let name = data.get("type").and_then(Value::as_str).unwrap_or("error");
        self.push(Some(name), &[&data.to_string()]);
    }

    pub(crate) fn named(&mut self, name: &str, data: &Value) {
        self.push(Some(name), &[&data.to_string()]);
    }

    pub(crate) fn done(&mut self) {
        self.data("[DONE]");
    }

    fn push(&mut self, name: Option<&str>, data: &[&str]) {
        if let Some(name) = name {
            for part in ["event: ", name, "\n"] {
                self.bytes.extend_from_slice(part.as_bytes());
            }
        }
        self.bytes.extend_from_slice(b"data: ");
        for part in data {
            self.bytes.extend_from_slice(part.as_bytes());
        }
        if let Some(written_us) = self.written_us {
            // Inside the event, so that neither a parser nor a proxy of events sees one more.
            self.bytes.extend_from_slice(format!("\n{STAMP}{written_us}").as_bytes());
        }
        self.bytes.extend_from_slice(b"\n\n");
        self.ends.push(self.bytes.len());
    }
}

/// Stands for the token's text in a frame's JSON.
pub(crate) const TEXT: &str = "\u{f8ff}text\u{f8ff}";

/// An event of which only one string changes.
#[derive(Debug)]
pub(crate) struct Frame {
    name: Option<&'static str>,
    before: Box<str>,
    after: Box<str>,
}

impl Frame {
    /// `data` has [`TEXT`] where the token goes.
    pub(crate) fn new(name: Option<&'static str>, data: &Value) -> Self {
        let printed = data.to_string();
        let (before, after) = printed.split_once(TEXT).unwrap_or((&printed, ""));
        // The quotes around the text are printed with it.
        let before = before.strip_suffix('"').unwrap_or(before).into();
        Self { name, before, after: after.strip_prefix('"').unwrap_or(after).into() }
    }

    pub(crate) fn push(&self, text: &str, events: &mut Events) {
        let quoted = Value::from(text).to_string();
        events.push(self.name, &[&self.before, &quoted, &self.after]);
    }
}

/// Prints JSON with the spaces Python's `json.dumps` puts in.
pub(crate) fn spaced(value: &Value) -> String {
    let mut bytes = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut bytes, Spaced);
    // Writing a value that is JSON already into memory cannot fail.
    let _ = value.serialize(&mut serializer);
    String::from_utf8(bytes).unwrap_or_default()
}

struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
    ) -> std::io::Result<()> {
        writer.write_all(b": ")
    }
}
