//! Passing a reply on to the client: each read is forwarded at once, as it came where the framing allows.
//!
//! A chunked reply to an HTTP/1.1 client is not re-chunked and not copied: the bytes the kernel wrote into
//! the read buffer are the bytes sent. A stream that breaks ends with the dialect's error event, never
//! in silence and never with an end marker. Memory is one read buffer, whatever the client's speed. Where that is
//! switched on, a client whose stream is silent, before its first event or between two, is sent signs of life.

mod silence;

use std::pin::{Pin, pin};
use std::rc::Rc;

use index::BackendId;
use monoio::buf::IoBuf;

use crate::alarm::{Raced, race};
use crate::answer;
use crate::api::Dialect;
use crate::client::{Client, ClientLost};
use crate::clock::{self, Micros};
use crate::http::{CHUNK_END, LAST_CHUNK, ReplyFraming, write_chunk_head};
use crate::limits::{CHUNK_FILL_MAX, READ_BUFFER_FIRST, READ_BUFFER_MAX, READS_BEFORE_RIDE};
use crate::memory::Charge;
use crate::metrics::Count;
use crate::place::Slot;
use crate::published::Phase;
use crate::record::End;
use crate::reply::{Reply, Wire};
use crate::shard::Shard;
use crate::socket::Socket;
use crate::stream_ring::{self, Course, Ridden, Ride, StreamRing};

pub use silence::Silence;

/// How the relay ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relayed {
    /// Who ended it.
    pub end: End,
    /// Bytes written to the client, head included.
    pub bytes: u64,
    /// Whether the client's connection may carry another request.
    pub client_reusable: bool,
    /// Whether the upstream's may.
    pub upstream_reusable: bool,
    /// When its first telling event came, if that was not before it was sent.
    pub first_event: Option<Micros>,
}

/// A relay in progress.
pub struct Relay<'r, W> {
    /// Its shard.
    pub shard: &'r Rc<Shard>,
    /// Whom it serves.
    pub client: &'r Client,
    /// Finishes when the client leaves.
    pub gone: Pin<&'r mut W>,
    /// Where the reply comes from.
    pub upstream: &'r Socket,
    /// Whose it is.
    pub backend: BackendId,
    /// How far it is.
    pub reply: &'r mut Reply,
    /// How its body is delimited towards the client.
    pub framing: ReplyFraming,
    /// In whose words an error is told.
    pub dialect: Dialect,
    /// The memory that what is not sent yet takes.
    pub memory: &'r mut Charge,
    /// Something of it is hidden from the client: what goes on is written anew.
    pub rewriting: bool,
    /// How long it has been silent.
    pub silence: Silence,
    /// Bytes written so far.
    pub bytes: u64,
    /// See [`Relayed::first_event`].
    pub first_event: Option<Micros>,
}

impl<W> std::fmt::Debug for Relay<'_, W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relay").field("framing", &self.framing).finish_non_exhaustive()
    }
}

/// Why nothing more is forwarded.
enum Stop {
    /// The connection's end was the reply's.
    Ended,
    Lost(ClientLost),
    Broken(End),
}

