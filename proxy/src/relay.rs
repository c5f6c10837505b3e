//! Passing a reply on to the client: each read is forwarded at once, as it came where the framing allows.
//!
//! A chunked reply to an HTTP/1.1 client is not re-chunked and not copied: the bytes the kernel wrote into
//! the read buffer are the bytes sent. A stream that breaks ends with the dialect's error event, never
//! in silence and never with an end marker. Memory is one read buffer, whatever the client's speed.

use std::pin::{Pin, pin};
use std::rc::Rc;

use index::BackendId;
use monoio::buf::IoBuf;

use crate::alarm::{Raced, race};
use crate::answer;
use crate::api::Dialect;
use crate::client::{Client, ClientLost};
use crate::clock;
use crate::http::{CHUNK_END, LAST_CHUNK, ReplyFraming, write_chunk_head};
use crate::limits::{CHUNK_FILL_MAX, READ_BUFFER_FIRST, READ_BUFFER_MAX, READS_BEFORE_RIDE};
use crate::metrics::Count;
use crate::place::Slot;
use crate::record::End;
use crate::reply::{Reply, Wire};
use crate::shard::Shard;
use crate::socket::Socket;
use crate::stream_ring::{self, Course, Ridden, StreamRing};

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
    /// Bytes written so far.
    pub bytes: u64,
}

impl<W> std::fmt::Debug for Relay<'_, W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relay").field("framing", &self.framing).finish_non_exhaustive()
    }
}

enum Read {
    Bytes(Vec<u8>),
    Ended,
    Broke,
    Stalled,
    ClientGone,
}

