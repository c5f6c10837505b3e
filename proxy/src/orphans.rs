//! Requests whose client has left and on which their engine may still be at work.
//!
//! llama.cpp learns that a connection was closed when it writes to it, and some builds not before: then a reply in one
//! piece is worked out to its end for nobody, and a prompt to its end before a stream's first token. Whoever were sent
//! there meanwhile would wait inside, behind all that, or overfill the pool. So such a request's place stays taken until
//! the engine is seen to compute fewer requests than it would with it, or for as long as the work may take.
//!
//! Shards hand places in; the backend's task of the control thread gives them back. It never sends, reads or closes anything.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam::queue::ArrayQueue;
use index::{Millis, Reservation};

use crate::limits::{ORPHAN_MS_MAX, ORPHAN_MS_MIN, ORPHAN_TOKEN_MS, ORPHANS_MAX, SLOT_SETTLE_MS};

/// One place that stays taken.
#[derive(Debug)]
pub struct Orphan {
    _place: Reservation<'static>,
    left: Millis,
    until: Millis,
}

impl Orphan {
    /// A request that is left now, with so much prefill before it and a reply of so many tokens to come.
    pub fn new(
        place: Reservation<'static>,
        prefill_ms: u64,
        output_tokens: u64,
        now: Millis,
    ) -> Orphan {
        let work_ms = prefill_ms.saturating_add(output_tokens.saturating_mul(ORPHAN_TOKEN_MS));
        let until = Millis(now.0.saturating_add(work_ms.clamp(ORPHAN_MS_MIN, ORPHAN_MS_MAX)));
        Orphan { _place: place, left: now, until }
    }

    /// Whether the engine, asked at this moment, must have known of it: what is under way when its client leaves may
    /// arrive after that.
    fn had_arrived(&self, asked: Millis) -> bool {
        self.left.0.saturating_add(SLOT_SETTLE_MS) < asked.0
    }
}

/// What shards hand in for one backend, and how many of its requests they are done with.
///
/// # Orderings
/// A request is counted as done after it gave its place back or was handed in (Release). So whoever reads the count
/// (Acquire) and then looks at what is in flight and handed in finds none of those counted among the others.
#[derive(Debug)]
pub struct Handed {
    queue: ArrayQueue<Orphan>,
    done: AtomicU64,
}

impl Default for Handed {
    fn default() -> Handed {
        Handed { queue: ArrayQueue::new(ORPHANS_MAX), done: AtomicU64::new(0) }
    }
}

impl Handed {
    /// Hands one in. One too many gives its place back at once.
    pub fn push(&self, orphan: Orphan) {
        drop(self.queue.push(orphan));
        self.count_done();
    }

    /// Counts a request that is over.
    pub fn count_done(&self) {
        // Release: pairs with the Acquire in `done`.
        self.done.fetch_add(1, Ordering::Release);
    }

    fn done(&self) -> u64 {
        // Acquire: pairs with the Release in `count_done`.
        self.done.load(Ordering::Acquire)
    }
}

/// The orphans of one backend.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    kept: Vec<Orphan>,
    before: Option<Seen>,
}

/// What else was in flight at an earlier look.
#[derive(Debug, Clone, Copy)]
struct Seen {
    others: u64,
    done: u64,
    at: Millis,
}

impl Orphans {
    /// Takes in what was handed in, and gives back those whose time is over.
    pub(crate) fn take_in(&mut self, handed: &Handed, now: Millis) {
        self.kept.extend(std::iter::from_fn(|| handed.queue.pop()));
        self.kept.retain(|orphan| now < orphan.until);
    }

    /// The engine, asked at this moment, computed so many requests. Of these some are surely none of the orphans: requests
    /// of an earlier look that nobody is done with. If what is left is fewer than there are orphans, the others are done,
    /// oldest first. `in_flight` is asked for how many requests of ours are there, orphans included.
    pub(crate) fn look(
        &mut self,
        running: u32,
        asked: Millis,
        handed: &Handed,
        in_flight: impl Fn() -> u32,
    ) {
        let done = handed.done();
        let settled = |seen: &Seen| seen.at.0.saturating_add(SLOT_SETTLE_MS) < asked.0;
        let before = self.before.filter(settled);
        let lasting = |seen: Seen| seen.others.saturating_sub(done.wrapping_sub(seen.done));
        let may_run = u64::from(running).saturating_sub(before.map_or(0, lasting));
        let arrived = self.kept.iter().filter(|orphan| orphan.had_arrived(asked)).count() as u64;
        let mut over = arrived.saturating_sub(may_run);
        self.kept.retain(|orphan| {
            let ends = over > 0 && orphan.had_arrived(asked);
            over -= u64::from(ends);
            !ends
        });
        if before.is_some() || self.before.is_none() {
            self.take_in(handed, asked);
            let others = u64::from(in_flight()).saturating_sub(self.kept.len() as u64);
            self.before = Some(Seen { others, done, at: asked });
        }
    }

    /// The engine is gone, and what it was at with it.
    pub(crate) fn forget(&mut self, handed: &Handed) {
        while handed.queue.pop().is_some() {}
        self.kept.clear();
        self.before = None;
    }
}

