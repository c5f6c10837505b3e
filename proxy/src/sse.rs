//! Reads server-sent events as they pass: which decide, which end, which fail, which report usage.
//!
//! Bytes come cut anywhere. A line that arrives whole is looked at where it lies; only a line cut in two
//! is put together aside, within a bound. Framing decides where a reply ends; this only reads, and stops before
//! an engine's error that its client could not read. It never changes or delays an event, and keeps the text of
//! none but the first error's; only where one was asked for by us is it hidden (`hiding`).

mod hiding;

use std::sync::LazyLock;

use memchr::memmem::Finder;

use crate::api::Dialect;
use crate::limits::{ENGINE_ERROR_BYTES_MAX, SSE_CARRY_BYTES_MAX, SSE_CARRY_HEAD_BYTES};
use crate::usage::{Seen, Usage};

pub(crate) use hiding::Hiding;

/// A stream in progress.
#[derive(Debug)]
pub struct Scanner {
    dialect: Dialect,
    /// The start of a line whose end has not come.
    carry: Vec<u8>,
    kind: Kind,
    /// Whether the event under way has a data line.
    has_data: bool,
    /// Whether any line of the event under way was seen.
    inside: bool,
    events: u64,
    decided: bool,
    ended: bool,
    aborted: bool,
    /// The data of the first error event.
    error: Option<Box<[u8]>>,
    /// The error event just seen is not in the dialect.
    foreign: bool,
    seen: Seen,
    /// Passes the stream on without its usage, if that was not asked for.
    hiding: Option<Box<Hiding>>,
}

/// What is looked for in every event; preparing a search costs more than making it.
struct Keys {
    abort: Finder<'static>,
    tokens: [Finder<'static>; 3],
}

static KEYS: LazyLock<Keys> = LazyLock::new(|| Keys {
    abort: Finder::new(b"\"abort\""),
    tokens: [&b"\"usage\""[..], b"\"timings\"", b"\"meta_info\""].map(Finder::new),
});

/// What the `event:` line of the event under way, or the `type` in its data, says it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Nothing was said yet.
    Unnamed,
    /// It says only that the stream lives, or that work has begun.
    Preamble,
    /// The end of a successful stream.
    End,
    /// A failure.
    Error,
    /// Anything else.
    Content,
}

impl Scanner {
    /// A stream from its start.
    pub fn new(dialect: Dialect) -> Scanner {
        Scanner {
            dialect,
            carry: Vec::new(),
            kind: Kind::Unnamed,
            has_data: false,
            inside: false,
            events: 0,
            decided: false,
            ended: false,
            aborted: false,
            error: None,
            foreign: false,
            seen: Seen::default(),
            hiding: None,
        }
    }

    /// Passes the stream on without its usage from here on, which must be its start: see [`Scanner::hiding`].
    pub fn hide_usage(&mut self) {
        self.hiding = Some(Box::default());
    }

    /// Reads what the next bytes will need.
    pub(crate) fn bring_near(&self) -> u64 {
        let flags = self.decided ^ self.hides() ^ self.error.is_some();
        self.events ^ self.carry.len() as u64 ^ u64::from(flags)
    }

    /// Whether something is to be hidden.
    pub(crate) fn hides(&self) -> bool {
        self.hiding.is_some()
    }

    /// What passes the stream on, if something is to be hidden.
    pub(crate) fn hiding(&mut self) -> Option<&mut Hiding> {
        self.hiding.as_deref_mut()
    }

    /// Looks at the next bytes of the payload. Returns how many of them, at their end, must not be passed on: usually
    /// none; where an error event begins that is not in the dialect, it and what follows. Then nothing more may be fed.
    pub fn feed(&mut self, all: &[u8]) -> usize {
        if self.hiding.is_some() { self.scan::<true>(all) } else { self.scan::<false>(all) }
    }

