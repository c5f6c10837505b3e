//! The breaker as threads share it: one word, exchanged whole, and beside it when it last opened or closed.
//!
//! Shards let requests through and say what they came to; the control thread ends pauses. Nobody waits, and while
//! nothing fails nobody writes.
//!
//! # Orderings
//! The word publishes nothing but itself: Relaxed. The moment carries the epoch it belongs to and counts for no other.
//! The fleet's switch follows the word: see [`Gate::follow`].

use super::{Breaker, EPOCH_MASK, State, Ticket};
use crate::limits::{BREAKER_OPEN_MAX_MS, RETRY_AFTER_MAX_MS};
use crate::sync::{AtomicU64, Ordering, fence};
use crate::{Backend, BackendId, Millis};

const MOMENT_BITS: u32 = 40;
const MOMENT_MASK: u64 = (1 << MOMENT_BITS) - 1;

/// One backend's breaker.
#[derive(Debug)]
pub struct Gate {
    word: AtomicU64,
    /// When an open one may be tried, or when a closed one closed: ms below 2^40, its epoch above them, so that of two
    /// late writers the later epoch stands.
    moment: AtomicU64,
}

impl Default for Gate {
    fn default() -> Gate {
        Gate { word: AtomicU64::new(Breaker::NEW.packed()), moment: AtomicU64::new(0) }
    }
}

impl Gate {
    /// What it is now.
    pub fn look(&self) -> Breaker {
        // Relaxed: the word is the whole message.
        Breaker::unpacked(self.word.load(Ordering::Relaxed))
    }

    /// When an open one may be tried; `None` while it is not open, and for the instant until that is said.
    pub fn due(&self) -> Option<Millis> {
        let now = self.look();
        self.moment_of(now).filter(|_| now.state == State::Open)
    }

    /// Lets a request through, if it may pass. Whoever holds the pass says what the request came to.
    pub fn enter<'g>(&'g self, id: BackendId, backend: &'g Backend) -> Option<Pass<'g>> {
        loop {
            let before = self.look();
            let (after, ticket) = before.entered()?;
            if self.exchange(before, after) {
                self.follow_if_moved(before, after, backend);
                return Some(Pass { gate: self, id, backend, ticket, told: false });
            }
        }
    }

    /// The pause is over, and the engine answers. True when requests may now try.
    pub fn half_open(&self, backend: &Backend) -> bool {
        let (before, after) = self.change(backend, Breaker::half_opened);
        before.state != after.state
    }

    /// The pause is over, and the engine does not answer: another, longer one.
    pub fn stay_open(&self, backend: &Backend, now: Millis) {
        let (_, after) = self.change(backend, Breaker::stayed_open);
        if after.state == State::Open {
            self.set_moment(after, now.0.saturating_add(after.pause_ms()));
        }
    }

    fn succeeded(&self, ticket: Ticket, backend: &Backend, now: Millis) {
        let (before, after) = self.change(backend, |breaker| breaker.succeeded(ticket));
        if before.epoch != after.epoch {
            self.set_moment(after, now.0);
        }
    }

    fn failed(&self, ticket: Ticket, backend: &Backend, now: Millis, retry_after_ms: u64) {
        self.open(backend, now, retry_after_ms, |breaker, quiet| breaker.failed(ticket, quiet));
    }

    /// The backend failed as a whole: nothing more is let through until its pause is over.
    pub fn trip(&self, backend: &Backend, now: Millis) {
        self.open(backend, now, 0, Breaker::tripped);
    }

    fn open(
        &self,
        backend: &Backend,
        now: Millis,
        retry_after_ms: u64,
        step: impl Fn(Breaker, bool) -> Breaker,
    ) {
        let (before, after) = self.change(backend, |breaker| {
            let closed = self.moment_of(breaker);
            let quiet = closed.is_some_and(|closed| now.since(closed) >= BREAKER_OPEN_MAX_MS);
            step(breaker, quiet)
        });
        if before.epoch != after.epoch {
            let pause = after.pause_ms().max(retry_after_ms.min(RETRY_AFTER_MAX_MS));
            self.set_moment(after, now.0.saturating_add(pause));
        }
    }

    /// Makes a change and returns what was before and after. Nothing is written when nothing differs.
    fn change(&self, backend: &Backend, step: impl Fn(Breaker) -> Breaker) -> (Breaker, Breaker) {
        loop {
            let before = self.look();
            let after = step(before);
            if self.exchange(before, after) {
                self.follow_if_moved(before, after, backend);
                return (before, after);
            }
        }
    }

    fn exchange(&self, before: Breaker, after: Breaker) -> bool {
        let (before, after) = (before.packed(), after.packed());
        // Relaxed: the word is the whole message.
        let order = Ordering::Relaxed;
        before == after || self.word.compare_exchange_weak(before, after, order, order).is_ok()
    }

    fn follow_if_moved(&self, before: Breaker, after: Breaker, backend: &Backend) {
        if before.admits() != after.admits() {
            self.follow(backend);
        }
    }

    /// Makes the fleet's switch what the word says. Of two threads that do so at once the later one looks again after
    /// it has written, so that the switch comes to agree with the last word.
    fn follow(&self, backend: &Backend) {
        let mut said = None;
        loop {
            // SeqCst: pairs with the same fence of whoever changed the word meanwhile: one of the two sees the other's
            // change after its own write of the switch.
            fence(Ordering::SeqCst);
            let admits = self.look().admits();
            if said == Some(admits) {
                return;
            }
            backend.set_breaker_open(!admits);
            said = Some(admits);
        }
    }

