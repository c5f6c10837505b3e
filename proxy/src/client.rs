//! The client's side of a connection: its socket, its deadline and what it sent ahead.
//!
//! While a request is served nobody reads from the client, yet its leaving must be noticed at once and
//! its pipelined bytes must not be lost. The watch here does both without a pending read, so waiting for it
//! may be given up at any time. It never interprets a byte.

mod watch;

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, ready};

use monoio::buf::{IoBuf, IoBufMut, SliceMut};

use crate::alarm::{Alarm, Raced, within};
use crate::clock;
use crate::limits::{PIPELINED_MAX, READ_BUFFER_FIRST, READ_BUFFER_MAX, REQUEST_READ_FIRST};
use crate::socket::{Peek, Socket};
use watch::{Seen, Watch};

/// Why a client cannot be served any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientLost {
    /// It closed, reset, or sent the end of its stream.
    Gone,
    /// It was silent, or did not read, for longer than allowed.
    Stalled,
}

/// One client connection.
#[derive(Debug)]
pub struct Client {
    /// The connection.
    pub socket: Rc<Socket>,
    /// The deadline of whatever is being done with it or for it.
    pub alarm: Rc<Alarm>,
    inbox: RefCell<Vec<u8>>,
    watch: Watch,
    reads: Cell<u64>,
}

impl Client {
    /// A client that has sent nothing yet.
    pub fn new(socket: Socket, alarm: Rc<Alarm>) -> Client {
        let socket = Rc::new(socket);
        let watch = Watch::new(Rc::clone(&socket));
        Client { socket, alarm, inbox: RefCell::new(Vec::new()), watch, reads: Cell::new(0) }
    }

    /// Finishes when the client has left. Takes in what it pipelines, up to a bound; beyond it the
    /// kernel's window holds the client back and its leaving shows at the next write.
    pub fn left(&self) -> impl Future<Output = ()> + '_ {
        let mut full = false;
        std::future::poll_fn(move |cx| {
            while !full {
                if ready!(self.watch.poll(cx)) == Seen::Failure || !self.take_in(READ_BUFFER_FIRST)
                {
                    return Poll::Ready(());
                }
                full = self.inbox.borrow().len() >= PIPELINED_MAX;
            }
            Poll::Pending
        })
    }

    /// Waits, between requests, until more was sent, and takes it in; false when there never will be more.
    pub async fn has_more(&self) -> bool {
        std::future::poll_fn(|cx| {
            loop {
                let seen = ready!(self.watch.poll(cx));
                if seen == Seen::Failure || !self.take_in(REQUEST_READ_FIRST) {
                    return Poll::Ready(false);
                }
                if !self.inbox_is_empty() {
                    return Poll::Ready(true);
                }
            }
        })
        .await
    }

    /// Takes in what is there, at most about `most` bytes. False when the client has left.
    fn take_in(&self, most: usize) -> bool {
        let mut inbox = self.inbox.borrow_mut();
        inbox.reserve(most);
        let taken = self.socket.take_waiting(&mut inbox, usize::MAX);
        if inbox.is_empty() {
            // It fired for what was read since: nothing is kept for a client that is silent.
            *inbox = Vec::new();
        }
        taken.is_ok()
    }

    /// Takes what has come by now behind what `buf` holds, up to `end`, within its capacity. Returns how much that was.
    ///
    /// # Errors
    /// When the client left.
    pub fn read_now(&self, buf: &mut Vec<u8>, end: usize) -> Result<usize, ClientLost> {
        let most = end.saturating_sub(buf.len());
        let taken = self.socket.take_waiting(buf, most).map_err(|_| ClientLost::Gone)?;
        if taken > 0 {
            self.reads.set(self.reads.get() + 1);
        }
        Ok(taken)
    }

    /// The bytes read ahead, taken out; give back what is left with [`Client::put_back`].
    pub fn take_inbox(&self) -> Vec<u8> {
        self.inbox.take()
    }

    /// Puts unread bytes back in front of whatever arrived since.
    pub fn put_back(&self, mut unread: Vec<u8>) {
        let mut inbox = self.inbox.borrow_mut();
        if inbox.is_empty() {
            *inbox = unread;
        } else {
            unread.extend_from_slice(&inbox);
            *inbox = unread;
        }
    }

    /// Whether nothing was read ahead.
    pub fn inbox_is_empty(&self) -> bool {
        self.inbox.borrow().is_empty()
    }

    /// Whether anything arrived that was not read.
    pub fn has_unread(&self) -> bool {
        !self.inbox_is_empty() || self.socket.peek() == Peek::Bytes
    }

    /// Reads more behind what `buf` holds. The deadline is whatever the alarm was set to.
    ///
    /// # Errors
    /// When the client left or the alarm rang.
    pub async fn read_more(&self, buf: Vec<u8>) -> Result<Vec<u8>, ClientLost> {
        let first = buf.capacity() == 0;
        let buf = if first { Vec::with_capacity(REQUEST_READ_FIRST) } else { with_room(buf) };
        let start = buf.len();
        self.read(buf.slice_mut(start..)).await.map(SliceMut::into_inner)
    }

    /// Reads once into `buf`. The deadline is whatever the alarm was set to.
    ///
    /// # Errors
    /// As [`Client::read_more`].
    pub async fn read<B: IoBufMut>(&self, buf: B) -> Result<B, ClientLost> {
        let read = within(&self.alarm, pin!(self.socket.read(buf))).await;
        self.reads.set(self.reads.get() + 1);
        match read {
            Raced::Done((Ok(count), buf)) if count > 0 => Ok(buf),
            Raced::Late => Err(ClientLost::Stalled),
            Raced::Done(_) | Raced::Gone => Err(ClientLost::Gone),
        }
    }

    /// How often was read from it, to tell whether something had to be waited for.
    pub fn reads(&self) -> u64 {
        self.reads.get()
    }

    /// Writes all of `buf` and hands it back. A client that takes nothing for `stall_ms` is lost.
    ///
    /// # Errors
    /// When the client left or does not read.
    pub async fn write<B: IoBuf>(&self, buf: B, stall_ms: u64) -> Result<B, ClientLost> {
        self.alarm.set(clock::recent().millis(), stall_ms);
        match within(&self.alarm, pin!(self.socket.write_all(buf))).await {
            Raced::Done((Ok(()), buf)) => Ok(buf),
            Raced::Late => Err(ClientLost::Stalled),
            Raced::Done(_) | Raced::Gone => Err(ClientLost::Gone),
        }
    }
}

/// Makes room for at least one more read.
pub fn with_room(mut buf: Vec<u8>) -> Vec<u8> {
    if buf.capacity() - buf.len() < 1024 {
        let more = (buf.capacity() * 3).clamp(READ_BUFFER_FIRST, READ_BUFFER_MAX);
        buf.reserve_exact(more);
    }
    buf
}
