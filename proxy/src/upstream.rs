//! One attempt at one backend, up to the point where its reply may go to the client.
//!
//! It connects or takes a pooled connection, sends the request, reads the reply's head and holds it until
//! its first event was looked at, because an engine that is full may say so inside a 200. It never
//! writes to the client and never decides whether to try again.

use std::io::IoSlice;
use std::iter;
use std::pin::{Pin, pin};
use std::rc::Rc;

use bytes::Bytes;
use index::BackendId;
use index::breaker::Pass;
use monoio::buf::IoBufMut;

use crate::alarm::{Alarm, Raced, race};
use crate::client::with_room;
use crate::clock::{self, Micros};
use crate::edits::Edits;
use crate::http::{Method, ResponseHead};
use crate::limits::{
    FIRST_BYTE_LOOK_MS, GIVE_WAY_LOOK_MS, HELD_REPLY_MAX, INTERIM_REPLIES_MAX, LATE_LOOK_MS,
    READ_BUFFER_FIRST, RESPONSE_HEAD, SEND_PIECES_MAX, STALE_AFTER_SENT_MS,
};
use crate::memory::Charge;
use crate::metrics::Count;
use crate::place::Slot;
use crate::published::{EngineKind, Phase, Upstream};
use crate::reply::{Reply, Wire};
use crate::shard::Shard;
use crate::socket::Socket;

/// What is sent: the head without a reader's position, and the body shared by all attempts, with this one's edits.
#[derive(Debug)]
pub struct Outgoing<'r> {
    /// The serialised head.
    pub head: Vec<u8>,
    /// The body, as the client sent it.
    pub body: &'r Bytes,
    /// What is changed in it on its way.
    pub edits: Edits,
    /// Its method, which decides whether a reply has a body.
    pub method: Method,
    /// What kind of events to expect.
    pub dialect: crate::api::Dialect,
    /// The client cannot be given chunks.
    pub unwrap_chunks: bool,
    /// The stream's usage was asked for by us: the client is not shown it.
    pub hides_usage: bool,
    /// It may be sent again although an engine may have begun on it.
    pub repeatable: bool,
}

/// A reply held back, its first event seen.
#[derive(Debug)]
pub struct Held {
    /// The connection it comes from.
    pub socket: Socket,
    /// Its head.
    pub head: Box<ResponseHead>,
    /// How far its body was read and what was seen in it.
    pub reply: Reply,
    /// What was read of its body, raw.
    pub raw: Vec<u8>,
    /// Moments of the attempt.
    pub moments: Moments,
    /// Says what the request came to; `None` once that was said.
    pub pass: Option<Pass<'static>>,
    /// Its client has waited for long enough: the reply begins before its first telling event came.
    pub undecided: bool,
    /// The memory that `raw` takes.
    pub memory: Charge,
}

/// Moments of an attempt.
#[derive(Debug, Clone, Copy, Default)]
pub struct Moments {
    /// A connection was there.
    pub connected: Option<Micros>,
    /// The request had been sent.
    pub sent: Option<Micros>,
    /// The reply's head was complete.
    pub reply_head: Option<Micros>,
    /// Its first event or body byte was there.
    pub first_byte: Option<Micros>,
}

/// Why an attempt brought no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failed {
    /// The client left.
    ClientGone,
    /// No connection could be made: no work was started.
    Connect,
    /// This process has no descriptor, port or memory left for one; the backend is not to blame.
    Exhausted,
    /// The connection broke, or took nothing more, before the whole request was sent: no work was started.
    Unsent,
    /// The whole request was sent, and the connection broke before any byte of a reply.
    NoReply,
    /// What came is not HTTP, or broke before it could be committed to.
    BadReply,
    /// Nothing came for as long as a first byte may take.
    Silent,
    /// Nothing came yet, and somebody is to go first: it is to be sent again, to the same backend.
    GaveWay,
    /// Nothing came, and the backend was found to do nothing for anybody.
    Wedged,
}

/// Who the attempt is for, and what may end it.
pub struct Attempt<'a, W> {
    /// Its shard.
    pub shard: &'a Rc<Shard>,
    /// Its deadline.
    pub alarm: &'a Alarm,
    /// Finishes when the client leaves.
    pub gone: Pin<&'a mut W>,
    /// What is held for it on the backend.
    pub slot: Option<&'a Slot>,
    /// Until when a first byte, or more of a document, may come, once the request has been sent.
    wait: Wait,
}

/// A wait for a reply.
#[derive(Debug, Clone, Copy, Default)]
struct Wait {
    upstream: Option<&'static Upstream>,
    sent: Micros,
    until: Option<Micros>,
    look_ms: u64,
}

impl<W> std::fmt::Debug for Attempt<'_, W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attempt").finish_non_exhaustive()
    }
}

