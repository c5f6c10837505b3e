//! One backend's shared state: its slots, its load, and whether it admits requests at all. The control thread and the
//! breaker write the switches; shards read them. It never probes, times or judges.
//!
//! # Orderings
//! The switches are one byte that publishes nothing else: Relaxed everywhere.

use crate::limits::HEAVY_TOKENS;
use crate::roster::{Mark, Roster, state};
use crate::sync::{Arc, AtomicU8, Ordering};
use crate::{BackendId, Charge, Load, Refusal, Rejected, Slots};

const DISABLED: u8 = 1;
const UNHEALTHY: u8 = 2;
const BREAKER_OPEN: u8 = 4;

/// What a backend can run at once; 0 means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Requests at once.
    pub requests_max: u32,
    /// Tokens in its KV pool.
    pub tokens_max: u64,
}

/// The shared, atomic state of one backend. A new one is enabled, healthy, its breaker closed, and unlimited.
#[derive(Debug)]
pub struct Backend {
    /// Requests and tokens in flight.
    pub slots: Slots,
    /// Prefill work, conversations and what the engine reported.
    pub load: Load,
    switches: AtomicU8,
    /// Where what it is doing is marked, and under which id.
    place: Option<(Arc<Roster>, BackendId)>,
}

impl Backend {
    pub(crate) fn new() -> Self {
        Self { slots: Slots::new(0, 0), load: Load::new(), switches: AtomicU8::new(0), place: None }
    }

    /// The backend of this id, in a fleet that marks what its backends do.
    pub(crate) fn marked(roster: &Arc<Roster>, id: BackendId) -> Self {
        let place = roster.is_kept().then(|| (Arc::clone(roster), id));
        Self { place, ..Self::new() }
    }

    /// Takes a place for one request. Returns the tokens and the prefill work to give back.
    pub(crate) fn take(&self, charge: Charge) -> Result<(u64, u64), Rejected> {
        let tokens = self.slots.take(charge.tokens)?;
        let uncached = charge.uncached_tokens.min(crate::limits::CHARGE_TOKENS_MAX);
        self.load.add_uncached(uncached);
        self.note();
        Ok((tokens, uncached))
    }

    /// Some prefill work is done.
    pub(crate) fn prefilled(&self, uncached: u64) {
        if uncached > 0 {
            self.load.sub_uncached(uncached);
            self.note();
        }
    }

    /// There is more prefill work than was believed.
    pub(crate) fn has_more_to_prefill(&self, uncached: u64) {
        self.load.add_uncached(uncached);
        self.note();
    }

    /// Gives back what one request took.
    pub(crate) fn give_back(&self, tokens: u64, uncached: u64) {
        self.load.sub_uncached(uncached);
        self.slots.give_back(tokens);
        self.note();
    }

    /// Whether its marks are what its state says. True whenever nobody is changing that.
    pub(crate) fn is_noted(&self) -> bool {
        self.place.as_ref().is_none_or(|(roster, id)| roster.agrees(*id, self.marks()))
    }

    fn note(&self) {
        if let Some((roster, id)) = &self.place {
            roster.note(*id, || self.marks());
        }
    }

    fn marks(&self) -> u8 {
        // Relaxed: the byte is the whole message.
        let off = self.switches.load(Ordering::Relaxed);
        // The smallest request: one token.
        let fits = self.slots.fits(1);
        let uncached = self.load.uncached_tokens();
        state(&[
            (Mark::Disabled, off & DISABLED != 0),
            (Mark::Unhealthy, off & UNHEALTHY != 0),
            (Mark::BreakerOpen, off & BREAKER_OPEN != 0),
            (Mark::FullRequests, fits == Err(Rejected::Requests)),
            (Mark::FullTokens, fits == Err(Rejected::Tokens)),
            (Mark::Running, self.slots.in_flight().0 > 0),
            (Mark::Prefilling, uncached > 0),
            (Mark::Heavy, uncached >= HEAVY_TOKENS),
        ])
    }

    /// Changes the limits; requests in flight stay.
    pub fn set_limits(&self, limits: Limits) {
        self.slots.set_limits(limits.requests_max, limits.tokens_max);
        self.note();
    }

    /// Changes the limit on requests, and that on tokens to what `grant` makes of it: what shards lowered meanwhile
    /// (see [`lower_tokens_max`](Self::lower_tokens_max)) is built upon and not taken back.
    pub fn regrant(&self, requests_max: u32, grant: impl Fn(u64) -> u64) {
        let change = |allowed| Some(grant(allowed)).filter(|granted| *granted != allowed);
        self.slots.regrant(requests_max, change);
        self.note();
    }

    /// Its pool ran out under what is in flight: no more than three quarters of that is let in from now on. Never less
    /// than an eighth of what was allowed, because others may have used the pool, too.
    pub fn lower_tokens_max(&self) {
        let (_, held) = self.slots.in_flight();
        let lowered = |allowed: u64| {
            let lowered = (held - held / 4).max(allowed / 8).max(1);
            (allowed == 0 || lowered < allowed).then_some(lowered)
        };
        if self.slots.change_tokens_max(lowered) {
            self.note();
        }
    }

