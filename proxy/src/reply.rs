//! How far a reply's body was read and what was seen in it: its framing, its events, its usage.
//!
//! The relay forwards bytes and asks here where the body ends, whether it may be sent at all, and what the
//! engine reported. It reads what passes and changes none of it.

use crate::answer::status::{UNAVAILABLE, is_success};
use crate::api::Dialect;
use crate::classify::{ReplyClass, classify_reply};
use crate::http::{ChunkError, ChunkedReader, Fed, ResponseFraming, ResponseHead};
use crate::limits::{RESPONSE_CHUNKS, USAGE_TAIL_BYTES};
use crate::sse::{self, Scanner};
use crate::usage::{self, Usage};

/// How a reply's body is delimited by its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// There is none.
    None,
    /// By its length.
    Length,
    /// In chunks.
    Chunked,
    /// By the connection's end.
    UntilClose,
}

#[derive(Debug)]
enum Framing {
    None,
    Length { left: u64 },
    Chunked(Box<ChunkedReader>),
    UntilClose,
}

/// What is read out of the payload.
#[derive(Debug)]
enum Content {
    /// Server-sent events.
    Events(Box<Scanner>),
    /// Anything else: its last bytes are kept for the usage, its first for a verdict.
    Document { tail: Vec<u8>, bytes: u64 },
}

/// A reply's body in progress.
#[derive(Debug)]
pub struct Reply {
    framing: Framing,
    content: Content,
    dialect: Dialect,
    status: u16,
    done: bool,
    surplus: bool,
    closed: bool,
    /// Payload of the reads since it was last taken, kept only for clients that cannot be given chunks.
    payload: Option<Vec<u8>>,
}

impl Default for Reply {
    /// A reply without a body.
    fn default() -> Reply {
        Reply {
            framing: Framing::None,
            content: Content::Document { tail: Vec::new(), bytes: 0 },
            dialect: Dialect::Plain,
            status: 0,
            done: true,
            surplus: false,
            closed: false,
            payload: None,
        }
    }
}

impl Reply {
    /// The body announced by `head`. `unwrap_chunks`: the client cannot be given chunks, so payload is kept
    /// aside for [`Reply::take_payload`].
    pub fn new(head: &ResponseHead, dialect: Dialect, unwrap_chunks: bool) -> Reply {
        let framing = match head.framing() {
            ResponseFraming::None => Framing::None,
            ResponseFraming::Length(left) => Framing::Length { left },
            ResponseFraming::Chunked => {
                Framing::Chunked(Box::new(ChunkedReader::new(RESPONSE_CHUNKS)))
            }
            ResponseFraming::UntilClose => Framing::UntilClose,
        };
        let done = matches!(framing, Framing::None | Framing::Length { left: 0 });
        let content = if head.is_event_stream() {
            Content::Events(Box::new(Scanner::new(dialect)))
        } else {
            Content::Document { tail: Vec::new(), bytes: 0 }
        };
        let unwrap = unwrap_chunks && matches!(framing, Framing::Chunked(_));
        let status = head.status();
        let payload = unwrap.then(Vec::new);
        Reply { framing, content, dialect, status, done, surplus: false, closed: false, payload }
    }

    /// Takes note of raw bytes as they came. `consumed` of the result belong to this reply.
    ///
    /// # Errors
    /// When the chunks are malformed.
    pub fn feed(&mut self, raw: &[u8]) -> Result<Fed, ChunkError> {
        let Reply { framing, content, payload, .. } = self;
        let mut see = |bytes: &[u8]| {
            content.see(bytes);
            if let Some(payload) = payload {
                payload.extend_from_slice(bytes);
            }
        };
        let fed = match framing {
            Framing::None => Fed { consumed: 0, done: true },
            Framing::Length { left } => take_length(left, raw, &mut see),
            Framing::Chunked(reader) => reader.feed(raw, see)?,
            Framing::UntilClose => {
                see(raw);
                Fed { consumed: raw.len(), done: false }
            }
        };
        self.done = self.done || fed.done;
        self.surplus = self.surplus || fed.consumed < raw.len();
        Ok(fed)
    }

    /// The connection ended. Returns whether that is a legitimate end of this body.
    pub fn close(&mut self) -> bool {
        self.closed = true;
        if matches!(self.framing, Framing::UntilClose) {
            self.done = true;
        }
        self.done
    }

    /// The body is complete.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// The sender's framing.
    pub fn wire(&self) -> Wire {
        match self.framing {
            Framing::None => Wire::None,
            Framing::Length { .. } => Wire::Length,
            Framing::Chunked(_) => Wire::Chunked,
            Framing::UntilClose => Wire::UntilClose,
        }
    }

