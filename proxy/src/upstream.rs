//! One attempt at one backend, up to the point where its reply may go to the client.
//!
//! It connects or takes a pooled connection, sends the request, reads the reply's head and holds it until
//! its first event was looked at, because an engine that is full may say so inside a 200. It never
//! writes to the client and never decides whether to try again.

use std::pin::{Pin, pin};
use std::rc::Rc;

use bytes::Bytes;
use index::BackendId;
use monoio::buf::IoBufMut;

use crate::alarm::{Alarm, Raced, race};
use crate::client::with_room;
use crate::clock::{self, Micros};
use crate::http::{Method, ResponseHead};
use crate::limits::{
    HELD_REPLY_MAX, INTERIM_REPLIES_MAX, READ_BUFFER_FIRST, RESPONSE_HEAD, SEND_TOGETHER_MAX,
};
use crate::metrics::Count;
use crate::reply::{Reply, Wire};
use crate::shard::Shard;
use crate::socket::Socket;

/// What is sent: the head without a reader's position, and the body shared by all attempts.
#[derive(Debug)]
pub struct Outgoing<'r> {
    /// The serialised head.
    pub head: Vec<u8>,
    /// The body, as the client sent it.
    pub body: &'r Bytes,
    /// Its method, which decides whether a reply has a body.
    pub method: Method,
    /// What kind of events to expect.
    pub dialect: crate::api::Dialect,
    /// The client cannot be given chunks.
    pub unwrap_chunks: bool,
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
    /// The connection broke before any byte of a reply.
    NoReply,
    /// What came is not HTTP, or broke before it could be committed to.
    BadReply,
    /// Nothing came for as long as a first byte may take.
    Silent,
}

/// Who the attempt is for, and what may end it.
pub struct Attempt<'a, W> {
    /// Its shard.
    pub shard: &'a Rc<Shard>,
    /// Its deadline.
    pub alarm: &'a Alarm,
    /// Finishes when the client leaves.
    pub gone: Pin<&'a mut W>,
}

impl<W> std::fmt::Debug for Attempt<'_, W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attempt").finish_non_exhaustive()
    }
}

impl<W: Future<Output = ()>> Attempt<'_, W> {
    /// Sends to `backend` and holds its reply.
    ///
    /// # Errors
    /// See [`Failed`]. A pooled connection that turns out dead is replaced once, silently: that is no
    /// failure of the backend.
    pub async fn run(
        &mut self,
        backend: BackendId,
        out: &Outgoing<'_>,
    ) -> Result<Box<Held>, Failed> {
        // Read a moment ago, when the backend was chosen; a pooled connection is there at once.
        let placed = clock::recent();
        if let Some(socket) = self.shard.pools.take(backend, placed.millis()) {
            self.shard.stats.add(Count::UpstreamReused, 1);
            let moments = Moments { connected: Some(placed), ..Moments::default() };
            match self.exchange(socket, out, moments).await {
                Err(Failed::NoReply) => self.shard.stats.add(Count::UpstreamStale, 1),
                ended => return ended,
            }
        }
        let socket = self.connect(backend).await?;
        let moments = Moments { connected: Some(clock::now()), ..Moments::default() };
        self.exchange(socket, out, moments).await
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
        socket: Socket,
        out: &Outgoing<'_>,
        mut moments: Moments,
    ) -> Result<Box<Held>, Failed> {
        // An engine may answer and close without reading all of the body (413): whatever happened to the
        // sending, what it said is the answer.
        let sent = self.send(&socket, out).await;
        if sent == Err(Failed::ClientGone) {
            return Err(Failed::ClientGone);
        }
        moments.sent = Some(clock::now());
        self.set_alarm(self.shard.shared.config.timeouts.first_byte_ms.unwrap_or(0));
        let (head, raw) = self.read_head(&socket, out.method).await?;
        let head_at = clock::now();
        moments.reply_head = Some(head_at);
        let reply = Reply::new(&head, out.dialect, out.unwrap_chunks);
        // Boxed at once: it is handed on through several hands, and only the box moves.
        let mut held = Box::new(Held { socket, head, reply, raw, moments });
        let waited = self.hold(&mut held).await?;
        held.moments.first_byte = Some(if waited { clock::now() } else { head_at });
        Ok(held)
    }

    async fn send(&mut self, socket: &Socket, out: &Outgoing<'_>) -> Result<(), Failed> {
        let together = out.body.len() <= SEND_TOGETHER_MAX;
        let beside = if together { out.body.len() } else { 0 };
        let mut first = Vec::with_capacity(out.head.len() + beside);
        first.extend_from_slice(&out.head);
        first.extend_from_slice(out.body.get(..beside).unwrap_or_default());
        self.set_alarm(self.shard.shared.config.timeouts.write_stall_ms);
        self.write(pin!(socket.write_all(first))).await?;
        if !together {
            self.write(pin!(socket.write_all(out.body.clone()))).await?;
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
            Raced::Done((Err(_), _)) | Raced::Late => Err(Failed::NoReply),
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
    /// it is too large to be anything but content. Returns whether that took another read.
    async fn hold(&mut self, held: &mut Held) -> Result<bool, Failed> {
        let fed = held.reply.feed(&held.raw).map_err(|_| Failed::BadReply)?;
        held.raw.truncate(fed.consumed);
        let mut waited = false;
        while !held.reply.may_be_sent() && held.raw.len() < HELD_REPLY_MAX {
            let before = held.raw.len();
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

    /// Reads behind what `buf` holds, which it keeps whatever happens short of the attempt's end.
    async fn read_more(&mut self, socket: &Socket, buf: &mut Vec<u8>) -> Result<(), Failed> {
        let room = with_room(std::mem::take(buf));
        let start = room.len();
        let read = pin!(socket.read(room.slice_mut(start..)));
        match race(self.alarm, self.gone.as_mut(), read).await {
            Raced::Gone => Err(Failed::ClientGone),
            Raced::Late => Err(Failed::Silent),
            Raced::Done((read, slice)) => {
                *buf = slice.into_inner();
                if matches!(read, Ok(count) if count > 0) { Ok(()) } else { Err(Failed::BadReply) }
            }
        }
    }
}

/// Takes in what has come behind the first event by now: an end that follows at once needs no send of its own. Only
/// where the framing tells the end: a connection's end or failure is seen once, and whoever reads on must see it.
fn take_along(held: &mut Held) -> Result<(), Failed> {
    let framed = matches!(held.reply.wire(), Wire::Chunked | Wire::Length);
    if held.reply.is_done() || !framed {
        return Ok(());
    }
    let before = held.raw.len();
    // A failure leaves the body short of its end, which the next read finds.
    let _ = held.socket.take_waiting(&mut held.raw);
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
