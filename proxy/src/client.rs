//! The client's side of a connection: its socket, its deadline and what it sent ahead.
//!
//! While a request is served nobody reads from the client, yet its leaving must be noticed at once and
//! its pipelined bytes must not be lost. The watch here does both without a pending read, so it may be
//! dropped at any time. It never interprets a byte.

use std::cell::RefCell;
use std::rc::Rc;

use monoio::buf::{IoBuf, IoBufMut};

use crate::alarm::{Alarm, Raced, within};
use crate::clock;
use crate::limits::{PIPELINED_MAX, READ_BUFFER_FIRST, READ_BUFFER_MAX};
use crate::socket::{Peek, Socket};

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
    pub socket: Socket,
    /// The deadline of whatever is being done with it or for it.
    pub alarm: Rc<Alarm>,
    inbox: RefCell<Vec<u8>>,
}

impl Client {
    /// A client that has sent nothing yet.
    pub fn new(socket: Socket, alarm: Rc<Alarm>) -> Client {
        Client { socket, alarm, inbox: RefCell::new(Vec::new()) }
    }

    /// Finishes when the client has left. Takes in what it pipelines, up to a bound; beyond it the
    /// kernel's window holds the client back and its leaving shows at the next write.
    pub async fn left(&self) {
        while self.socket.readable().await.is_ok() && self.take_in() {
            if self.inbox.borrow().len() >= PIPELINED_MAX {
                std::future::pending::<()>().await;
            }
        }
    }

    fn take_in(&self) -> bool {
        let mut chunk = [0_u8; READ_BUFFER_FIRST];
        match self.socket.take_waiting(&mut chunk) {
            Ok(count) => {
                self.inbox.borrow_mut().extend_from_slice(chunk.get(..count).unwrap_or_default());
                true
            }
            Err(_) => false,
        }
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
        let buf = with_room(buf);
        let start = buf.len();
        match within(&self.alarm, self.socket.read(buf.slice_mut(start..))).await {
            Raced::Done((Ok(count), slice)) if count > 0 => Ok(slice.into_inner()),
            Raced::Late => Err(ClientLost::Stalled),
            Raced::Done(_) | Raced::Gone => Err(ClientLost::Gone),
        }
    }

    /// Writes all of `buf` and hands it back. A client that takes nothing for `stall_ms` is lost.
    ///
    /// # Errors
    /// When the client left or does not read.
    pub async fn write<B: IoBuf>(&self, buf: B, stall_ms: u64) -> Result<B, ClientLost> {
        self.alarm.set(clock::now().millis(), stall_ms);
        match within(&self.alarm, self.socket.write_all(buf)).await {
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
