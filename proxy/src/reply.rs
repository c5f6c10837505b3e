//! How far a reply's body was read and what was seen in it: its framing, its events, its usage.
//!
//! The relay forwards bytes and asks here where the body ends, whether it may be sent at all, and what the
//! engine reported. It reads what passes and changes none of it.

use crate::answer::status::{BAD_REQUEST, OK, UNAVAILABLE, is_success};
use crate::api::Dialect;
use crate::classify::{ReplyClass, Told, classify_error, classify_reply};
use crate::http::{ChunkError, ChunkedReader, Fed, ResponseFraming, ResponseHead};
use crate::limits::{HELD_REPLY_MAX, RESPONSE_CHUNKS, USAGE_TAIL_BYTES};
use crate::published::EngineKind;
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
    engine: EngineKind,
    dialect: Dialect,
    status: u16,
    done: bool,
    /// An error of the engine's stands next that its client could not read.
    cut: bool,
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
            engine: EngineKind::Unknown,
            dialect: Dialect::Plain,
            status: 0,
            done: true,
            cut: false,
            surplus: false,
            closed: false,
            payload: None,
        }
    }
}

impl Reply {
    /// The body announced by `head`, written by `engine`. `unwrap_chunks`: the client cannot be given chunks, so payload
    /// is kept aside for [`Reply::take_payload`].
    pub fn new(
        head: &ResponseHead,
        engine: EngineKind,
        dialect: Dialect,
        unwrap_chunks: bool,
    ) -> Reply {
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
        Reply {
            framing,
            content,
            engine,
            dialect,
            status,
            done,
            cut: false,
            surplus: false,
            closed: false,
            payload,
        }
    }

    /// The same body passed on without the event that tells its usage. Called before anything is read; nothing
    /// changes where it is no stream, or one whose length was promised.
    pub fn hiding_usage(mut self) -> Reply {
        if let Content::Events(scanner) = &mut self.content
            && matches!(self.framing, Framing::Chunked(_) | Framing::UntilClose)
        {
            scanner.hide_usage();
        }
        self
    }

    /// Whether something is to be hidden, so that payload goes on and not what was read.
    pub fn hides(&self) -> bool {
        matches!(&self.content, Content::Events(scanner) if scanner.hides())
    }

    /// Whether what was read since payload was last taken may go on as it came: nothing in it is hidden, and it ends
    /// between two events and two chunks. Then its payload counts as taken.
    pub fn goes_on_as_it_came(&mut self) -> bool {
        let between = self.done || self.is_between_chunks();
        let Content::Events(scanner) = &mut self.content else { return true };
        let Some(hiding) = scanner.hiding() else { return true };
        between && hiding.went_on()
    }

    /// Reads what the next bytes will need.
    pub fn bring_near(&self) -> u64 {
        let framing = match &self.framing {
            Framing::Chunked(reader) => reader.bring_near(),
            _ => 0,
        };
        let content = match &self.content {
            Content::Events(scanner) => scanner.bring_near(),
            Content::Document { bytes, .. } => *bytes,
        };
        framing ^ content
    }

