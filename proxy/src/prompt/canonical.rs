//! The frames of the canonical prompt, and the writer that pushes them. See the module's head for what they promise.

use super::Canon;
use super::canonical_json::{self, Order};
use super::head::Head;
use super::json::{self, Kind, Spelling, Tape, Text, Value};
use crate::limits::DECODED_ARGUMENTS_BYTES_KEPT;
use xxhash_rust::xxh3::Xxh3;

/// What a frame holds, by the letter behind its quote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Frame {
    /// A message: its role.
    Message = b'm',
    /// Text of the enclosing message, call or result.
    Text = b't',
    /// Reasoning that the client sent back.
    Reasoning = b'r',
    /// A tool definition, as JSON.
    Tool = b'T',
    /// A tool call: its name. The arguments follow in a frame of their own.
    Call = b'c',
    /// The arguments of a call, as JSON.
    Arguments = b'a',
    /// The arguments of a call that are not JSON, as text.
    RawArguments = b'b',
    /// The result of a tool call; its content follows, then [`Frame::End`].
    Outcome = b'o',
    /// The end of a result. Results are complete when they are sent, so this one never moves.
    End = b'e',
    /// An item of a Responses input that is not a message begins.
    Item = b'-',
    /// A name beside a role or a call.
    Name = b'n',
    /// The digest of an image, a recording or a file.
    Media = b'i',
    /// A part nobody here can name, as JSON.
    Json = b'j',
    /// Members of a message nobody here can name, as JSON.
    Extra = b'x',
    /// Token ids, each followed by a comma.
    Ids = b'#',
    /// State held by the engine that precedes the rest.
    Earlier = b'p',
}

impl Frame {
    fn opening(self) -> [u8; 2] {
        [b'"', self as u8]
    }
}

/// Whether a member's name is one of those that are left out.
pub(super) type Named = fn(&[u8]) -> bool;

/// Pushes frames into a [`Canon`] and counts what it pushed.
pub(super) struct Writer<'w, 'a, C> {
    canon: &'w mut C,
    scratch: &'w mut Inner,
    pub(super) head: Head<'a>,
    pub(super) bytes: u64,
    pub(super) parts: u32,
    pub(super) media: u32,
    pub(super) prompts: u32,
    /// The last push was text of the same content: more text joins it.
    joining: bool,
}

/// The reusable memory a writer needs.
#[derive(Debug, Default)]
pub(super) struct Inner {
    order: Order,
    tape: Tape,
    decoded: Vec<u8>,
}

impl Inner {
    fn shrink(&mut self) {
        self.order.shrink();
        self.decoded.clear();
        self.decoded.shrink_to(DECODED_ARGUMENTS_BYTES_KEPT);
    }
}

impl<'w, 'a, C: Canon> Writer<'w, 'a, C> {
    pub(super) fn new(canon: &'w mut C, scratch: &'w mut Inner) -> Writer<'w, 'a, C> {
        scratch.shrink();
        Writer {
            canon,
            scratch,
            head: Head::default(),
            bytes: 0,
            parts: 0,
            media: 0,
            prompts: 1,
            joining: false,
        }
    }

    /// Something that separates whole caches; only before the first frame.
    pub(super) fn root(&mut self, name: &str, value: Value<'_, 'a>) {
        self.canon.root(name.as_bytes());
        match value.text() {
            Some(text) => self.canon.root(&text.canonical_bytes()),
            None => self.canon.root(value.raw()),
        }
    }

    #[inline(always)]
    fn push(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.canon.push(bytes);
    }

    #[inline(always)]
    pub(super) fn frame(&mut self, frame: Frame) {
        self.joining = false;
        self.push(&frame.opening());
    }

    fn spell(&mut self, text: Text<'_>) {
        text.canonical(|piece| {
            self.bytes += piece.len() as u64;
            self.canon.push(piece);
            true
        });
    }

    /// A frame that holds one text.
    pub(super) fn named(&mut self, frame: Frame, text: Text<'_>) {
        self.frame(frame);
        self.spell(text);
    }

    /// A message begins.
    pub(super) fn message(&mut self, role: Text<'_>) {
        self.parts = self.parts.saturating_add(1);
        self.head.enter(role);
        self.named(Frame::Message, role);
    }

    /// Text of the current content. Text right behind text joins it with a newline between; empty text is nothing.
    pub(super) fn text(&mut self, text: Text<'a>) {
        if text.raw().is_empty() {
            return;
        }
        self.head.see(text);
        if self.joining {
            self.push(b"\\n");
        } else {
            self.frame(Frame::Text);
        }
        self.spell(text);
        self.joining = true;
    }

    /// Any value as JSON; nothing for what templates treat as absent.
    pub(super) fn json(&mut self, frame: Frame, value: Value<'_, '_>) {
        if value.is_empty() {
            return;
        }
        self.frame(frame);
        let Writer { canon, scratch, bytes, .. } = self;
        canonical_json::write(value, &mut scratch.order, |piece| {
            *bytes += piece.len() as u64;
            canon.push(piece);
        });
    }

    /// An object as JSON without its empty members and without those named; nothing if none is left.
    pub(super) fn json_without(&mut self, frame: Frame, value: Value<'_, '_>, named: Named) {
        let skip = |key: &[u8], value: Value<'_, '_>| value.is_empty() || named(key);
        let Writer { canon, scratch, bytes, .. } = self;
        let opening = frame.opening();
        let wrote =
            canonical_json::write_without(value, skip, &mut scratch.order, &opening, |piece| {
                *bytes += piece.len() as u64;
                canon.push(piece);
            });
        self.joining &= !wrote;
    }

    /// The arguments of a call: an object, or a text that holds one.
    pub(super) fn arguments(&mut self, value: Value<'_, 'a>) {
        let Some(text) = value.text() else { return self.json(Frame::Arguments, value) };
        if !self.embedded(text) && !text.raw().is_empty() {
            self.named(Frame::RawArguments, text);
        }
    }

    fn embedded(&mut self, text: Text<'a>) -> bool {
        let Writer { canon, scratch, bytes, .. } = self;
        let Inner { order, tape, decoded } = &mut **scratch;
        let plain = text.decode_in(decoded);
        let opening = Frame::Arguments.opening();
        canonical_json::write_embedded(plain, tape, order, &opening, |piece| {
            *bytes += piece.len() as u64;
            canon.push(piece);
        })
    }

    /// An image, recording or file: a digest of everything that describes it.
    pub(super) fn attachment(&mut self, value: Value<'_, '_>) {
        self.media = self.media.saturating_add(1);
        self.frame(Frame::Media);
        let mut digest = Xxh3::new();
        canonical_json::write(value, &mut self.scratch.order, |piece| digest.update(piece));
        let hex = format!("{:032x}", digest.digest128());
        self.push(hex.as_bytes());
    }

    /// Token ids in an array of numbers.
    pub(super) fn ids(&mut self, value: Value<'_, '_>) {
        self.frame(Frame::Ids);
        if value.kind() == Kind::Number {
            return self.id(value.raw());
        }
        if value.spelling() == Spelling::Odd {
            return value.numbers().for_each(|number| self.id(number));
        }
        let inside = value.raw().strip_prefix(b"[").and_then(|raw| raw.strip_suffix(b"]"));
        self.push(inside.unwrap_or_default());
        self.push(b",");
    }

    fn id(&mut self, number: &[u8]) {
        json::canonical_number(number, |piece| {
            self.bytes += piece.len() as u64;
            self.canon.push(piece);
        });
        self.push(b",");
    }
}
