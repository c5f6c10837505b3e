//! The second ring of a shard: streams that have begun are relayed here, without a task for each event.
//!
//! Once the head and the first event have gone out, all that is left is moving what the upstream sends to
//! the client until the reply ends. That is most of a proxy's work, so it gets the shortest way: one
//! multishot receive a stream, the send straight out of the buffer that was read into and told of only if it
//! fails, one pass over all completions a turn. The session waits for the ride's end and does what comes before and after. Replies
//! that need re-framing, and shards without io_uring, go through `relay` alone.
//!
//! It never parses a head, never connects or closes, and decides nothing about backends.

mod acks;
mod stream;
mod uring;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use index::Millis;

use crate::limits::{STREAM_BUFFERS, STREAM_ROUNDS_MAX};
use crate::reply::Reply;

pub use stream::{Course, End};
use stream::{Stream, Streams};
use uring::Uring;

/// One shard's stream ring.
pub struct StreamRing {
    inner: RefCell<Inner>,
}

struct Inner {
    uring: Uring,
    streams: Streams,
}

impl std::fmt::Debug for StreamRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamRing").finish_non_exhaustive()
    }
}

/// What a ride brought.
#[derive(Debug)]
pub struct Ridden {
    /// How it ended.
    pub end: End,
    /// The reply, as far as it was read.
    pub reply: Reply,
    /// Bytes given to the client.
    pub bytes: u64,
}

impl StreamRing {
    /// A ring for the calling thread, tried out before it is trusted.
    ///
    /// # Errors
    /// When the kernel lacks what it needs (multishot receives and buffer rings: Linux 6.0) or denies it.
    pub fn new() -> io::Result<StreamRing> {
        StreamRing::with_buffers(STREAM_BUFFERS)
    }

    fn with_buffers(buffers: u16) -> io::Result<StreamRing> {
        let mut uring = Uring::new(buffers)?;
        uring::try_out(&mut uring)?;
        Ok(StreamRing { inner: RefCell::new(Inner { uring, streams: Streams::default() }) })
    }

    /// A descriptor that is readable while there is something for [`StreamRing::turn`] to do.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.inner.borrow().uring.descriptor().try_clone_to_owned()
    }

    /// Relays what is left of `reply` from the upstream to the client.
    pub fn start(&self, course: Course, reply: Reply) -> Ride<'_> {
        let Inner { uring, streams } = &mut *self.inner.borrow_mut();
        let key = streams.add(Stream::new(course, reply));
        if let Some(stream) = streams.get(key) {
            stream.go_on(uring, key);
        }
        uring.enter();
        Ride { ring: self, key, over: false }
    }

    /// Takes in what completed and starts what follows from it, until nothing is left or others must have
    /// their turn. Returns whether nothing is left.
    pub fn turn(&self, now: Millis) -> bool {
        let Inner { uring, streams } = &mut *self.inner.borrow_mut();
        for _ in 0..STREAM_ROUNDS_MAX {
            let batch = uring.take_completions();
            let idle = batch.is_empty();
            let settled = streams.take_in(uring, &batch, now);
            uring.done_with(batch);
            if uring.may_bring_more() {
                uring.enter();
            } else if idle && settled {
                return true;
            }
        }
        false
    }
}

/// A stream under way. Dropping it gives the stream up.
#[derive(Debug)]
pub struct Ride<'r> {
    ring: &'r StreamRing,
    key: stream::Key,
    over: bool,
}

impl Ride<'_> {
    /// Whether the client has not taken all it was given.
    pub fn is_writing(&self) -> bool {
        let inner = &mut *self.ring.inner.borrow_mut();
        inner.streams.get(self.key).is_some_and(|stream| stream.is_writing())
    }

    /// Events and bytes that have come on it; nothing once it is over.
    pub fn progress(&self) -> Option<(u64, u64)> {
        let inner = &mut *self.ring.inner.borrow_mut();
        inner.streams.get(self.key).map(|stream| stream.progress())
    }

    /// Gives the client bytes of the proxy's own if no event is open, the client has taken all it was given, and the
    /// stream goes on. Returns whether it did.
    pub fn say(&self, bytes: Vec<u8>) -> bool {
        let Inner { uring, streams } = &mut *self.ring.inner.borrow_mut();
        let said = streams.get(self.key).is_some_and(|stream| stream.say(uring, self.key, bytes));
        uring.enter();
        said
    }

    /// Gives the stream up. Neither connection can carry anything that must not be cut.
    pub fn give_up(mut self) -> Option<(Reply, u64)> {
        self.leave()
    }

    fn leave(&mut self) -> Option<(Reply, u64)> {
        if std::mem::replace(&mut self.over, true) {
            return None;
        }
        let Inner { uring, streams } = &mut *self.ring.inner.borrow_mut();
        let left = streams.give_up(uring, self.key);
        uring.enter();
        left
    }
}

impl Future for Ride<'_> {
    type Output = Ridden;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ridden> {
        let Inner { uring, streams } = &mut *self.ring.inner.borrow_mut();
        let ended = streams.poll(uring, self.key, cx);
        self.over = ended.is_ready();
        ended
    }
}

impl Drop for Ride<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}
