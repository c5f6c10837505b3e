//! Memory of bodies that were answered, kept for a moment for those that come next.
//!
//! A body of 100 KB is 25 pages. Freed, they go back to the kernel within milliseconds, and the next body has each of
//! them mapped and cleared anew, which on a quiet proxy costs as much as reading it. What is kept here is bounded in bytes
//! and in time, and is nobody's: it is in no budget, and holds nothing back. It never hands out a byte of an earlier body:
//! a buffer comes back empty.

use std::cell::{Cell, RefCell};

use bytes::Bytes;
use index::Millis;

use crate::limits::{
    BODY_ROOM_STEP, SPARE_BODIES_BYTES_MAX, SPARE_BODY_FIT_DIVISOR, SPARE_BODY_MIN, SPARE_BODY_MS,
};

/// The buffers one shard keeps, the one kept longest first.
#[derive(Debug, Default)]
pub struct SpareBodies {
    kept: RefCell<Vec<Kept>>,
    bytes: Cell<usize>,
}

#[derive(Debug)]
struct Kept {
    room: Vec<u8>,
    since: Millis,
}

impl SpareBodies {
    /// An empty buffer that a body of `length` fits and does not waste, the one used last if there are several.
    pub fn take(&self, length: usize) -> Option<Vec<u8>> {
        if length < SPARE_BODY_MIN {
            return None;
        }
        let mut kept = self.kept.borrow_mut();
        let fits = |room: usize| length <= room && length >= room - room / SPARE_BODY_FIT_DIVISOR;
        let place = kept.iter().rposition(|kept| fits(kept.room.capacity()))?;
        let room = kept.remove(place).room;
        self.bytes.set(self.bytes.get() - room.capacity());
        Some(room)
    }

    /// Keeps the memory of a body that nobody reads any more, in the place of what was kept for longest.
    pub fn keep(&self, body: Bytes, now: Millis) {
        if body.len() < SPARE_BODY_MIN || !body.is_unique() {
            return;
        }
        let mut room = Vec::from(body);
        room.clear();
        if room.capacity() > SPARE_BODIES_BYTES_MAX {
            return;
        }
        self.free_until(SPARE_BODIES_BYTES_MAX - room.capacity(), |_| false);
        self.bytes.set(self.bytes.get() + room.capacity());
        self.kept.borrow_mut().push(Kept { room, since: now });
    }

    /// Frees what nobody has used for a while.
    pub fn sweep(&self, now: Millis) {
        self.free_until(usize::MAX, |since| now.0.saturating_sub(since.0) >= SPARE_BODY_MS);
    }

    /// Frees the oldest while there are more bytes than `most`, or they are as old as that.
    fn free_until(&self, most: usize, is_old: impl Fn(Millis) -> bool) {
        let mut kept = self.kept.borrow_mut();
        let mut bytes = self.bytes.get();
        let freed = kept.iter().take_while(|kept| {
            let goes = bytes > most || is_old(kept.since);
            bytes -= if goes { kept.room.capacity() } else { 0 };
            goes
        });
        let freed = freed.count();
        kept.drain(..freed);
        self.bytes.set(bytes);
    }

    /// Bytes kept.
    pub fn bytes(&self) -> usize {
        self.bytes.get()
    }
}

/// Room for a body of `length`, and a little more, so that the next one may fit there, too.
pub fn room_for(length: usize) -> usize {
    if length < SPARE_BODY_MIN { length } else { length.next_multiple_of(BODY_ROOM_STEP) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(length: usize) -> Bytes {
        let mut body = Vec::with_capacity(room_for(length));
        body.resize(length, b'x');
        Bytes::from(body)
    }

    #[test]
    fn a_body_finds_the_memory_of_one_like_it_and_nothing_in_it() {
        let spare = SpareBodies::default();
        let first = body(100_000);
        let place = first.as_ptr();
        spare.keep(first, Millis(0));
        let second = spare.take(100_400).expect("it was kept");
        assert!(second.is_empty() && second.as_ptr() == place && spare.bytes() == 0);
        assert!(spare.take(100_400).is_none(), "taken is taken");
    }

    #[test]
    fn memory_is_not_used_for_bodies_that_would_waste_it_or_do_not_fit() {
        let spare = SpareBodies::default();
        spare.keep(body(128 * 1024), Millis(0));
        assert!(spare.take(128 * 1024 + 1).is_none());
        assert!(spare.take(100_000).is_none(), "a fifth and more would lie idle");
        assert!(spare.take(110_000).is_some());
    }

    #[test]
    fn no_more_is_kept_than_the_bound_and_the_oldest_goes_first() {
        let spare = SpareBodies::default();
        for _ in 0..100 {
            spare.keep(body(128 * 1024), Millis(0));
            assert!(spare.bytes() <= SPARE_BODIES_BYTES_MAX);
        }
        spare.keep(body(SPARE_BODIES_BYTES_MAX), Millis(0));
        assert_eq!(spare.bytes(), SPARE_BODIES_BYTES_MAX);
        assert!(spare.take(128 * 1024).is_none());
        spare.keep(body(SPARE_BODIES_BYTES_MAX + 1), Millis(0));
        assert!(spare.take(SPARE_BODIES_BYTES_MAX).is_some(), "what is too large changes nothing");
    }

    #[test]
    fn what_is_not_used_is_freed_and_what_somebody_still_reads_is_not_kept() {
        let spare = SpareBodies::default();
        spare.keep(body(100_000), Millis(1_000));
        spare.keep(body(200_000), Millis(1_000 + SPARE_BODY_MS));
        spare.sweep(Millis(999 + SPARE_BODY_MS));
        assert!(spare.bytes() > 300_000);
        spare.sweep(Millis(1_000 + SPARE_BODY_MS));
        assert_eq!(spare.bytes(), room_for(200_000));
        let read = body(100_000);
        let reader = read.clone();
        spare.keep(read, Millis(2_000));
        assert_eq!((spare.bytes(), reader.len()), (room_for(200_000), 100_000));
    }
}
