//! A backend's breaker: requests that come and end while it opens, is tried and closes.
//!
//! Passes are counted here by an atomic of the standard library: loom does not see it, so it adds no interleaving and is
//! exact in each.

use std::sync::atomic::{AtomicU32, Ordering};

use index::breaker::{Gate, Pass, State};
use index::limits::{BREAKER_FAILURES, BREAKER_OPEN_FIRST_MS, BREAKER_OPEN_MAX_MS, BREAKER_TRIALS};
use index::{Backend, Fleet, Limits, Millis};
use loom::sync::Arc;
use loom::sync::atomic::AtomicBool;
use loom::thread;

use crate::{B, fleet, model};

/// A gate with the backend it stands before.
struct Guarded {
    gate: Gate,
    fleet: Arc<Fleet>,
    passes: AtomicU32,
}

impl Guarded {
    fn closed() -> Arc<Guarded> {
        let (gate, passes) = (Gate::default(), AtomicU32::new(0));
        Arc::new(Guarded { gate, fleet: fleet(1, Limits::default()), passes })
    }

    fn half_open() -> Arc<Guarded> {
        let guarded = Guarded::closed();
        guarded.gate.trip(guarded.backend(), Millis(0));
        assert!(guarded.gate.half_open(guarded.backend()));
        guarded
    }

    fn backend(&self) -> &Backend {
        self.fleet.backend(B)
    }

    fn admits(&self) -> bool {
        self.backend().admits().is_ok()
    }

    /// A request that comes and says nothing of the backend. Whether it was let through.
    fn visit(&self) -> bool {
        let Some(pass) = self.gate.enter(B, self.backend()) else { return false };
        let inside = self.passes.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(inside <= BREAKER_TRIALS, "{inside} on trial at once");
        // Gives the others a moment to come.
        self.gate.look();
        self.passes.fetch_sub(1, Ordering::SeqCst);
        drop(pass);
        true
    }

    /// A request that is still there when the model ends.
    fn stay(&self) -> bool {
        let pass = self.gate.enter(B, self.backend());
        let inside = pass.is_some();
        std::mem::forget(pass);
        inside
    }

    /// A request that is served. How it was let through.
    fn succeed(&self, now: Millis) -> Option<Let> {
        let pass = self.gate.enter(B, self.backend())?;
        let how = Let::of(&pass);
        pass.succeeded(now);
        Some(how)
    }

    /// A request that fails. How it was let through.
    fn fail(&self, now: Millis) -> Option<Let> {
        let pass = self.gate.enter(B, self.backend())?;
        let how = Let::of(&pass);
        pass.failed(now, 0);
        Some(how)
    }
}

/// How a request was let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Let {
    Through,
    OnTrial,
}

impl Let {
    fn of(pass: &Pass<'_>) -> Let {
        if pass.is_trial() { Let::OnTrial } else { Let::Through }
    }
}

fn meanwhile<T: 'static>(
    guarded: &Arc<Guarded>,
    act: impl FnOnce(&Guarded) -> T + 'static,
) -> thread::JoinHandle<T> {
    let guarded = Arc::clone(guarded);
    thread::spawn(move || act(&guarded))
}

#[test]
fn no_more_than_the_trials_are_under_way_and_no_place_is_lost() {
    model(|| {
        let guarded = Guarded::half_open();
        let others = [meanwhile(&guarded, Guarded::visit), meanwhile(&guarded, Guarded::visit)];
        let mine = guarded.visit();
        let let_in = others.map(|other| other.join().unwrap()).into_iter().chain([mine]);
        assert!(let_in.filter(|it| *it).count() >= BREAKER_TRIALS as usize);
        assert_eq!(guarded.gate.look().state, State::HalfOpen { taken: 0, passed: 0 });
        assert!(guarded.admits());
    });
}

#[test]
fn a_place_taken_and_one_given_back_at_once_leave_the_switch_as_the_word_says() {
    model(|| {
        let guarded = Guarded::half_open();
        (1..BREAKER_TRIALS).for_each(|_| assert!(guarded.stay()));
        let last = meanwhile(&guarded, Guarded::stay);
        // Takes the last place, and gives it back, or finds none.
        guarded.visit();
        let stays = last.join().unwrap();
        assert_eq!(guarded.admits(), guarded.gate.look().admits());
        assert_eq!(guarded.admits(), !stays);
    });
}