    /// The limits in force.
    pub fn limits(&self) -> Limits {
        Limits { requests_max: self.slots.requests_max(), tokens_max: self.slots.tokens_max() }
    }

    /// An operator's switch: a disabled backend gets no new request and finishes what it has.
    pub fn set_enabled(&self, enabled: bool) {
        self.switch(DISABLED, !enabled);
    }

    /// What the health checks say.
    pub fn set_healthy(&self, healthy: bool) {
        self.switch(UNHEALTHY, !healthy);
    }

    /// What the breaker says.
    pub fn set_breaker_open(&self, open: bool) {
        self.switch(BREAKER_OPEN, open);
    }

    /// Requests waiting inside the engine, as it reports.
    pub fn set_queue_depth(&self, requests: u32) {
        self.load.set_queue_depth(requests);
    }

    /// Share of the engine's KV cache in use, in thousandths; more than 1000 is read as 1000.
    pub fn set_kv_usage_permille(&self, permille: u32) {
        self.load.set_kv_usage_permille(permille);
    }

    /// Whether its engine is known to prefill one prompt after the other, as one with several ranks does not.
    pub fn set_prefills_in_turn(&self, in_turn: bool) {
        self.load.turn.set_serial(in_turn);
    }

    /// Whether its engine ends a prompt at once whose client leaves, and keeps what it has computed of it.
    pub fn set_stops_at_once(&self, stops: bool) {
        self.load.turn.set_stops(stops);
    }

    /// Whether the backend takes requests at all, capacity aside.
    pub fn admits(&self) -> Result<(), Refusal> {
        // Relaxed: the byte is the whole message.
        let off = self.switches.load(Ordering::Relaxed);
        if off & DISABLED != 0 {
            Err(Refusal::Disabled)
        } else if off & UNHEALTHY != 0 {
            Err(Refusal::Unhealthy)
        } else if off & BREAKER_OPEN != 0 {
            Err(Refusal::BreakerOpen)
        } else {
            Ok(())
        }
    }

    /// Its engine was started anew: what was learned of its speed no longer holds.
    pub fn restarted(&self) {
        self.load.forget_speed();
    }

    /// Puts switches, limits and reported gauges back to a new backend's, for an id that is used again. Requests still
    /// in flight and conversations stay counted until they leave.
    pub fn reset(&self) {
        // Relaxed: the byte is the whole message.
        self.switches.store(0, Ordering::Relaxed);
        self.set_limits(Limits::default());
        self.set_queue_depth(0);
        self.set_kv_usage_permille(0);
        self.restarted();
    }

    fn switch(&self, bit: u8, on: bool) {
        if on {
            // Relaxed: the byte is the whole message.
            self.switches.fetch_or(bit, Ordering::Relaxed);
        } else {
            // Relaxed: as above.
            self.switches.fetch_and(!bit, Ordering::Relaxed);
        }
        self.note();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_pool_that_ran_out_lets_in_less_than_was_in_flight_and_never_more_than_before() {
        let backend = Backend::new();
        backend.set_limits(Limits { requests_max: 4, tokens_max: 8_000 });
        let charge = Charge { tokens: 4_000, uncached_tokens: 0 };
        backend.take(charge).unwrap();
        backend.lower_tokens_max();
        assert_eq!(backend.limits(), Limits { requests_max: 4, tokens_max: 3_000 });
        backend.give_back(4_000, 0);
        backend.lower_tokens_max();
        assert_eq!(
            backend.limits().tokens_max,
            375,
            "an eighth is left to an engine that others filled"
        );
        backend.set_limits(Limits { requests_max: 0, tokens_max: 0 });
        backend.take(charge).unwrap();
        backend.lower_tokens_max();
        assert_eq!(backend.limits().tokens_max, 3_000, "a pool of unknown size has one now");
    }

    #[test]
    fn each_switch_stops_admission_by_itself_and_names_itself() {
        let backend = Backend::new();
        assert_eq!(backend.admits(), Ok(()));
        backend.set_breaker_open(true);
        assert_eq!(backend.admits(), Err(Refusal::BreakerOpen));
        backend.set_healthy(false);
        assert_eq!(backend.admits(), Err(Refusal::Unhealthy));
        backend.set_enabled(false);
        assert_eq!(backend.admits(), Err(Refusal::Disabled));
        backend.set_enabled(true);
        backend.set_healthy(true);
        assert_eq!(backend.admits(), Err(Refusal::BreakerOpen));
        backend.reset();
        assert_eq!(backend.admits(), Ok(()));
    }

    #[test]
    fn a_usage_above_the_whole_is_read_as_the_whole() {
        let backend = Backend::new();
        backend.set_kv_usage_permille(1001);
        assert_eq!(backend.load.kv_usage_permille(), 1000);
    }
}
