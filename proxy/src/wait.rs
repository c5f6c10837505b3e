//! Where requests wait, bounded, for room on a full backend, and long ones for their turn at a busy one.
//!
//! A full backend is busy, not broken. Each shard has one room; a release on the shard calls the next
//! in line at once, and while anybody waits a short pulse calls a few, because other shards release
//! too and no shard ever wakes another. Served first: where tenants are told apart, one of the tenant that was
//! served least; then the least prefill work, aged by waiting, so that a follow-up does not stand behind a cold giant
//! and the giant does not stand for ever.

mod tenants;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use index::Millis;

use crate::limits::{
    WAIT_AGEING_TOKENS_PER_MS, WAIT_CALLED_PER_PULSE, WAIT_PULSE_MS, WAIT_TURN_PULSE_MS,
};
pub use tenants::TenantKey;
use tenants::{Tenant, Tenants};

/// What a request brings into the room.
#[derive(Debug, Clone, Copy)]
pub struct Waits {
    /// The prefill work it brings to its best backend, tokens.
    pub uncached_tokens: u64,
    /// The room it will take, tokens: what its tenant is charged for it.
    pub tokens: u64,
    /// Whose it is, where tenants are told apart.
    pub tenant: Option<TenantKey>,
}

#[derive(Debug)]
struct Waiter {
    waits: Waits,
    account: Option<Rc<Tenant>>,
    since: Millis,
    /// It has room, and waits for its turn.
    for_turn: Cell<bool>,
    called: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// The waiting requests of one shard.
#[derive(Debug, Default)]
pub struct WaitRoom {
    waiters: RefCell<Vec<Rc<Waiter>>>,
    tenants: Tenants,
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
    /// Takes a place.
    pub fn enter(self: &Rc<Self>, waits: Waits, now: Millis) -> Ticket {
        let waiter = Rc::new(Waiter {
            waits,
            account: waits.tenant.map(|tenant| self.tenants.enter(tenant)),
            since: now,
            for_turn: Cell::new(false),
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

    /// Notes that a request found room without waiting: while others wait, its tenant is charged like theirs.
    pub fn note_passed(&self, tenant: Option<TenantKey>, tokens: u64) {
        if let Some(tenant) = tenant
            && !self.is_empty()
        {
            self.tenants.charge(tenant, tokens);
        }
    }

    /// How long until the next pulse, ms.
    pub fn pulse_ms(&self) -> u64 {
        let all_for_turns = self.waiters.borrow().iter().all(|waiter| waiter.for_turn.get());
        if all_for_turns { WAIT_TURN_PULSE_MS } else { WAIT_PULSE_MS }
    }

    /// Calls the `count` waiters that come first; each then tries its luck and waits on if it has none.
    pub fn call(&self, now: Millis, count: usize) {
        let order: Vec<Rc<Waiter>> = self.waiters.borrow().iter().map(Rc::clone).collect();
        let count = count.min(order.len());
        if count == 0 {
            return;
        }
        // Whoever is called first looks first, and takes the room there is.
        let order = if self.tenants.are_told_apart() {
            fairly(order, now, count)
        } else {
            by_rank(order, now, count)
        };
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

fn by_rank(mut order: Vec<Rc<Waiter>>, now: Millis, count: usize) -> Vec<Rc<Waiter>> {
    if count < order.len() {
        order.select_nth_unstable_by_key(count - 1, |waiter| waiter.rank(now));
    }
    order.truncate(count);
    order.sort_unstable_by_key(|waiter| waiter.rank(now));
    order
}

/// Each next one as if those before it had been served: from the tenant that then has had least, the first by rank.
fn fairly(mut rest: Vec<Rc<Waiter>>, now: Millis, count: usize) -> Vec<Rc<Waiter>> {
    rest.iter().filter_map(|waiter| waiter.account.as_ref()).for_each(|account| account.plan());
    let mut order = Vec::with_capacity(count);
    for _ in 0..count {
        let planned = |waiter: &Waiter| waiter.account.as_ref().map_or(0, |one| one.planned());
        let key = |(_, waiter): &(usize, &Rc<Waiter>)| (planned(waiter), waiter.rank(now));
        let Some((place, _)) = rest.iter().enumerate().min_by_key(key) else { break };
        let next = rest.swap_remove(place);
        if let Some(account) = &next.account {
            account.plan_more(next.waits.tokens);
        }
        order.push(next);
    }
    order
}

impl Waiter {
    /// Lower is served earlier; signed because age may outweigh the work.
    fn rank(&self, now: Millis) -> i128 {
        let aged = now.0.saturating_sub(self.since.0).saturating_mul(WAIT_AGEING_TOKENS_PER_MS);
        i128::from(self.waits.uncached_tokens) - i128::from(aged)
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

    /// What it waits for: its turn, or room.
    pub fn waits_for_turn(&self, for_turn: bool) {
        self.waiter.for_turn.set(for_turn);
    }

    /// It has room: its tenant is charged, and its place is free.
    pub fn served(self) {
        if let Some(account) = &self.waiter.account {
            account.charge(self.waiter.waits.tokens);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut waiters = self.room.waiters.borrow_mut();
        if let Some(place) = waiters.iter().position(|other| Rc::ptr_eq(other, &self.waiter)) {
            waiters.swap_remove(place);
        }
        if let Some(account) = &self.waiter.account {
            account.leave();
        }
        if waiters.is_empty() {
            self.room.tenants.forget_all();
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
mod tests;