    /// Takes note of raw bytes as they came. `consumed` of the result belong to this reply and may be passed on; see
    /// [`Reply::is_cut`] for when that is less than there is.
    ///
    /// # Errors
    /// When the chunks are malformed.
    pub fn feed(&mut self, raw: &[u8]) -> Result<Fed, ChunkError> {
        let Reply { framing, content, payload, cut, .. } = self;
        if *cut {
            return Ok(Fed { consumed: 0, done: false });
        }
        let mut see = |bytes: &[u8]| {
            let back = content.see(bytes);
            *cut = back > 0;
            if let Some(payload) = payload {
                payload.extend_from_slice(bytes.get(..bytes.len() - back).unwrap_or_default());
            }
            back
        };
        let fed = match framing {
            Framing::None => Fed { consumed: 0, done: true },
            Framing::Length { left } => take_length(left, raw, &mut see),
            Framing::Chunked(reader) => reader.feed_until(raw, see)?,
            Framing::UntilClose => {
                let back = see(raw);
                Fed { consumed: raw.len() - back, done: false }
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

    /// Whether what comes next is an engine's error that is not in its client's dialect. It is not passed on; ours is to
    /// be put in its place, and is the end.
    pub fn is_cut(&self) -> bool {
        self.cut
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

    /// Whether the reply may go to the client: a stream once its first telling event is there, a short document
    /// once it is whole, a long one of success with its first byte, an error once it can be judged.
    pub fn may_be_sent(&self) -> bool {
        if self.done {
            return true;
        }
        match &self.content {
            Content::Events(scanner) => scanner.is_decided(),
            Content::Document { bytes, .. } => {
                *bytes > 0 && is_success(self.status) && !self.is_short(*bytes)
            }
        }
    }

    /// Whether signs of life may stand in it: a stream of success that is not counted by length, and plain.
    pub fn bears_signs_of_life(&self, head: &ResponseHead) -> bool {
        let open = matches!(self.framing, Framing::Chunked(_) | Framing::UntilClose);
        let plain = head.header("content-encoding").is_none();
        open && self.is_event_stream() && self.status == OK && plain
    }

    /// Whether the whole of it, as its head tells, may be held; so much has come. Engines write a document when all of
    /// it is there, so holding it delays nothing, and one that is cut can still be asked for elsewhere.
    fn is_short(&self, come: u64) -> bool {
        matches!(self.framing, Framing::Length { left } if come + left <= HELD_REPLY_MAX as u64)
    }

    /// What the reply means for its backend, as far as it was read.
    pub fn class(&self) -> ReplyClass {
        match &self.content {
            Content::Events(scanner) => {
                scanner.error().map_or(ReplyClass::Served, |data| classify_error(self.engine, data))
            }
            Content::Document { tail, .. } => classify_reply(self.engine, self.status, tail),
        }
    }

    /// Whether it was failed because the engine's pool was used up: a full engine that has begun says so with a 500 or in
    /// an event, one that has not with a 503.
    pub fn says_pool_ran_out(&self) -> bool {
        self.status != UNAVAILABLE && self.class() == ReplyClass::Busy
    }

    /// Payload kept aside since it was last taken; empty unless asked for at the start.
    pub fn take_payload(&mut self) -> Vec<u8> {
        if let Content::Events(scanner) = &mut self.content
            && let Some(hiding) = scanner.hiding()
        {
            self.payload = self.payload.take().map(|_| Vec::new());
            return hiding.take(self.done);
        }
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

    /// What the error event, or the document, said to the caller; empty when there was none, or nothing in it.
    pub fn error_words(&self) -> String {
        match &self.content {
            Content::Events(scanner) => Told::of(scanner.error().unwrap_or_default()).message,
            Content::Document { tail, .. } => Told::of(tail).message,
        }
    }

    /// Whether it is a refusal, whole and as a document, that its client could not read: Anthropic's go by the envelope,
    /// which llama.cpp leaves out. Only of the status that ours has, too: another may mean something to its client, as a
    /// 404 of `count_tokens` does.
    pub fn is_foreign_refusal(&self) -> bool {
        let Content::Document { tail, bytes } = &self.content else { return false };
        let whole = self.done && tail.len() as u64 == *bytes;
        let asked = self.dialect == Dialect::Messages && self.status == BAD_REQUEST;
        whole && asked && !sse::is_enveloped(tail) && !Told::of(tail).message.is_empty()
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

    /// Whether a sign of life may stand behind what was read so far: no event and no chunk is open, and the stream goes on.
    pub fn takes_a_sign_of_life(&self) -> bool {
        let Content::Events(scanner) = &self.content else { return false };
        let goes_on = !scanner.has_ended() && scanner.error().is_none();
        goes_on && !scanner.is_inside_event() && self.is_between_chunks()
    }

    fn is_between_chunks(&self) -> bool {
        match &self.framing {
            Framing::Chunked(reader) => reader.at_chunk_boundary(),
            _ => true,
        }
    }

    /// Completes the chunk that is open, with `filler`, so that a chunk of ours may follow. Returns false
    /// when too much of it is missing.
    pub fn fill_open_chunk(&self, out: &mut Vec<u8>, filler: u8, missing_max: u64) -> bool {
        let Framing::Chunked(reader) = &self.framing else { return false };
        if reader.at_chunk_boundary() {
            return true;
        }
        let Some(missing) = reader.payload_left_in_chunk() else { return false };
        if missing > missing_max {
            return false;
        }
        out.resize(out.len() + usize::try_from(missing).unwrap_or(0), filler);
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

fn take_length(left: &mut u64, raw: &[u8], see: &mut impl FnMut(&[u8]) -> usize) -> Fed {
    let mine = usize::try_from(*left).unwrap_or(usize::MAX).min(raw.len());
    let consumed = mine - see(raw.get(..mine).unwrap_or_default());
    *left -= consumed as u64;
    Fed { consumed, done: *left == 0 }
}

impl Content {
    /// Returns how many bytes at the end must not be passed on.
    fn see(&mut self, bytes: &[u8]) -> usize {
        match self {
            Content::Events(scanner) => scanner.feed(bytes),
            Content::Document { tail, bytes: count } => {
                *count += bytes.len() as u64;
                keep_tail(tail, bytes);
                0
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
