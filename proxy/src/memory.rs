//! How much may be held for requests and replies at once, over all shards, and who holds how much of it.
//!
//! Held are bodies until their reply begins, replies before it is decided that they go out, and what clients have not
//! taken yet. Beyond the budget no new body is taken in, and nothing that is held already grows. Shards take from the
//! budget in leases, so that a small body touches no line that another shard writes. It allocates nothing and measures
//! nothing: whoever holds memory says how much.

mod available;
pub mod spare;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam::utils::CachePadded;

use crate::limits::{
    MEMORY_DEFAULT_MIN, MEMORY_LEASE_BYTES, MEMORY_LEASES_PER_SHARD, MEMORY_SHARE_DIVISOR,
};

/// What all shards together may hold.
#[derive(Debug)]
pub struct Budget {
    taken: CachePadded<AtomicU64>,
    max: u64,
    lease: u64,
}

impl Budget {
    /// A budget of `configured` bytes, or of a share of the memory this process may use, for so many shards.
    pub fn new(configured: Option<u64>, shards: usize) -> Budget {
        let share = || {
            let all = available::bytes().unwrap_or(0);
            (all / MEMORY_SHARE_DIVISOR).max(MEMORY_DEFAULT_MIN)
        };
        let max = configured.unwrap_or_else(share);
        // What shards keep in hand must stay a small part, however small the budget and however many they are.
        let parts = (shards as u64).saturating_mul(MEMORY_LEASES_PER_SHARD).max(1);
        Budget {
            taken: CachePadded::default(),
            max,
            lease: (max / parts).clamp(1, MEMORY_LEASE_BYTES),
        }
    }

    /// Bytes that may be held.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Lends up to `wanted` bytes for a moment, as many as there are; nothing is touched for 0.
    pub fn lend(&self, wanted: u64) -> Loan<'_> {
        let bytes = if wanted == 0 { 0 } else { self.take(wanted, 1) };
        Loan { budget: self, bytes }
    }

    /// Takes `wanted` bytes, or as many as are left if that is at least `least`; returns how many.
    fn take(&self, wanted: u64, least: u64) -> u64 {
        let mut got = 0;
        let take = |taken: u64| {
            got = self.max.saturating_sub(taken).min(wanted);
            (got >= least).then_some(taken + got)
        };
        // Relaxed: a sum that stands alone; no memory is published with it.
        match self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => got,
            Err(_) => 0,
        }
    }

    fn take_regardless(&self, bytes: u64) {
        // Relaxed: as in `take`.
        self.taken.fetch_add(bytes, Ordering::Relaxed);
    }

    fn give_back(&self, bytes: u64) {
        // Relaxed: as in `take`.
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn left(&self) -> u64 {
        // Relaxed: as in `take`.
        self.max.saturating_sub(self.taken.load(Ordering::Relaxed))
    }

    fn is_overdrawn(&self) -> bool {
        // Relaxed: as in `take`.
        self.taken.load(Ordering::Relaxed) > self.max
    }
}

/// Part of the budget, given back when dropped.
#[derive(Debug)]
pub struct Loan<'b> {
    budget: &'b Budget,
    bytes: u64,
}

impl Loan<'_> {
    /// How much was lent.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.give_back(self.bytes);
        }
    }
}

/// One shard's part of the budget.
#[derive(Debug)]
pub struct Allowance {
    budget: &'static Budget,
    /// Taken from the budget; never less than what is used.
    leased: Cell<u64>,
    used: Cell<u64>,
}

impl Allowance {
    /// Nothing yet.
    pub fn new(budget: &'static Budget) -> Allowance {
        Allowance { budget, leased: Cell::new(0), used: Cell::new(0) }
    }

    /// Bytes held on this shard.
    pub fn used(&self) -> u64 {
        self.used.get()
    }

    fn spare(&self) -> u64 {
        self.leased.get() - self.used.get()
    }

    fn take(&self, bytes: u64) -> bool {
        let spare = self.spare();
        if bytes > spare {
            let least = bytes - spare;
            let got = self.budget.take(least.next_multiple_of(self.budget.lease), least);
            if got == 0 {
                return false;
            }
            self.leased.set(self.leased.get() + got);
        }
        self.used.set(self.used.get() + bytes);
        true
    }

    fn take_regardless(&self, bytes: u64) {
        if !self.take(bytes) {
            let missing = bytes - self.spare();
            self.budget.take_regardless(missing);
            self.leased.set(self.leased.get() + missing);
            self.used.set(self.used.get() + bytes);
        }
    }

    /// One lease stays in hand, so that bodies that come and go do not come and go in the budget.
    fn give_back(&self, bytes: u64) {
        self.used.set(self.used.get() - bytes);
        let lease = self.budget.lease;
        let spare = self.spare();
        if spare >= 2 * lease || (spare > lease && self.budget.is_overdrawn()) {
            let surplus = spare - lease;
            self.budget.give_back(surplus);
            self.leased.set(self.leased.get() - surplus);
        }
    }
}

/// What somebody holds, given back when dropped.
#[derive(Debug)]
pub struct Charge {
    allowance: Rc<Allowance>,
    bytes: u64,
}

impl Charge {
    /// For one who holds nothing yet.
    pub fn new(allowance: &Rc<Allowance>) -> Charge {
        Charge { allowance: Rc::clone(allowance), bytes: 0 }
    }

    /// Whether so many bytes in all would fit, as things are now. Nothing is taken.
    pub fn would_fit(&self, bytes: u64) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        more <= self.allowance.spare()
            || more - self.allowance.spare() <= self.allowance.budget.left()
    }

    /// Holds `bytes` in all from now on. False, and nothing has changed, when the budget has no room for the growth.
    #[must_use]
    pub fn resize(&mut self, bytes: usize) -> bool {
        let bytes = bytes as u64;
        if bytes > self.bytes {
            if !self.allowance.take(bytes - self.bytes) {
                return false;
            }
        } else if bytes < self.bytes {
            self.allowance.give_back(self.bytes - bytes);
        }
        self.bytes = bytes;
        true
    }

    /// As [`Charge::resize`], for what is held already whether there is room or not. Returns whether there is.
    pub fn note(&mut self, bytes: usize) -> bool {
        let bytes = bytes as u64;
        if bytes == 0 && self.bytes == 0 {
            return true;
        }
        if bytes > self.bytes {
            self.allowance.take_regardless(bytes - self.bytes);
        } else {
            self.allowance.give_back(self.bytes - bytes);
        }
        self.bytes = bytes;
        bytes == 0 || !self.allowance.budget.is_overdrawn()
    }

    /// Nothing is held any more.
    pub fn clear(&mut self) {
        self.allowance.give_back(std::mem::take(&mut self.bytes));
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests;
