//! One backend's capacity: requests and tokens in one atomic word, taken together or not at all. It never counts what is
//! idle, queued inside an engine, or merely pinned: only requests in flight.
//!
//! # Paths
//! - take: read the word, check both limits, compare-and-swap both sums in; on a lost race check again.
//! - give back: one subtraction of exactly what was taken. It cannot fail and cannot be torn.
//!
//! # Orderings
//! The word counts; it publishes nothing else, and both sums are one word, so every operation is Relaxed and a
//! read-modify-write always sees the newest value. Limits are read apart from the word: a change made while a request is
//! being admitted applies to the next one.

use crate::Rejected;
use crate::limits::{CHARGE_TOKENS_MAX, POOL_SPARE_DIVISOR, SLOT_REQUESTS_MAX, SLOT_TOKENS_MAX};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

const TOKEN_BITS: u32 = SLOT_TOKENS_MAX.count_ones();
const ONE_REQUEST: u64 = 1 << TOKEN_BITS;

/// Requests and tokens in flight on one backend, and the limits on both.
#[derive(Debug)]
pub struct Slots {
    /// Bits 44..64: requests. Bits 0..44: tokens.
    held: AtomicU64,
    requests_max: AtomicU32,
    tokens_max: AtomicU64,
}

impl Slots {
    /// Empty, with the given limits; 0 means unlimited.
    pub fn new(requests_max: u32, tokens_max: u64) -> Self {
        Self {
            held: AtomicU64::new(0),
            requests_max: AtomicU32::new(requests_max),
            tokens_max: AtomicU64::new(tokens_max),
        }
    }

    /// Changes the limits, 0 meaning unlimited. What is in flight stays; new requests meet the new limits.
    pub(crate) fn set_limits(&self, requests_max: u32, tokens_max: u64) {
        // Relaxed: each limit stands alone, nothing is published with it.
        self.requests_max.store(requests_max, Ordering::Relaxed);
        // Relaxed: as above.
        self.tokens_max.store(tokens_max, Ordering::Relaxed);
    }

    /// Changes the limit on requests, and that on tokens to what `change` makes of it, if anything: a change that another
    /// thread makes meanwhile is built upon and not taken back.
    pub(crate) fn regrant(&self, requests_max: u32, change: impl FnMut(u64) -> Option<u64>) {
        // Relaxed: each limit stands alone, nothing is published with it.
        self.requests_max.store(requests_max, Ordering::Relaxed);
        self.change_tokens_max(change);
    }

    /// Changes the limit on tokens alone, likewise. Whether it did.
    pub(crate) fn change_tokens_max(&self, change: impl FnMut(u64) -> Option<u64>) -> bool {
        // Relaxed twice: a limit stands alone, and an exchange always compares with the newest value.
        self.tokens_max.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change).is_ok()
    }

    /// Requests allowed at once; 0 means unlimited.
    pub fn requests_max(&self) -> u32 {
        // Relaxed: a limit stands alone.
        self.requests_max.load(Ordering::Relaxed)
    }

    /// Tokens in the pool; 0 means unlimited. A tenth of it is kept spare.
    pub fn tokens_max(&self) -> u64 {
        // Relaxed: a limit stands alone.
        self.tokens_max.load(Ordering::Relaxed)
    }

    /// Requests and tokens in flight, from one read.
    pub fn in_flight(&self) -> (u32, u64) {
        // Relaxed: a count that publishes nothing.
        let (requests, tokens) = unpack(self.held.load(Ordering::Relaxed));
        (requests as u32, tokens)
    }

    /// Whether a request of `tokens` would be admitted right now. Advice only: taking may still be refused.
    pub fn fits(&self, tokens: u64) -> Result<(), Rejected> {
        // Relaxed: a count that publishes nothing.
        self.admit(self.held.load(Ordering::Relaxed), clamp(tokens)).map(|_| ())
    }

    /// Takes one request and `tokens`, both or neither. Returns the tokens to give back.
    pub(crate) fn take(&self, tokens: u64) -> Result<u64, Rejected> {
        let tokens = clamp(tokens);
        // Relaxed: the exchange below checks this value again.
        let mut held = self.held.load(Ordering::Relaxed);
        loop {
            let next = self.admit(held, tokens)?;
            // Relaxed twice: the word is the whole state, and an exchange always compares with the newest value.
            match self.held.compare_exchange_weak(held, next, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return Ok(tokens),
                Err(newer) => held = newer,
            }
        }
    }

    /// Gives back one request and the tokens its [`take`](Self::take) returned.
    pub(crate) fn give_back(&self, tokens: u64) {
        // Relaxed: both sums leave in one step, and nothing else is published.
        let held = self.held.fetch_sub(ONE_REQUEST + tokens, Ordering::Relaxed);
        let (requests, sum) = unpack(held);
        debug_assert!(requests >= 1 && sum >= tokens, "gave back more than was taken");
    }

    /// Numbered checks: 1. nothing held means no tokens held.
    pub fn check_invariants(&self) -> Result<(), String> {
        match self.in_flight() {
            (0, tokens) if tokens > 0 => Err(format!("1: {tokens} tokens held by no request")),
            _ => Ok(()),
        }
    }

    /// The word after admission, or which limit refuses.
    fn admit(&self, held: u64, tokens: u64) -> Result<u64, Rejected> {
        let (requests, sum) = unpack(held);
        let allowed = match u64::from(self.requests_max()) {
            0 => SLOT_REQUESTS_MAX,
            max => max.min(SLOT_REQUESTS_MAX),
        };
        if requests >= allowed {
            return Err(Rejected::Requests);
        }
        // Alone on a backend a request goes at once, however large: waiting could not give it more room.
        let pool = self.tokens_max();
        let room = if pool == 0 || requests == 0 {
            SLOT_TOKENS_MAX
        } else {
            (pool - pool / POOL_SPARE_DIVISOR).min(SLOT_TOKENS_MAX)
        };
        if sum + tokens > room {
            return Err(Rejected::Tokens);
        }
        Ok(held + ONE_REQUEST + tokens)
    }
}