    /// See [`Scanner::feed`]; compiled apart, so that hiding costs those nothing who hide nothing.
    fn scan<const HIDING: bool>(&mut self, all: &[u8]) -> usize {
        let inside = self.is_inside_event();
        let mut bytes = all;
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            let (line, rest) = bytes.split_at(end);
            bytes = rest.get(1..).unwrap_or_default();
            if HIDING && let Some(hiding) = &mut self.hiding {
                hiding.take_in(line);
                hiding.take_in(b"\n");
            }
            let whole = self.carry.is_empty();
            if whole {
                self.line(line);
            } else {
                self.cut_line(line);
            }
            if self.foreign {
                let at = whole.then_some(all.len() - rest.len() - line.len());
                return self.stop(all, at, inside);
            }
        }
        if HIDING && let Some(hiding) = &mut self.hiding {
            hiding.take_in(bytes);
        }
        self.keep(bytes);
        0
    }

    /// A line whose beginning came earlier.
    #[cold]
    fn cut_line(&mut self, end: &[u8]) {
        self.keep(end);
        let whole = std::mem::take(&mut self.carry);
        self.line(&whole);
        self.carry = whole;
        self.carry.clear();
    }

    /// Stops before the event under way, whose data line begins at `line` of the bytes just fed, or before them. What of
    /// the event was fed earlier has been passed on: then the bytes so far end inside an event.
    #[cold]
    fn stop(&mut self, all: &[u8], line: Option<usize>, inside: bool) -> usize {
        let before = all.get(..line.unwrap_or(0)).unwrap_or_default();
        let blank = |line: &[u8]| memchr::memmem::rfind(before, line).map(|at| at + line.len());
        let start = blank(b"\n\n").max(blank(b"\n\r\n"));
        self.inside = start.is_none() && (line.is_none() || inside);
        self.has_data = false;
        self.kind = Kind::Unnamed;
        all.len() - start.unwrap_or(0)
    }

    /// Whether an event that says what becomes of the request was seen.
    pub fn is_decided(&self) -> bool {
        self.decided
    }

    /// The data of the first event that told of a failure, if one did.
    pub fn error(&self) -> Option<&[u8]> {
        self.error.as_deref()
    }

    /// Whether the dialect's end was seen. An end may follow an error: it does not mean success.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether the engine gave up on the request of its own accord.
    pub fn was_aborted(&self) -> bool {
        self.aborted
    }

    /// Whether the bytes so far end inside an event.
    pub fn is_inside_event(&self) -> bool {
        self.inside || !self.carry.is_empty()
    }

    /// Events with data.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// What the engine reported.
    pub fn usage(&self) -> Option<Usage> {
        self.seen.usage()
    }

    /// Keeps the start of a line. Of one that is too long the middle goes: its start names it and its end
    /// holds its usage.
    fn keep(&mut self, part: &[u8]) {
        self.carry.extend_from_slice(part);
        if self.carry.len() > SSE_CARRY_BYTES_MAX {
            let excess = self.carry.len() - SSE_CARRY_BYTES_MAX;
            self.carry.drain(SSE_CARRY_HEAD_BYTES..SSE_CARRY_HEAD_BYTES + excess);
        }
    }

    fn line(&mut self, line: &[u8]) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return self.end_event();
        }
        self.inside = true;
        if let Some(data) = line.strip_prefix(b"data:") {
            self.has_data = true;
            self.data(data.strip_prefix(b" ").unwrap_or(data));
        } else if let Some(name) = line.strip_prefix(b"event:") {
            self.kind = kind_of(name.trim_ascii());
        } else if line.starts_with(b":") {
            // A comment is no event, and nothing has to be completed after it.
            self.inside = self.has_data || self.kind != Kind::Unnamed;
        }
    }

    fn end_event(&mut self) {
        let hidden = self.hiding.as_mut().is_some_and(|hiding| hiding.end_event());
        self.events += u64::from(self.has_data && !hidden);
        self.has_data = false;
        self.inside = false;
        self.kind = Kind::Unnamed;
    }

    fn data(&mut self, data: &[u8]) {
        if data == b"[DONE]" {
            self.ended = true;
            self.decided = true;
            return;
        }
        match self.kind_of_data(data) {
            Kind::Preamble => {}
            Kind::Error => self.take_error(data),
            Kind::End => {
                self.decided = true;
                self.ended = true;
            }
            Kind::Content | Kind::Unnamed => self.decided = true,
        }
        if says_abort(data) {
            self.aborted = true;
        }
        if speaks_of_tokens(data) {
            self.seen.read(data);
            if let Some(hiding) = &mut self.hiding
                && hiding::tells_only_usage(data)
            {
                hiding.hit();
            }
        }
    }

    #[cold]
    fn take_error(&mut self, data: &[u8]) {
        self.decided = true;
        if self.error.is_none() {
            let named = self.kind == Kind::Error;
            self.foreign = !speaks(self.dialect, named, data);
            // One too long to be read tells nothing but that it is an error.
            let kept = if data.len() > ENGINE_ERROR_BYTES_MAX { &[] } else { data };
            self.error = Some(kept.into());
        }
    }

    /// An error object is one whatever its event is called; without a name the data's own type counts.
    fn kind_of_data(&self, data: &[u8]) -> Kind {
        let object = data.trim_ascii_start();
        if starts_with_key(object, b"\"error\"") {
            return Kind::Error;
        }
        match (self.kind, self.dialect) {
            (Kind::Unnamed, Dialect::Messages | Dialect::Responses) => type_in(object),
            (Kind::Unnamed, Dialect::Chat | Dialect::Plain) => Kind::Content,
            (named, _) => named,
        }
    }
}