impl<W: Future<Output = ()>> Relay<'_, W> {
    /// Sends `head` and the body bytes held so far, then everything that follows, to the end.
    pub async fn run(mut self, head: Vec<u8>, held: Vec<u8>, slot: Option<&Slot>) -> Relayed {
        if let Some(slot) = slot {
            slot.prefill_done();
        }
        let mut first = head;
        self.wrap_onto(&mut first, &held);
        drop(held);
        if let Err(lost) = self.send(first).await {
            return self.lost(lost);
        }
        let mut buf = Vec::new();
        let mut reads = 0;
        while !self.reply.is_done() {
            if reads >= READS_BEFORE_RIDE
                && let Some(ring) = &self.shard.streams
                && self.may_ride()
            {
                return self.ride(ring).await;
            }
            reads += 1;
            buf = match self.read(buf).await {
                Read::Bytes(read) => match self.forward(read).await {
                    Ok(buf) => buf,
                    Err(Stop::Lost(lost)) => return self.lost(lost),
                    Err(Stop::Malformed) => return self.break_off(End::UpstreamBroke).await,
                },
                Read::Ended => break,
                Read::Broke => return self.break_off(End::UpstreamBroke).await,
                Read::Stalled => return self.break_off(End::UpstreamStalled).await,
                Read::ClientGone => return self.lost(ClientLost::Gone),
            };
        }
        self.finish().await
    }

    /// Whether all that is left is passing bytes on: a stream of events in a framing that suits the client.
    fn may_ride(&self) -> bool {
        self.reply.is_event_stream() && !self.reply.is_done() && self.passes_raw()
    }

    /// The rest of the stream, on the shard's stream ring.
    async fn ride(mut self, ring: &StreamRing) -> Relayed {
        let timeouts = &self.shard.shared.config.timeouts;
        let course = Course {
            upstream: self.upstream.descriptor(),
            client: self.client.socket.descriptor(),
            backend: self.shard.shared.upstream(self.backend),
            alarm: Rc::clone(&self.client.alarm),
            idle_ms: timeouts.stream_idle_ms,
            stall_ms: timeouts.write_stall_ms,
        };
        self.client.alarm.set(clock::now().millis(), timeouts.stream_idle_ms);
        let mut ride = ring.start(course, std::mem::take(self.reply));
        let raced = race(&self.client.alarm, self.gone.as_mut(), Pin::new(&mut ride)).await;
        if let Raced::Done(Ridden { end, reply, bytes }) = raced {
            *self.reply = reply;
            self.bytes += bytes;
            return match end {
                stream_ring::End::Over => self.finish().await,
                stream_ring::End::Broke | stream_ring::End::Malformed => {
                    self.break_off(End::UpstreamBroke).await
                }
                stream_ring::End::ClientLost => self.lost(ClientLost::Gone),
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

    async fn read(&mut self, mut buf: Vec<u8>) -> Read {
        if buf.len() == buf.capacity() && buf.capacity() < READ_BUFFER_MAX {
            buf =
                Vec::with_capacity((buf.capacity() * 4).clamp(READ_BUFFER_FIRST, READ_BUFFER_MAX));
        }
        buf.clear();
        let idle = self.shard.shared.config.timeouts.stream_idle_ms;
        self.client.alarm.set(clock::now().millis(), idle);
        let read = pin!(self.upstream.read(buf));
        match race(&self.client.alarm, self.gone.as_mut(), read).await {
            Raced::Done((Ok(count), buf)) if count > 0 => {
                self.shard.shared.note_alive(self.backend, clock::now().millis());
                Read::Bytes(buf)
            }
            Raced::Done(_) if self.reply.close() => Read::Ended,
            Raced::Done(_) => Read::Broke,
            Raced::Late => Read::Stalled,
            Raced::Gone => Read::ClientGone,
        }
    }

    /// Forwards one read and hands its buffer back.
    async fn forward(&mut self, buf: Vec<u8>) -> Result<Vec<u8>, Stop> {
        let fed = self.reply.feed(&buf).map_err(|_| Stop::Malformed)?;
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

    /// Whether the reply's own framing suits the client.
    fn passes_raw(&self) -> bool {
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
        let payload = if self.reply.wire() == Wire::UntilClose { raw } else { &kept[..] };
        if payload.is_empty() {
            return;
        }
        if self.framing == ReplyFraming::Chunked {
            write_chunk_head(out, payload.len());
            out.extend_from_slice(payload);
            out.extend_from_slice(CHUNK_END);
        } else {
            out.extend_from_slice(payload);
        }
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

    /// The reply broke after it had begun: tells the client in its dialect and closes.
    async fn break_off(mut self, end: End) -> Relayed {
        let mut tail = Vec::new();
        if self.reply.is_event_stream() && self.may_append(&mut tail) {
            let mut frame = Vec::new();
            if self.reply.inside_event() {
                frame.extend_from_slice(b"\n\n");
            }
            answer::write_broken_frame(&mut frame, self.dialect, self.reply.events());
            self.append(&mut tail, &frame);
            // Whether or not it arrives, the connection ends here.
            let _ = self.send(tail).await;
        }
        self.ended(end, false)
    }

    /// Whether bytes of ours may follow what was sent; completes an open chunk so that they can.
    fn may_append(&self, tail: &mut Vec<u8>) -> bool {
        match self.framing {
            ReplyFraming::UntilClose => true,
            ReplyFraming::None | ReplyFraming::Length(_) => false,
            ReplyFraming::Chunked if !self.passes_raw() => true,
            ReplyFraming::Chunked => self.reply.fill_open_chunk(tail, CHUNK_FILL_MAX),
        }
    }

    fn append(&self, tail: &mut Vec<u8>, frame: &[u8]) {
        if self.framing == ReplyFraming::Chunked {
            write_chunk_head(tail, frame.len());
            tail.extend_from_slice(frame);
            tail.extend_from_slice(CHUNK_END);
            tail.extend_from_slice(LAST_CHUNK);
        } else {
            tail.extend_from_slice(frame);
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
        let whole = matches!(end, End::Complete | End::EngineError | End::EngineAborted);
        Relayed {
            end,
            bytes: self.bytes,
            client_reusable: whole && client_reusable,
            upstream_reusable: whole && self.reply.left_connection_clean(),
        }
    }
}

enum Stop {
    Lost(ClientLost),
    Malformed,
}