fn clamp(tokens: u64) -> u64 {
    tokens.min(CHARGE_TOKENS_MAX)
}

fn unpack(held: u64) -> (u64, u64) {
    (held >> TOKEN_BITS, held & SLOT_TOKENS_MAX)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_last_request_allowed_fits_and_the_next_does_not() {
        let slots = Slots::new(2, 0);
        assert_eq!(slots.take(5), Ok(5));
        assert_eq!(slots.take(5), Ok(5));
        assert_eq!(slots.take(5), Err(Rejected::Requests));
        slots.give_back(5);
        assert_eq!(slots.in_flight(), (1, 5));
        assert_eq!(slots.take(5), Ok(5));
    }

    #[test]
    fn a_tenth_of_the_pool_stays_spare() {
        let slots = Slots::new(0, 1000);
        assert_eq!(slots.take(500), Ok(500));
        assert_eq!(slots.take(401), Err(Rejected::Tokens));
        assert_eq!(slots.take(400), Ok(400));
        assert_eq!(slots.in_flight(), (2, 900));
    }

    #[test]
    fn a_request_alone_goes_even_when_larger_than_the_pool() {
        let slots = Slots::new(0, 1000);
        assert_eq!(slots.take(5000), Ok(5000));
        assert_eq!(slots.take(1), Err(Rejected::Tokens));
        slots.give_back(5000);
        assert_eq!(slots.in_flight(), (0, 0));
    }

    #[test]
    fn a_refusal_takes_neither_the_request_nor_the_tokens() {
        let slots = Slots::new(1, 10);
        assert_eq!(slots.take(3), Ok(3));
        assert_eq!(slots.take(3), Err(Rejected::Requests));
        assert_eq!(slots.in_flight(), (1, 3));
    }

    #[test]
    fn limits_changed_live_meet_the_next_request() {
        let slots = Slots::new(1, 0);
        slots.take(1).unwrap();
        assert_eq!(slots.fits(1), Err(Rejected::Requests));
        slots.set_limits(2, 0);
        assert_eq!(slots.fits(1), Ok(()));
        slots.set_limits(1, 0);
        assert_eq!(slots.take(1), Err(Rejected::Requests));
    }

    #[test]
    fn absurd_charges_are_clamped_and_never_spill_into_the_request_count() {
        let slots = Slots::new(0, 0);
        let taken: Vec<u64> = std::iter::from_fn(|| slots.take(u64::MAX).ok()).collect();
        assert_eq!(taken.len() as u64, SLOT_TOKENS_MAX / CHARGE_TOKENS_MAX);
        assert_eq!(slots.in_flight().0 as usize, taken.len());
        taken.into_iter().for_each(|tokens| slots.give_back(tokens));
        assert_eq!(slots.in_flight(), (0, 0));
        slots.check_invariants().unwrap();
    }
}
