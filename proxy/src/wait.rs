//! Where requests wait, bounded, for room on a full backend.
//!
//! A full backend is busy, not broken. Each shard has one room; a release on the shard calls the next
//! in line at once, and while anybody waits a short pulse calls a few, because other shards release
//! too and no shard ever wakes another. Served first: the least prefill work, aged by waiting, so that
//! a follow-up does not stand behind a cold giant and the giant does not stand for ever.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use index::Millis;

use crate::limits::{WAIT_AGEING_TOKENS_PER_MS, WAIT_CALLED_PER_PULSE};

#[derive(Debug)]
struct Waiter {
    uncached_tokens: Cell<u64>,
    since: Millis,
    called: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// The waiting requests of one shard.
#[derive(Debug, Default)]
pub struct WaitRoom {
    waiters: RefCell<Vec<Rc<Waiter>>>,
    /// Where the next pulse goes on with its round.
    round: Cell<usize>,
}

/// A place in the room, given up when dropped.
#[derive(Debug)]
pub struct Ticket {
    room: Rc<WaitRoom>,
    waiter: Rc<Waiter>,
}

impl WaitRoom {
    /// Takes a place. `uncached_tokens` is the prefill work the request brings to its best backend.
    pub fn enter(self: &Rc<Self>, uncached_tokens: u64, now: Millis) -> Ticket {
        let waiter = Rc::new(Waiter {
            uncached_tokens: Cell::new(uncached_tokens),
            since: now,
            called: Cell::new(false),
            waker: RefCell::new(None),
        });
        self.waiters.borrow_mut().push(Rc::clone(&waiter));
        Ticket { room: Rc::clone(self), waiter }
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiters.borrow().is_empty()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiters.borrow().len()
    }

    /// Calls the `count` waiters that come first; each then tries its luck and waits on if it has none.
    pub fn call(&self, now: Millis, count: usize) {
        let mut order: Vec<Rc<Waiter>> = self.waiters.borrow().iter().map(Rc::clone).collect();
        let count = count.min(order.len());
        if count == 0 {
            return;
        }
        if count < order.len() {
            order.select_nth_unstable_by_key(count - 1, |waiter| waiter.rank(now));
        }
        // Whoever is called first looks first, and takes the room there is.
        order.truncate(count);
        order.sort_unstable_by_key(|waiter| waiter.rank(now));
        for waiter in &order {
            waiter.call();
        }
    }

    /// One pulse: calls the first few, and as many more in turn. Those who come first may all wait for
    /// backends that stay full, and whoever stands behind them must not wait for that.
    pub fn pulse(&self, now: Millis) {
        self.call(now, WAIT_CALLED_PER_PULSE);
        let waiters = self.waiters.borrow();
        let from = if self.round.get() < waiters.len() { self.round.get() } else { 0 };
        waiters.iter().skip(from).take(WAIT_CALLED_PER_PULSE).for_each(|waiter| waiter.call());
        self.round.set(from + WAIT_CALLED_PER_PULSE);
    }
}

impl Waiter {
    /// Lower is served earlier; signed because age may outweigh the work.
    fn rank(&self, now: Millis) -> i128 {
        let aged = now.0.saturating_sub(self.since.0).saturating_mul(WAIT_AGEING_TOKENS_PER_MS);
        i128::from(self.uncached_tokens.get()) - i128::from(aged)
    }

    fn call(&self) {
        self.called.set(true);
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

impl Ticket {
    /// Finishes when the waiter is called.
    pub fn called(&self) -> impl Future<Output = ()> + '_ {
        Called { waiter: &self.waiter }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut waiters = self.room.waiters.borrow_mut();
        if let Some(place) = waiters.iter().position(|other| Rc::ptr_eq(other, &self.waiter)) {
            waiters.swap_remove(place);
        }
    }
}

struct Called<'t> {
    waiter: &'t Waiter,
}

impl Future for Called<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.waiter.called.replace(false) {
            return Poll::Ready(());
        }
        *self.waiter.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(ticket: &Ticket) -> bool {
        ticket.waiter.called.get()
    }

    #[test]
    fn the_smallest_prefill_is_called_first() {
        let room = Rc::new(WaitRoom::default());
        let big = room.enter(90_000, Millis(0));
        let small = room.enter(700, Millis(0));
        room.call(Millis(1), 1);
        assert!(called(&small) && !called(&big));
    }

    #[test]
    fn waiting_long_enough_beats_being_small() {
        let room = Rc::new(WaitRoom::default());
        let old = room.enter(90_000, Millis(0));
        let late = Millis(90_000 / WAIT_AGEING_TOKENS_PER_MS + 1_000);
        let small = room.enter(700, late);
        room.call(late, 1);
        assert!(called(&old) && !called(&small));
    }

    #[test]
    fn nobody_is_kept_waiting_by_those_who_come_first_and_find_no_room() {
        let room = Rc::new(WaitRoom::default());
        let small: Vec<Ticket> = (0..100).map(|_| room.enter(1, Millis(0))).collect();
        let last = room.enter(90_000, Millis(0));
        let pulses = (0..20).take_while(|_| {
            room.pulse(Millis(1));
            !called(&last)
        });
        assert!(pulses.count() < 20, "the last of {} was never called", small.len() + 1);
    }

    #[test]
    fn a_dropped_ticket_frees_its_place() {
        let room = Rc::new(WaitRoom::default());
        let first = room.enter(1, Millis(0));
        let second = room.enter(2, Millis(0));
        drop(first);
        room.call(Millis(1), 1);
        assert_eq!(room.len(), 1);
        assert!(called(&second));
        drop(second);
        assert!(room.is_empty());
    }
}