impl<'a, W: Future<Output = ()>> Attempt<'a, W> {
    /// An attempt for a client.
    pub fn new(
        shard: &'a Rc<Shard>,
        alarm: &'a Alarm,
        gone: Pin<&'a mut W>,
        slot: Option<&'a Slot>,
    ) -> Attempt<'a, W> {
        Attempt { shard, alarm, gone, slot, wait: Wait::default() }
    }

    /// Sends to `backend` and holds its reply.
    ///
    /// # Errors
    /// See [`Failed`]. A pooled connection that turns out dead is replaced once, silently: that is no failure of the
    /// backend. What must not be sent twice takes a fresh connection, whose death is never a mere coincidence.
    pub async fn run(
        &mut self,
        backend: BackendId,
        out: &Outgoing<'_>,
    ) -> Result<Box<Held>, Failed> {
        // Read a moment ago, when the backend was chosen; a pooled connection is there at once.
        let placed = clock::recent();
        if out.repeatable
            && let Some(socket) = self.shard.pools.take(backend, placed.millis())
        {
            self.shard.stats.add(Count::UpstreamReused, 1);
            let moments = Moments { connected: Some(placed), ..Moments::default() };
            match self.exchange(backend, socket, out, moments).await {
                Err(Failed::NoReply | Failed::Unsent) if was_stale(placed) => {
                    self.shard.stats.add(Count::UpstreamStale, 1);
                }
                ended => return ended,
            }
        }
        let socket = self.connect(backend).await?;
        let moments = Moments { connected: Some(clock::now()), ..Moments::default() };
        self.exchange(backend, socket, out, moments).await
    }

    /// Whether the request was sent: its backend may be at work on it.
    pub fn was_sent(&self) -> bool {
        self.wait.upstream.is_some()
    }

    async fn connect(&mut self, backend: BackendId) -> Result<Socket, Failed> {
        let address = self.shard.shared.upstream(backend).and_then(|upstream| upstream.address());
        let address = address.ok_or(Failed::Connect)?;
        self.shard.stats.add(Count::UpstreamConnects, 1);
        self.set_alarm(self.shard.shared.config.timeouts.connect_ms);
        match race(self.alarm, self.gone.as_mut(), pin!(Socket::connect(address))).await {
            Raced::Done(Ok(socket)) => Ok(socket),
            Raced::Gone => Err(Failed::ClientGone),
            Raced::Done(Err(error)) if is_our_own(&error) => Err(Failed::Exhausted),
            Raced::Done(Err(_)) | Raced::Late => Err(Failed::Connect),
        }
    }

    fn set_alarm(&self, after_ms: u64) {
        self.alarm.set(clock::recent().millis(), after_ms);
    }

    async fn exchange(
        &mut self,
        backend: BackendId,
        socket: Socket,
        out: &Outgoing<'_>,
        mut moments: Moments,
    ) -> Result<Box<Held>, Failed> {
        self.wait = Wait::default();
        // An engine may answer and close without reading all of the body (413): whatever happened to the
        // sending, what it said is the answer.
        let sent = self.send(&socket, out).await;
        if let Err(failed @ (Failed::ClientGone | Failed::Unsent)) = sent {
            // An engine that takes nothing more has nothing to say about it either.
            return Err(failed);
        }
        let now = clock::now();
        moments.sent = Some(now);
        if let Some(slot) = self.slot {
            slot.note_sent();
        }
        self.wait(backend, now);
        let (head, raw) = match self.read_head(&socket, out.method).await {
            Err(Failed::NoReply) if sent.is_err() => return Err(Failed::Unsent),
            read => read?,
        };
        let head_at = clock::now();
        if let Some(slot) = self.slot {
            slot.note_begun();
        }
        moments.reply_head = Some(head_at);
        let engine =
            self.shard.shared.upstream(backend).map_or(EngineKind::Unknown, Upstream::kind);
        let mut reply = Reply::new(&head, engine, out.dialect, out.unwrap_chunks);
        if out.hides_usage {
            reply = reply.hiding_usage();
        }
        let memory = Charge::new(&self.shard.memory);
        // Boxed at once: it is handed on through several hands, and only the box moves.
        let mut held = Box::new(Held {
            socket,
            head,
            reply,
            raw,
            moments,
            pass: None,
            undecided: false,
            memory,
        });
        let waited = self.hold(&mut held).await?;
        if !held.undecided {
            held.moments.first_byte = Some(if waited { clock::now() } else { head_at });
        }
        Ok(held)
    }

    /// From now on a first byte is waited for.
    fn wait(&mut self, backend: BackendId, now: Micros) {
        let shared = self.shard.shared;
        let look_ms = self.look_ms();
        self.wait = Wait { upstream: shared.upstream(backend), sent: now, until: None, look_ms };
        self.wait_for(shared.config.timeouts.first_byte_ms, now);
    }

    /// How often to look what became of it while it waits.
    fn look_ms(&self) -> u64 {
        match self.slot {
            Some(slot) if slot.may_give_way() => GIVE_WAY_LOOK_MS,
            Some(slot) if slot.may_be_found_long() => LATE_LOOK_MS,
            _ => FIRST_BYTE_LOOK_MS,
        }
    }

    /// From now on more is waited for, for so long at most.
    fn wait_for(&mut self, ms: Option<u64>, now: Micros) {
        self.wait.until = ms.map(|ms| Micros(now.0.saturating_add(ms.saturating_mul(1000))));
        self.set_alarm(self.wait.next_look_ms(now));
    }

    /// The alarm rang: whether to wait on.
    fn wait_on(&mut self) -> Result<(), Failed> {
        let now = clock::now();
        if self
            .wait
            .upstream
            .is_some_and(|upstream| upstream.gave_up_since(self.wait.sent.millis()))
        {
            return Err(Failed::Wedged);
        }
        let late = self.wait.until.is_some_and(|until| now >= until);
        if late || self.shard.shared.phase() == Phase::Stopping {
            return Err(Failed::Silent);
        }
        if let Some(slot) = self.slot {
            slot.look_after();
            if slot.is_asked_to_give_way() {
                return Err(Failed::GaveWay);
            }
        }
        self.wait.look_ms = self.look_ms();
        self.set_alarm(self.wait.next_look_ms(now));
        Ok(())
    }

    /// Sends head and body in one piece, out of the memory they are in, so that the engine is woken once. What the kernel
    /// takes at once needs no turn of the loop, and a body just read is still in the processor's cache.
    async fn send(&mut self, socket: &Socket, out: &Outgoing<'_>) -> Result<(), Failed> {
        let pieces: Vec<Bytes> = out.edits.pieces(out.body).collect();
        let slices = iter::once(out.head.as_slice()).chain(pieces.iter().map(|piece| &piece[..]));
        let slices: Vec<IoSlice<'_>> = slices.take(SEND_PIECES_MAX).map(IoSlice::new).collect();
        let mut sent = socket.send_now(&slices).map_err(|_| Failed::NoReply)?;
        if sent == out.head.len() + out.edits.len_of(out.body.len()) {
            return Ok(());
        }
        self.set_alarm(self.shard.shared.config.timeouts.write_stall_ms);
        let head = Bytes::copy_from_slice(&out.head);
        for mut piece in iter::once(head).chain(pieces) {
            let gone = sent.min(piece.len());
            sent -= gone;
            let rest = piece.split_off(gone);
            if !rest.is_empty() {
                self.write(pin!(socket.write_all(rest))).await?;
            }
        }
        Ok(())
    }

    async fn write<B>(
        &mut self,
        write: Pin<&mut impl Future<Output = (std::io::Result<()>, B)>>,
    ) -> Result<(), Failed> {
        match race(self.alarm, self.gone.as_mut(), write).await {
            Raced::Done((Ok(()), _)) => Ok(()),
            Raced::Gone => Err(Failed::ClientGone),
            Raced::Late => Err(Failed::Unsent),
            Raced::Done((Err(_), _)) => Err(Failed::NoReply),
        }
    }

    /// Reads the final head, skipping interim ones. Returns what follows it.
    async fn read_head(
        &mut self,
        socket: &Socket,
        method: Method,
    ) -> Result<(Box<ResponseHead>, Vec<u8>), Failed> {
        let mut head = self.shard.spare_head();
        let mut buf = Vec::with_capacity(READ_BUFFER_FIRST);
        let mut interim = 0;
        loop {
            let before = buf.len();
            match self.read_more(socket, &mut buf).await {
                Err(Failed::BadReply) if before == 0 && interim == 0 => {
                    return Err(Failed::NoReply);
                }
                read => read?,
            }
            while let Some(consumed) =
                head.parse(&buf, &RESPONSE_HEAD, method).map_err(|_| Failed::BadReply)?
            {
                buf.drain(..consumed.min(buf.len()));
                if !head.is_informational() {
                    return Ok((head, buf));
                }
                interim += 1;
                if interim > INTERIM_REPLIES_MAX {
                    return Err(Failed::BadReply);
                }
            }
        }
    }

    /// Reads on until the reply may go to the client: its first telling event is there, or it is whole, or
    /// it is too large to be anything but content, or for the memory that is left, or its client must hear something.
    /// Returns whether that took another read.
    async fn hold(&mut self, held: &mut Held) -> Result<bool, Failed> {
        let fed = held.reply.feed(&held.raw).map_err(|_| Failed::BadReply)?;
        held.raw.truncate(fed.consumed);
        let mut waited = false;
        while !held.reply.may_be_sent() && held.raw.len() < HELD_REPLY_MAX {
            if !held.memory.note(held.raw.capacity()) && held.raw.len() >= READ_BUFFER_FIRST {
                break;
            }
            if self.client_must_hear(held).await? {
                held.undecided = true;
                break;
            }
            let before = held.raw.len();
            // A stream's first event may take as long as a prefill; a document that has begun is there.
            if before > 0 && !held.reply.is_event_stream() {
                let idle_ms = self.shard.shared.config.timeouts.stream_idle_ms;
                self.wait_for(Some(idle_ms), clock::now());
            }
            match self.read_more(&held.socket, &mut held.raw).await {
                Err(Failed::BadReply) if held.reply.close() => return Ok(true),
                read => read?,
            }
            waited = true;
            let new = held.raw.get(before..).unwrap_or_default();
            let fed = held.reply.feed(new).map_err(|_| Failed::BadReply)?;
            held.raw.truncate(before + fed.consumed);
        }
        take_along(held)?;
        Ok(waited)
    }

    /// Waits for more of the reply, for as long as a stream may be silent before its client is kept alive. Returns
    /// whether it was silent. Only ever waits where that is switched on.
    async fn client_must_hear(&mut self, held: &Held) -> Result<bool, Failed> {
        let Some(silence_ms) = self.shard.shared.config.stream.keepalive_ms else {
            return Ok(false);
        };
        if !held.reply.bears_signs_of_life(&held.head) {
            return Ok(false);
        }
        let silent_from = clock::now();
        let left_ms = |now: Micros| silence_ms.saturating_sub(now.since(silent_from) / 1000);
        let mut now = silent_from;
        loop {
            self.alarm.set(now.millis(), left_ms(now).min(self.wait.next_look_ms(now)));
            // Waiting takes no byte, so it may be given up where a read may not.
            match race(self.alarm, self.gone.as_mut(), pin!(held.socket.readable())).await {
                Raced::Done(_) => {
                    self.set_alarm(self.wait.next_look_ms(clock::now()));
                    return Ok(false);
                }
                Raced::Gone => return Err(Failed::ClientGone),
                Raced::Late => self.wait_on()?,
            }
            now = clock::now();
            if left_ms(now) == 0 {
                return Ok(true);
            }
        }
    }

    /// Reads behind what `buf` holds, which it keeps whatever happens short of the attempt's end.
    async fn read_more(&mut self, socket: &Socket, buf: &mut Vec<u8>) -> Result<(), Failed> {
        let room = with_room(std::mem::take(buf));
        let start = room.len();
        let mut read = pin!(socket.read(room.slice_mut(start..)));
        loop {
            match race(self.alarm, self.gone.as_mut(), read.as_mut()).await {
                Raced::Gone => return Err(Failed::ClientGone),
                // The read goes on: what comes meanwhile is not lost.
                Raced::Late => self.wait_on()?,
                Raced::Done((read, slice)) => {
                    *buf = slice.into_inner();
                    let some = matches!(read, Ok(count) if count > 0);
                    return if some { Ok(()) } else { Err(Failed::BadReply) };
                }
            }
        }
    }
}