    fn moment_of(&self, breaker: Breaker) -> Option<Millis> {
        // Relaxed: it says itself which epoch it belongs to.
        let moment = self.moment.load(Ordering::Relaxed);
        (moment >> MOMENT_BITS == u64::from(breaker.epoch)).then_some(Millis(moment & MOMENT_MASK))
    }

    fn set_moment(&self, breaker: Breaker, at_ms: u64) {
        let epoch = u64::from(breaker.epoch & EPOCH_MASK) << MOMENT_BITS;
        // Relaxed: see `moment_of`. The maximum, so that a writer who comes late takes nothing back.
        self.moment.fetch_max(epoch | at_ms & MOMENT_MASK, Ordering::Relaxed);
    }
}

/// A request let through. Dropped without a word, it says nothing of the backend.
#[derive(Debug)]
pub struct Pass<'g> {
    gate: &'g Gate,
    id: BackendId,
    backend: &'g Backend,
    ticket: Ticket,
    told: bool,
}

impl Pass<'_> {
    /// Where it may go.
    pub fn backend(&self) -> BackendId {
        self.id
    }

    /// Whether it is one of the few that a half-open breaker lets through.
    pub fn is_trial(&self) -> bool {
        self.ticket.trial
    }

    /// The backend served it.
    pub fn succeeded(mut self, now: Millis) {
        self.told = true;
        self.gate.succeeded(self.ticket, self.backend, now);
    }

    /// The backend failed it, and asked to be left alone for so long (0: it did not ask).
    pub fn failed(mut self, now: Millis, retry_after_ms: u64) {
        self.told = true;
        self.gate.failed(self.ticket, self.backend, now, retry_after_ms);
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if !self.told && self.ticket.trial {
            self.gate.change(self.backend, |breaker| breaker.returned(self.ticket));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::limits::{BREAKER_FAILURES, BREAKER_OPEN_FIRST_MS, BREAKER_TRIALS};
    use crate::{Fleet, FleetConfig};

    const FIRST: BackendId = BackendId(0);

    fn fleet() -> Fleet {
        Fleet::new(FleetConfig { affinity_entries: 2, ..FleetConfig::with_capacity(1) })
    }

    fn open(gate: &Gate, backend: &Backend, now: Millis, retry_after_ms: u64) {
        for _ in 0..BREAKER_FAILURES {
            gate.enter(FIRST, backend).unwrap().failed(now, retry_after_ms);
        }
    }

    #[test]
    fn the_fleets_switch_follows_it_from_opening_to_closing() {
        let fleet = fleet();
        let (gate, backend) = (Gate::default(), fleet.backend(FIRST));
        open(&gate, backend, Millis(500), 0);
        assert!(backend.admits().is_err() && gate.enter(FIRST, backend).is_none());
        assert_eq!(gate.due(), Some(Millis(500 + BREAKER_OPEN_FIRST_MS)));
        assert!(gate.half_open(backend));
        let trials: Vec<Pass<'_>> =
            (0..BREAKER_TRIALS).filter_map(|_| gate.enter(FIRST, backend)).collect();
        assert!(backend.admits().is_err(), "all places are taken");
        for trial in trials {
            trial.succeeded(Millis(2_000));
        }
        assert!(backend.admits().is_ok());
        assert_eq!(gate.due(), None);
    }

    #[test]
    fn a_client_that_leaves_a_trial_frees_its_place() {
        let fleet = fleet();
        let (gate, backend) = (Gate::default(), fleet.backend(FIRST));
        open(&gate, backend, Millis(0), 0);
        gate.half_open(backend);
        let trials: Vec<Pass<'_>> =
            (0..BREAKER_TRIALS).filter_map(|_| gate.enter(FIRST, backend)).collect();
        assert!(backend.admits().is_err());
        drop(trials);
        assert!(backend.admits().is_ok());
    }

    #[test]
    fn an_upstreams_retry_after_is_honoured_up_to_five_minutes() {
        for (asked, pause) in [(0, 1_000), (500, 1_000), (90_000, 90_000), (900_000, 300_000)] {
            let fleet = fleet();
            let (gate, backend) = (Gate::default(), fleet.backend(FIRST));
            open(&gate, backend, Millis(10), asked);
            assert_eq!(gate.due(), Some(Millis(10 + pause)), "asked for {asked}");
        }
    }

    #[test]
    fn tripping_takes_a_backend_out_at_once_and_trials_bring_it_back() {
        let fleet = fleet();
        let (gate, backend) = (Gate::default(), fleet.backend(FIRST));
        let early = gate.enter(FIRST, backend).unwrap();
        gate.trip(backend, Millis(500));
        assert!(backend.admits().is_err() && gate.enter(FIRST, backend).is_none());
        assert_eq!(gate.due(), Some(Millis(500 + BREAKER_OPEN_FIRST_MS)));
        early.succeeded(Millis(600));
        assert!(backend.admits().is_err(), "what came late says nothing");
        gate.half_open(backend);
        for _ in 0..BREAKER_TRIALS {
            gate.enter(FIRST, backend).unwrap().succeeded(Millis(2_000));
        }
        assert!(backend.admits().is_ok());
    }

    #[test]
    fn opening_again_soon_after_closing_waits_longer_than_the_first_time() {
        let fleet = fleet();
        let (gate, backend) = (Gate::default(), fleet.backend(FIRST));
        let mut pauses = Vec::new();
        for (closed, opened) in [(0, 100), (5_000, 6_000), (10_000, 80_000)] {
            if gate.half_open(backend) {
                for _ in 0..BREAKER_TRIALS {
                    gate.enter(FIRST, backend).unwrap().succeeded(Millis(closed));
                }
            }
            open(&gate, backend, Millis(opened), 0);
            pauses.push(gate.due().unwrap().since(Millis(opened)));
        }
        assert_eq!(pauses, [1_000, 2_000, 1_000]);
    }
}