impl<W: Future<Output = ()>> Relay<'_, W> {
    /// Sends `head` and the body bytes held so far, then everything that follows, to the end.
    /// `undecided`: its first telling event has not come.
    pub async fn run(
        mut self,
        head: Vec<u8>,
        held: Vec<u8>,
        slot: Option<&Slot>,
        undecided: bool,
    ) -> Relayed {
        let prefill_done = || slot.map_or((), Slot::prefill_done);
        if !undecided {
            prefill_done();
        }
        let mut first = head;
        self.wrap_onto(&mut first, &held);
        drop(held);
        if undecided {
            first.append(&mut self.sign_of_life());
        }
        if let Err(lost) = self.send(first).await {
            return self.lost(lost);
        }
        self.memory.clear();
        if undecided {
            if let Err(stop) = self.await_event().await {
                return self.stopped(stop).await;
            }
            self.first_event = Some(clock::now());
            prefill_done();
        }
        if self.reply.is_cut() {
            return self.break_off(End::EngineError).await;
        }
        let mut buf = Vec::new();
        for _ in 0..READS_BEFORE_RIDE {
            if self.reply.is_done() {
                break;
            }
            buf = match self.step(buf).await {
                Ok(buf) => buf,
                Err(stop) => return self.stopped(stop).await,
            };
        }
        if let Some(ring) = &self.shard.streams
            && self.may_ride()
        {
            drop(buf);
            self.memory.clear();
            return self.ride(ring).await;
        }
        self.rest(buf).await
    }

    /// Everything that follows, read by read.
    async fn rest(mut self, mut buf: Vec<u8>) -> Relayed {
        while !self.reply.is_done() {
            buf = match self.step(buf).await {
                Ok(buf) => buf,
                Err(stop) => return self.stopped(stop).await,
            };
        }
        self.finish().await
    }

    /// Forwards what comes until the first telling event has. The engine may take as long as for a first byte.
    async fn await_event(&mut self) -> Result<(), Stop> {
        let between = self.silence;
        let max_ms = self.shard.shared.config.timeouts.first_byte_ms;
        self.silence = between.before_an_event(max_ms, clock::now());
        let mut buf = Vec::new();
        while !self.reply.may_be_sent() {
            buf = self.step(buf).await?;
        }
        self.silence = between;
        Ok(())
    }

    /// A look at a silent stream: its engine has been silent for too long, or its client hears a sign of life, or it is
    /// not time yet.
    async fn look(&mut self) -> Result<(), Stop> {
        let now = clock::now();
        if self.gives_up(now) {
            return Err(Stop::Broken(End::UpstreamStalled));
        }
        if self.silence.is_due(now) {
            self.silence.note_sign(now);
            let sign = self.sign_of_life();
            self.send(sign).await.map_err(Stop::Lost)?;
        }
        self.client.alarm.set(now.millis(), self.silence.next_look_ms(now));
        Ok(())
    }

    /// Whether an alarm that rang means the stream's end.
    fn gives_up(&self, now: Micros) -> bool {
        self.silence.is_over(now) || self.shard.shared.phase() == Phase::Stopping
    }

    /// A sign of life as it stands in the body; nothing where none may stand.
    fn sign_of_life(&self) -> Vec<u8> {
        let mut sign = Vec::new();
        if self.reply.takes_a_sign_of_life() {
            self.frame_onto(&mut sign, answer::keepalive(self.dialect));
        }
        sign
    }

    /// One read, forwarded. Hands the buffer back.
    async fn step(&mut self, buf: Vec<u8>) -> Result<Vec<u8>, Stop> {
        let read = self.read(buf).await?;
        let buf = self.forward(read).await?;
        if self.reply.is_cut() { Err(Stop::Broken(End::EngineError)) } else { Ok(buf) }
    }

    async fn stopped(self, stop: Stop) -> Relayed {
        match stop {
            Stop::Ended => self.finish().await,
            Stop::Lost(lost) => self.lost(lost),
            Stop::Broken(end) => self.break_off(end).await,
        }
    }

    /// Whether all that is left is passing bytes on: a stream of events in a framing that suits the client.
    fn may_ride(&mut self) -> bool {
        let streams = self.reply.is_event_stream() && !self.reply.is_done();
        streams && self.framing_suits() && self.reply.goes_on_as_it_came()
    }

    /// The rest of the stream, on the shard's stream ring; of one in which something is hidden, all up to there.
    async fn ride(mut self, ring: &StreamRing) -> Relayed {
        self.rewriting = false;
        let timeouts = &self.shard.shared.config.timeouts;
        let course = Course {
            upstream: self.upstream.descriptor(),
            client: self.client.socket.descriptor(),
            backend: self.shard.shared.upstream(self.backend),
            alarm: Rc::clone(&self.client.alarm),
            memory: Charge::new(&self.shard.memory),
            idle_ms: self.silence.wait_ms(),
            idle_is_without_events: self.silence.has_signs(),
            stall_ms: timeouts.write_stall_ms,
        };
        self.client.alarm.set(clock::now().millis(), course.idle_ms);
        let mut ride = ring.start(course, std::mem::take(self.reply));
        let raced = self.await_end(&mut ride).await;
        if let Raced::Done(Ridden { end, reply, bytes }) = raced {
            *self.reply = reply;
            self.bytes += bytes;
            return match end {
                stream_ring::End::Over => self.finish().await,
                stream_ring::End::Broke | stream_ring::End::Malformed => {
                    self.break_off(End::UpstreamBroke).await
                }
                stream_ring::End::Cut => self.break_off(End::EngineError).await,
                stream_ring::End::ClientLost => self.lost(ClientLost::Gone),
                stream_ring::End::Left => self.leave_ring().await,
            };
        }
        let writing = ride.is_writing();
        if let Some((reply, bytes)) = ride.give_up() {
            *self.reply = reply;
            self.bytes += bytes;
        }
        match raced {
            Raced::Late if !writing => self.break_off(End::UpstreamStalled).await,
            Raced::Late => self.lost(ClientLost::Stalled),
            Raced::Done(_) | Raced::Gone => self.lost(ClientLost::Gone),
        }
    }

    /// Waits for a ride's end, with a sign of life in each silence.
    async fn await_end(&mut self, ride: &mut Ride<'_>) -> Raced<Ridden> {
        loop {
            let raced = race(&self.client.alarm, self.gone.as_mut(), Pin::new(&mut *ride)).await;
            let now = clock::now();
            if !matches!(raced, Raced::Late) || ride.is_writing() {
                return raced;
            }
            if let Some((events, bytes)) = ride.progress() {
                self.silence.note_ring(events, bytes, now);
            }
            if self.gives_up(now) {
                return raced;
            }
            let said = self.silence.is_due(now) && self.say_on(ride, now);
            let stall_ms = self.shard.shared.config.timeouts.write_stall_ms;
            let wait_ms = if said { stall_ms } else { self.silence.next_look_ms(now) };
            self.client.alarm.set(now.millis(), wait_ms);
        }
    }

    /// A sign of life on a ride, where one may stand.
    fn say_on(&mut self, ride: &Ride<'_>, now: Micros) -> bool {
        self.silence.note_sign(now);
        let mut sign = Vec::new();
        self.frame_onto(&mut sign, answer::keepalive(self.dialect));
        let bytes = sign.len() as u64;
        let said = ride.say(sign);
        self.bytes += if said { bytes } else { 0 };
        said
    }

    /// Goes on where the ring stopped: what it read last was not sent.
    async fn leave_ring(mut self) -> Relayed {
        self.rewriting = true;
        let mut passed = Vec::new();
        self.wrap_onto(&mut passed, &[]);
        match self.send(passed).await {
            Ok(()) => self.rest(Vec::new()).await,
            Err(lost) => self.lost(lost),
        }
    }

    async fn read(&mut self, mut buf: Vec<u8>) -> Result<Vec<u8>, Stop> {
        if buf.len() == buf.capacity() && buf.capacity() < READ_BUFFER_MAX {
            let larger = (buf.capacity() * 4).clamp(READ_BUFFER_FIRST, READ_BUFFER_MAX);
            // The first one is had in any case: without it nothing would move.
            if self.memory.resize(larger) || buf.capacity() == 0 {
                buf = Vec::with_capacity(larger);
            }
        }
        buf.clear();
        let now = clock::now();
        self.silence.note_read(self.reply.events(), now);
        self.client.alarm.set(now.millis(), self.silence.next_look_ms(now));
        let upstream = self.upstream;
        let mut read = pin!(upstream.read(buf));
        loop {
            match race(&self.client.alarm, self.gone.as_mut(), read.as_mut()).await {
                Raced::Done((Ok(count), buf)) if count > 0 => {
                    self.shard.shared.note_alive(self.backend, clock::now().millis());
                    return Ok(buf);
                }
                Raced::Done(_) if self.reply.close() => return Err(Stop::Ended),
                Raced::Done(_) => return Err(Stop::Broken(End::UpstreamBroke)),
                // The read goes on: what comes meanwhile is not lost. Boxed, so that no stream without such silences
                // has room for it.
                Raced::Late => Box::pin(self.look()).await?,
                Raced::Gone => return Err(Stop::Lost(ClientLost::Gone)),
            }
        }
    }

    /// Forwards one read and hands its buffer back.
    async fn forward(&mut self, buf: Vec<u8>) -> Result<Vec<u8>, Stop> {
        let fed = self.reply.feed(&buf).map_err(|_| Stop::Broken(End::UpstreamBroke))?;
        if self.passes_raw() {
            let sent = fed.consumed.min(buf.len());
            self.bytes += sent as u64;
            let stall = self.shard.shared.config.timeouts.write_stall_ms;
            let slice = self.client.write(buf.slice(..sent), stall).await.map_err(Stop::Lost)?;
            return Ok(slice.into_inner());
        }
        let mut wrapped = Vec::with_capacity(buf.len() + 32);
        self.wrap_onto(&mut wrapped, &buf);
        self.send(wrapped).await.map_err(Stop::Lost)?;
        Ok(buf)
    }

    /// Whether what is read goes on as it is.
    fn passes_raw(&self) -> bool {
        !self.rewriting && self.framing_suits()
    }

    /// Whether the reply's own framing suits the client.
    fn framing_suits(&self) -> bool {
        match self.reply.wire() {
            Wire::Chunked => self.framing == ReplyFraming::Chunked,
            Wire::UntilClose => self.framing == ReplyFraming::UntilClose,
            Wire::None | Wire::Length => true,
        }
    }

    /// Appends body bytes as they must look to the client.
    fn wrap_onto(&mut self, out: &mut Vec<u8>, raw: &[u8]) {
        if self.passes_raw() {
            out.extend_from_slice(raw);
            return;
        }
        let kept = self.reply.take_payload();
        let unframed = self.reply.wire() == Wire::UntilClose && !self.rewriting;
        let payload = if unframed { raw } else { &kept[..] };
        if payload.is_empty() {
            return;
        }
        self.frame_onto(out, payload);
    }

    async fn send(&mut self, bytes: Vec<u8>) -> Result<(), ClientLost> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.bytes += bytes.len() as u64;
        let stall = self.shard.shared.config.timeouts.write_stall_ms;
        self.client.write(bytes, stall).await.map(drop)
    }

    async fn finish(mut self) -> Relayed {
        if self.reply.ended_early() {
            return self.break_off(End::UpstreamBroke).await;
        }
        if !self.passes_raw()
            && self.framing == ReplyFraming::Chunked
            && let Err(lost) = self.send(LAST_CHUNK.to_vec()).await
        {
            return self.lost(lost);
        }
        let end = match (self.reply.had_error(), self.reply.was_aborted()) {
            (true, _) => End::EngineError,
            (false, true) => End::EngineAborted,
            (false, false) => End::Complete,
        };
        let delimited = self.framing != ReplyFraming::UntilClose;
        self.ended(end, delimited)
    }

    /// The reply broke after it had begun, or its engine broke it off in words its client cannot read: tells the client in
    /// its dialect and closes.
    async fn break_off(mut self, end: End) -> Relayed {
        let mut tail = Vec::new();
        let ending = Ending::of(self.reply, self.dialect);
        if self.reply.is_event_stream() && self.may_append(&mut tail, ending.filler) {
            let mut frame = ending.prefix.to_vec();
            let (dialect, events) = (self.dialect, self.reply.events());
            if self.reply.is_cut() {
                let (class, words) = (self.reply.class(), self.reply.error_words());
                answer::write_error_frame(&mut frame, dialect, events, class, &words);
            } else {
                answer::write_broken_frame(&mut frame, dialect, events);
            }
            self.append(&mut tail, &frame);
            // Whether or not it arrives, the connection ends here.
            let _ = self.send(tail).await;
        }
        self.ended(end, false)
    }

    /// Whether bytes of ours may follow what was sent; completes an open chunk so that they can.
    fn may_append(&self, tail: &mut Vec<u8>, filler: u8) -> bool {
        match self.framing {
            ReplyFraming::UntilClose => true,
            ReplyFraming::None | ReplyFraming::Length(_) => false,
            ReplyFraming::Chunked if !self.passes_raw() => true,
            ReplyFraming::Chunked => self.reply.fill_open_chunk(tail, filler, CHUNK_FILL_MAX),
        }
    }

    fn append(&self, tail: &mut Vec<u8>, frame: &[u8]) {
        self.frame_onto(tail, frame);
        if self.framing == ReplyFraming::Chunked {
            tail.extend_from_slice(LAST_CHUNK);
        }
    }

    /// Bytes of the body, in a chunk where the client is given chunks.
    fn frame_onto(&self, out: &mut Vec<u8>, payload: &[u8]) {
        if self.framing == ReplyFraming::Chunked {
            write_chunk_head(out, payload.len());
            out.extend_from_slice(payload);
            out.extend_from_slice(CHUNK_END);
        } else {
            out.extend_from_slice(payload);
        }
    }

    fn lost(self, lost: ClientLost) -> Relayed {
        let end = match lost {
            ClientLost::Gone => End::ClientGone,
            ClientLost::Stalled => End::ClientStalled,
        };
        self.ended(end, false)
    }

    fn ended(self, end: End, client_reusable: bool) -> Relayed {
        self.shard.stats.add(Count::BytesDown, self.bytes);
        self.shard.stats.add(Count::Events, self.reply.events());
        let whole = end.is_whole();
        Relayed {
            end,
            bytes: self.bytes,
            client_reusable: whole && client_reusable,
            upstream_reusable: whole && self.reply.left_connection_clean(),
            first_event: self.first_event,
        }
    }
}

/// How an event that broke off is brought to its end.
struct Ending {
    /// What is put in place of the rest of an open chunk.
    filler: u8,
    /// What stands before an event of ours.
    prefix: &'static [u8],
}

impl Ending {
    fn of(reply: &Reply, dialect: Dialect) -> Ending {
        match (reply.inside_event(), dialect) {
            // Its reader goes by an event's name: the half one takes ours and is the error, where blank lines would hand
            // out half an object. Blanks only lengthen a line that is no use to anybody.
            (true, Dialect::Messages) => Ending { filler: b' ', prefix: b"\n" },
            (true, _) => Ending { filler: b'\n', prefix: b"\n\n" },
            (false, _) => Ending { filler: b'\n', prefix: b"" },
        }
    }
}