#[cfg(test)]
mod tests {
    use index::{BackendId, Charge, Fleet, FleetConfig};

    use super::*;

    const HERE: BackendId = BackendId(0);
    const LEFT: Millis = Millis(10_000);

    /// Some time after that, in settling times.
    fn later(times: u64) -> Millis {
        Millis(LEFT.0 + times * (SLOT_SETTLE_MS + 1))
    }

    struct Case {
        fleet: &'static Fleet,
        handed: Handed,
        orphans: Orphans,
    }

    impl Case {
        fn new() -> Case {
            let fleet = Box::leak(Box::new(Fleet::new(FleetConfig::with_capacity(1))));
            Case { fleet, handed: Handed::default(), orphans: Orphans::default() }
        }

        fn place(&self) -> Reservation<'static> {
            self.fleet.reserve(HERE, Charge { tokens: 10, uncached_tokens: 0 }).unwrap()
        }

        fn leave(&self, prefill_ms: u64, output_tokens: u64) {
            self.handed.push(Orphan::new(self.place(), prefill_ms, output_tokens, LEFT));
        }

        fn taken(&self) -> u32 {
            self.fleet.backend(HERE).slots.in_flight().0
        }

        /// What is taken once the engine has said that it computes so many.
        fn look(&mut self, running: u32, asked: Millis) -> u32 {
            self.orphans.take_in(&self.handed, asked);
            let fleet = self.fleet;
            let in_flight = || fleet.backend(HERE).slots.in_flight().0;
            self.orphans.look(running, asked, &self.handed, in_flight);
            self.taken()
        }
    }

    #[test]
    fn places_come_back_as_soon_as_the_engine_computes_fewer_requests_than_were_left() {
        let mut case = Case::new();
        (0..3).for_each(|_| case.leave(0, 10_000));
        assert_eq!(case.look(3, later(1)), 3, "all may still run");
        assert_eq!(case.look(1, later(1)), 1);
        assert_eq!(case.look(0, later(1)), 0);
    }

    #[test]
    fn nothing_follows_from_what_the_engine_said_before_a_request_must_have_arrived() {
        let mut case = Case::new();
        case.leave(0, 10_000);
        assert_eq!(case.look(0, Millis(LEFT.0 + SLOT_SETTLE_MS)), 1);
        assert_eq!(case.look(0, later(1)), 0);
    }

    #[test]
    fn requests_that_last_are_not_taken_for_orphans() {
        let mut case = Case::new();
        let others = [case.place(), case.place(), case.place()];
        case.leave(0, 10_000);
        assert_eq!(case.look(4, later(1)), 4);
        assert_eq!(case.look(4, later(2)), 4, "it runs");
        assert_eq!(case.look(3, later(3)), 3, "three are accounted for");
        drop(others);
        assert_eq!(case.taken(), 0);
    }

    #[test]
    fn while_requests_come_and_go_nothing_is_taken_for_done_that_may_run() {
        let mut case = Case::new();
        let mut others = vec![case.place(), case.place(), case.place()];
        case.leave(0, 10_000);
        case.look(4, later(1));
        // One ends, and its successor has not arrived: three run, the orphan among them.
        drop(others.pop());
        case.handed.count_done();
        others.push(case.place());
        assert_eq!(case.look(3, later(2)), 4);
        // Another is left, too, and both run on.
        case.leave(0, 10_000);
        drop(others.pop());
        assert_eq!(case.look(4, later(3)), 4);
        assert_eq!(case.look(3, later(4)), 3, "one has ended");
        assert_eq!(case.look(2, later(5)), 2, "both have");
    }

    #[test]
    fn where_the_engine_does_not_say_a_place_comes_back_when_the_work_must_be_done() {
        let mut case = Case::new();
        case.leave(10_000, 100);
        case.leave(0, 0);
        case.leave(u64::MAX, u64::MAX);
        let mut taken_after = |ms: u64| {
            case.orphans.take_in(&case.handed, Millis(LEFT.0 + ms));
            case.taken()
        };
        assert_eq!(taken_after(ORPHAN_MS_MIN - 1), 3);
        assert_eq!(taken_after(ORPHAN_MS_MIN), 2);
        let work_ms = 10_000 + 100 * ORPHAN_TOKEN_MS;
        assert_eq!((taken_after(work_ms - 1), taken_after(work_ms)), (2, 1));
        assert_eq!((taken_after(ORPHAN_MS_MAX - 1), taken_after(ORPHAN_MS_MAX)), (1, 0));
    }

    #[test]
    fn an_engine_that_is_gone_keeps_no_place_and_one_too_many_takes_none() {
        let mut case = Case::new();
        (0..=ORPHANS_MAX).for_each(|_| case.leave(0, 10_000));
        assert_eq!(case.taken() as usize, ORPHANS_MAX);
        case.orphans.take_in(&case.handed, LEFT);
        case.leave(0, 10_000);
        case.orphans.forget(&case.handed);
        assert_eq!(case.taken(), 0);
    }
}