/// Whether the engine names its own giving up as the reason of the end. Within a string of the reply the quotes would
/// be escaped.
pub(crate) fn says_abort(json: &[u8]) -> bool {
    // An iterator is dearer to make than the search, and nearly always there is nothing to find.
    let found =
        || KEYS.abort.find_iter(json).any(|at| is_reason(json.get(..at).unwrap_or_default()));
    KEYS.abort.find(json).is_some() && found()
}

/// Whether what comes behind is the reason of the end: `"finish_reason":` or, on SGLang's own API,
/// `"finish_reason":{"type":`, whatever white space there is.
fn is_reason(before: &[u8]) -> bool {
    let key = |before: &[u8], key: &[u8]| {
        let before = before.trim_ascii_end().strip_suffix(b":")?;
        before.trim_ascii_end().strip_suffix(key).map(|rest| rest.trim_ascii_end().len())
    };
    let within = key(before, b"\"type\"").and_then(|at| before.get(..at)?.strip_suffix(b"{"));
    key(within.unwrap_or(before), b"\"finish_reason\"").is_some()
}

/// Whether clients of the dialect read this error as one. Anthropic's skip events without a name and want the envelope;
/// those of Responses go by the type and know `response.failed`; those of chat look for `error`.
fn speaks(dialect: Dialect, named: bool, data: &[u8]) -> bool {
    let value: serde_json::Value = serde_json::from_slice(data).unwrap_or_default();
    match dialect {
        Dialect::Plain => true,
        Dialect::Chat => value.get("error").is_some(),
        Dialect::Responses => value.get("type").is_some_and(|kind| kind == "response.failed"),
        Dialect::Messages => named && has_envelope(&value),
    }
}

/// Whether an error is in Anthropic's envelope.
pub(crate) fn is_enveloped(error: &[u8]) -> bool {
    has_envelope(&serde_json::from_slice(error).unwrap_or_default())
}

fn has_envelope(error: &serde_json::Value) -> bool {
    let named = error.get("type").is_some_and(|kind| kind == "error");
    named && error.pointer("/error/type").is_some_and(|kind| kind.is_string())
}

fn speaks_of_tokens(data: &[u8]) -> bool {
    KEYS.tokens.iter().any(|key| key.find(data).is_some())
}

/// Whether the object's first key is this one, whatever white space there is.
fn starts_with_key(object: &[u8], key: &[u8]) -> bool {
    object.strip_prefix(b"{").is_some_and(|rest| rest.trim_ascii_start().starts_with(key))
}

/// The kind by the value of `type`, which stands within the first bytes of every such event.
fn type_in(object: &[u8]) -> Kind {
    let head = object.get(..object.len().min(256)).unwrap_or_default();
    let Some(at) = memchr::memmem::find(head, b"\"type\"") else { return Kind::Content };
    let value = head.get(at + 6..).unwrap_or_default().trim_ascii_start();
    let value = value.strip_prefix(b":").unwrap_or_default().trim_ascii_start();
    let value = value.strip_prefix(b"\"").unwrap_or_default();
    let end = memchr::memchr(b'"', value).unwrap_or(0);
    kind_of(value.get(..end).unwrap_or_default())
}

/// Names of Anthropic's and of Responses' events; they do not overlap.
fn kind_of(name: &[u8]) -> Kind {
    match name {
        b"message_start"
        | b"ping"
        | b"response.created"
        | b"response.in_progress"
        | b"response.queued"
        | b"keepalive" => Kind::Preamble,
        b"message_stop" | b"response.completed" | b"response.incomplete" => Kind::End,
        b"error" | b"response.failed" => Kind::Error,
        _ => Kind::Content,
    }
}

#[cfg(test)]
mod tests;