impl Wait {
    /// When to look again whether to wait on, ms from `now`.
    fn next_look_ms(&self, now: Micros) -> u64 {
        let left = self.until.map_or(u64::MAX, |until| until.since(now).div_ceil(1000));
        left.clamp(1, self.look_ms.max(1))
    }
}

/// Whether a reused connection died as one does that its engine had closed before: at once. One that dies later had work.
fn was_stale(sent: Micros) -> bool {
    clock::now().since(sent) < STALE_AFTER_SENT_MS * 1000
}

/// Takes in what has come behind the first event by now: an end that follows at once needs no send of its own. Only
/// where the framing tells the end: a connection's end or failure is seen once, and whoever reads on must see it.
fn take_along(held: &mut Held) -> Result<(), Failed> {
    let framed = matches!(held.reply.wire(), Wire::Chunked | Wire::Length);
    if held.reply.is_done() || held.reply.is_cut() || held.undecided || !framed {
        return Ok(());
    }
    let before = held.raw.len();
    // A failure leaves the body short of its end, which the next read finds.
    let _ = held.socket.take_waiting(&mut held.raw, usize::MAX);
    let new = held.raw.get(before..).unwrap_or_default();
    let fed = held.reply.feed(new).map_err(|_| Failed::BadReply)?;
    held.raw.truncate(before + fed.consumed);
    Ok(())
}

/// Errors of connecting that speak of this process and not of the backend.
fn is_our_own(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    let ours = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::ADDRNOTAVAIL];
    Errno::from_io_error(error).is_some_and(|errno| ours.contains(&errno))
}