    /// Whether the reply may go to the client: a stream once its first telling event is there, a document
    /// of success with its first byte, an error once it is whole and can be judged.
    pub fn may_be_sent(&self) -> bool {
        if self.done {
            return true;
        }
        match &self.content {
            Content::Events(scanner) => scanner.is_decided(),
            Content::Document { bytes, .. } => *bytes > 0 && is_success(self.status),
        }
    }

    /// What the reply means for its backend, as far as it was read.
    pub fn class(&self) -> ReplyClass {
        match &self.content {
            Content::Events(scanner) => scanner.error().unwrap_or(ReplyClass::Served),
            Content::Document { tail, .. } => classify_reply(self.status, tail),
        }
    }

    /// Whether it was failed because the engine's pool was used up: a full engine that has begun says so with a 500 or in
    /// an event, one that has not with a 503.
    pub fn says_pool_ran_out(&self) -> bool {
        self.status != UNAVAILABLE && self.class() == ReplyClass::Busy
    }

    /// Payload kept aside since it was last taken; empty unless asked for at the start.
    pub fn take_payload(&mut self) -> Vec<u8> {
        self.payload.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Whether it is a stream of events.
    pub fn is_event_stream(&self) -> bool {
        matches!(self.content, Content::Events(_))
    }

    /// Whether it ended without the end its dialect promises: only a stream that is delimited by nothing
    /// else can be cut without anybody noticing.
    pub fn ended_early(&self) -> bool {
        let Content::Events(scanner) = &self.content else { return false };
        let promised = self.dialect != Dialect::Plain;
        self.wire() == Wire::UntilClose
            && promised
            && !scanner.has_ended()
            && scanner.error().is_none()
    }

    /// Whether an error event was seen.
    pub fn had_error(&self) -> bool {
        matches!(&self.content, Content::Events(scanner) if scanner.error().is_some())
    }

    /// Whether the engine gave up on the request and said so in an otherwise proper reply.
    pub fn was_aborted(&self) -> bool {
        match &self.content {
            Content::Events(scanner) => scanner.was_aborted(),
            Content::Document { tail, .. } => sse::says_abort(tail),
        }
    }

    /// Whether the bytes read so far end inside an event.
    pub fn inside_event(&self) -> bool {
        matches!(&self.content, Content::Events(scanner) if scanner.is_inside_event())
    }

    /// Completes the chunk that is open, with blank lines, so that a chunk of ours may follow. Returns false
    /// when too much of it is missing.
    pub fn fill_open_chunk(&self, out: &mut Vec<u8>, missing_max: u64) -> bool {
        let Framing::Chunked(reader) = &self.framing else { return false };
        if reader.at_chunk_boundary() {
            return true;
        }
        let Some(missing) = reader.payload_left_in_chunk() else { return false };
        if missing > missing_max {
            return false;
        }
        out.resize(out.len() + usize::try_from(missing).unwrap_or(0), b'\n');
        out.extend_from_slice(crate::http::CHUNK_END);
        true
    }

    /// Events seen.
    pub fn events(&self) -> u64 {
        match &self.content {
            Content::Events(scanner) => scanner.events(),
            Content::Document { .. } => 0,
        }
    }

    /// What the engine reported of its tokens.
    pub fn usage(&self) -> Option<Usage> {
        match &self.content {
            Content::Events(scanner) => scanner.usage(),
            Content::Document { tail, .. } if is_success(self.status) => usage::of_tail(tail),
            Content::Document { .. } => None,
        }
    }

    /// Whether the connection could carry another request: the body is complete, nothing surplus came, and
    /// the peer has not closed.
    pub fn left_connection_clean(&self) -> bool {
        self.done && !self.surplus && !self.closed
    }
}

fn take_length(left: &mut u64, raw: &[u8], see: &mut impl FnMut(&[u8])) -> Fed {
    let consumed = usize::try_from(*left).unwrap_or(usize::MAX).min(raw.len());
    see(raw.get(..consumed).unwrap_or_default());
    *left -= consumed as u64;
    Fed { consumed, done: *left == 0 }
}

impl Content {
    fn see(&mut self, bytes: &[u8]) {
        match self {
            Content::Events(scanner) => scanner.feed(bytes),
            Content::Document { tail, bytes: count } => {
                *count += bytes.len() as u64;
                keep_tail(tail, bytes);
            }
        }
    }
}

/// Keeps the last bytes; twice the bound is let grow before the front is cut off, so that cutting is rare.
fn keep_tail(tail: &mut Vec<u8>, bytes: &[u8]) {
    let new = bytes.get(bytes.len().saturating_sub(USAGE_TAIL_BYTES)..).unwrap_or_default();
    if tail.len() + new.len() > 2 * USAGE_TAIL_BYTES {
        let keep = USAGE_TAIL_BYTES.saturating_sub(new.len());
        tail.drain(..tail.len() - keep.min(tail.len()));
    }
    tail.extend_from_slice(new);
}
