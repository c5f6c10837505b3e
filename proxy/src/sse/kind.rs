//! What an event means, by its dialect. Looks for a few keys in the data and reads JSON only where one of them was found,
//! since almost every event is content. Text that a model generates cannot be taken for a key: inside a JSON string its
//! quotes are escaped.

use crate::api::Dialect;
use crate::prompt::json::{Tape, Value};
use memchr::memmem::{self, Finder};
use std::sync::LazyLock;

/// What an event means to the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// Only comment lines, or nothing a client would see.
    Comment,
    /// A sign of life without content (`ping`, `keepalive`).
    Ping,
    /// The start of a reply that proves no work yet (`message_start`, `response.created`, `response.in_progress`).
    Preamble,
    /// Content, or anything else that the engine worked for.
    Content,
    /// The request has failed.
    Error,
    /// The dialect's proper end. It says nothing about success: engines also send it behind an error.
    End,
}

/// How generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// By itself, by a stop text, by a tool call, or at a length limit.
    Normal,
    /// The engine gave up (shutdown, sleep, scale-down).
    Aborted,
}

pub(super) struct Classified {
    pub(super) kind: EventKind,
    pub(super) has_usage: bool,
    pub(super) finish: Option<Finish>,
}

impl Classified {
    fn plain(kind: EventKind) -> Classified {
        Classified { kind, has_usage: false, finish: None }
    }
}

/// Keys that are looked for, prepared once.
struct Keys {
    error: Finder<'static>,
    usage: Finder<'static>,
    timings: Finder<'static>,
    meta_info: Finder<'static>,
    finish_reason: Finder<'static>,
    stop_true: Finder<'static>,
}

static KEYS: LazyLock<Keys> = LazyLock::new(|| Keys {
    error: Finder::new(br#""error""#),
    usage: Finder::new(br#""usage""#),
    timings: Finder::new(br#""timings""#),
    meta_info: Finder::new(br#""meta_info""#),
    finish_reason: Finder::new(br#""finish_reason""#),
    stop_true: Finder::new(br#""stop":true"#),
});

pub(super) fn classify(dialect: Dialect, name: &[u8], data: &[u8], truncated: bool) -> Classified {
    if data.is_empty() {
        let kind = if name.is_empty() { EventKind::Comment } else { EventKind::Ping };
        return Classified::plain(kind);
    }
    if data == b"[DONE]" {
        return Classified::plain(EventKind::End);
    }
    match dialect {
        Dialect::Chat | Dialect::Plain => unnamed(dialect, name, data, truncated),
        Dialect::Messages => messages(name, data, truncated),
        Dialect::Responses => responses(name, data, truncated),
    }
}

fn unnamed(dialect: Dialect, name: &[u8], data: &[u8], truncated: bool) -> Classified {
    if name == b"error" || is_error(data, truncated) {
        return Classified::plain(EventKind::Error);
    }
    let plain = dialect == Dialect::Plain;
    let ended = plain && KEYS.stop_true.find(data).is_some();
    Classified {
        kind: if ended { EventKind::End } else { EventKind::Content },
        has_usage: has_object(&KEYS.usage, data)
            || has_object(&KEYS.timings, data)
            || (plain && has_object(&KEYS.meta_info, data)),
        finish: finish(data).or(ended.then_some(Finish::Normal)),
    }
}

fn messages(name: &[u8], data: &[u8], truncated: bool) -> Classified {
    let kind = match named(name, data).as_ref() {
        b"message_start" => EventKind::Preamble,
        b"ping" => EventKind::Ping,
        b"message_stop" => EventKind::End,
        b"error" => EventKind::Error,
        b"" if is_error(data, truncated) => EventKind::Error,
        _ => EventKind::Content,
    };
    let counted = matches!(kind, EventKind::Preamble | EventKind::Content);
    Classified { kind, has_usage: counted && has_object(&KEYS.usage, data), finish: None }
}

fn responses(name: &[u8], data: &[u8], truncated: bool) -> Classified {
    let (kind, finish) = match named(name, data).as_ref() {
        b"response.created" | b"response.in_progress" | b"response.queued" => {
            (EventKind::Preamble, None)
        }
        b"response.completed" | b"response.incomplete" => (EventKind::End, Some(Finish::Normal)),
        b"response.cancelled" => (EventKind::End, Some(Finish::Aborted)),
        b"response.failed" | b"error" => (EventKind::Error, None),
        b"keepalive" | b"ping" => (EventKind::Ping, None),
        // llama.cpp's error frame has neither a name nor a type here.
        b"" if is_error(data, truncated) => (EventKind::Error, None),
        _ => (EventKind::Content, None),
    };
    let has_usage = kind == EventKind::End && has_object(&KEYS.usage, data);
    Classified { kind, has_usage, finish }
}

/// The event's name, or the `type` in its data.
fn named<'a>(name: &'a [u8], data: &'a [u8]) -> std::borrow::Cow<'a, [u8]> {
    if !name.is_empty() {
        return name.into();
    }
    let direct = [&br#"{"type":""#[..], br#"{"type": ""#];
    if let Some(rest) = direct.into_iter().find_map(|prefix| data.strip_prefix(prefix)) {
        let end = memchr::memchr(b'"', rest).unwrap_or(rest.len());
        return rest.get(..end).unwrap_or_default().into();
    }
    let mut tape = Tape::default();
    if tape.parse(data).is_err() {
        return (&b""[..]).into();
    }
    let kind = Value::root(data, tape.tokens()).get("type").and_then(|kind| kind.text());
    kind.map(|kind| kind.decode()).unwrap_or_default()
}

/// Whether the data is an object with an `error` of its own.
fn is_error(data: &[u8], truncated: bool) -> bool {
    if KEYS.error.find(data).is_none() {
        return false;
    }
    let begins =
        [&br#"{"error":"#[..], br#"{"error" :"#].iter().any(|start| data.starts_with(start));
    let mut tape = Tape::default();
    if truncated || tape.parse(data).is_err() {
        return begins;
    }
    Value::root(data, tape.tokens()).get("error").is_some_and(|error| !error.is_empty())
}

fn has_object(key: &Finder<'_>, data: &[u8]) -> bool {
    let mut from = 0;
    while let Some(at) = data.get(from..).and_then(|rest| key.find(rest)) {
        let behind = from + at + key.needle().len();
        if value_behind(data, behind).is_some_and(|value| value.first() == Some(&b'{')) {
            return true;
        }
        from = behind;
    }
    false
}

/// What stands behind the colon that follows `at`.
pub(crate) fn value_behind(data: &[u8], at: usize) -> Option<&[u8]> {
    let rest = data.get(at..)?.trim_ascii_start();
    Some(rest.strip_prefix(b":")?.trim_ascii_start())
}

/// `"finish_reason"` with a text, or with SGLang's object.
fn finish(data: &[u8]) -> Option<Finish> {
    let at = KEYS.finish_reason.find(data)?;
    let value = value_behind(data, at + KEYS.finish_reason.needle().len())?;
    match value.first()? {
        b'"' if value.starts_with(br#""abort"#) => Some(Finish::Aborted),
        b'{' if begins_with_abort(value) => Some(Finish::Aborted),
        b'"' | b'{' => Some(Finish::Normal),
        _ => None,
    }
}

fn begins_with_abort(value: &[u8]) -> bool {
    let end = memchr::memchr(b'}', value).unwrap_or(value.len());
    memmem::find(value.get(..end).unwrap_or_default(), br#""abort""#).is_some()
}