#[test]
fn a_late_completion_neither_closes_nor_opens_it() {
    model(|| {
        let guarded = Guarded::closed();
        let served = meanwhile(&guarded, |guarded| guarded.succeed(Millis(7)));
        let failed = meanwhile(&guarded, |guarded| guarded.fail(Millis(8)));
        guarded.gate.trip(guarded.backend(), Millis(1));
        guarded.gate.half_open(guarded.backend());
        let [served, failed] = [served, failed].map(|it| it.join().unwrap() == Some(Let::OnTrial));
        // What was let through before it opened has left no trace.
        let places = u32::from(served);
        let half_open = State::HalfOpen { taken: places, passed: places };
        assert_eq!(guarded.gate.look().state, if failed { State::Open } else { half_open });
        assert_eq!(guarded.admits(), guarded.gate.look().admits());
    });
}

#[test]
fn a_trial_of_before_the_next_opening_says_nothing_of_the_one_after() {
    model(|| {
        let guarded = Guarded::half_open();
        let served = meanwhile(&guarded, |guarded| guarded.succeed(Millis(2)));
        let failed = meanwhile(&guarded, |guarded| guarded.fail(Millis(2)));
        guarded.gate.half_open(guarded.backend());
        served.join().unwrap();
        failed.join().unwrap();
        let word = guarded.gate.look();
        match word.state {
            State::Open => assert!(guarded.gate.due().is_some()),
            // Half-open since the failure, with the success of before it forgotten, or counted as one of now.
            State::HalfOpen { taken, passed } => assert!(taken == passed && passed <= 1),
            State::Closed { .. } => panic!("one of its trials failed: {word:?}"),
        }
        assert_eq!(guarded.admits(), word.admits());
    });
}

#[test]
fn failures_at_once_open_it_once_and_it_is_said_when_it_may_be_tried() {
    model(|| {
        let guarded = Guarded::closed();
        let fail = |guarded: &Guarded| assert_eq!(guarded.fail(Millis(5)), Some(Let::Through));
        let others: Vec<_> = (1..BREAKER_FAILURES).map(|_| meanwhile(&guarded, fail)).collect();
        fail(&guarded);
        others.into_iter().for_each(|other| other.join().unwrap());
        let word = guarded.gate.look();
        assert_eq!((word.state, word.epoch, word.openings), (State::Open, 1, 1));
        assert_eq!(guarded.gate.due(), Some(Millis(5 + BREAKER_OPEN_FIRST_MS)));
        assert!(!guarded.admits());
    });
}

#[test]
fn whoever_writes_late_when_it_opened_takes_back_no_later_closing() {
    model(|| {
        let guarded = Guarded::closed();
        let trying = meanwhile(&guarded, |guarded| {
            let tried = guarded.gate.half_open(guarded.backend());
            if tried {
                let trial = |_| assert_eq!(guarded.succeed(Millis(2)), Some(Let::OnTrial));
                (0..BREAKER_TRIALS).for_each(trial);
            }
            tried
        });
        guarded.gate.trip(guarded.backend(), Millis(1));
        let closed = trying.join().unwrap();
        assert_eq!(guarded.admits(), closed);
        assert_eq!(guarded.gate.due().is_some(), !closed);
        // It has been closed for long, if it is known since when: what was before no longer counts.
        guarded.gate.trip(guarded.backend(), Millis(2 + BREAKER_OPEN_MAX_MS));
        assert_eq!(guarded.gate.look().openings, 1);
    });
}

/// The canary: a switch that follows its word and is not looked at again is left as an older word said.
#[test]
#[should_panic(expected = "the switch is not as the word says")]
fn a_switch_that_nobody_looks_at_again_is_caught() {
    // Relaxed, as in the gate: what is shown is not a matter of orderings.
    const ORDER: Ordering = Ordering::Relaxed;
    model(|| {
        let both = Arc::new((AtomicBool::new(false), AtomicBool::new(false)));
        let change = |both: &(AtomicBool, AtomicBool)| {
            let said = !both.0.fetch_xor(true, ORDER);
            both.1.store(said, ORDER);
        };
        let other = {
            let both = Arc::clone(&both);
            thread::spawn(move || change(&both))
        };
        change(&both);
        other.join().unwrap();
        let same = both.0.load(ORDER) == both.1.load(ORDER);
        assert!(same, "the switch is not as the word says");
    });
}
