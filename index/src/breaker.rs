//! A backend's breaker: closed, open for 1, 2, 4 … 60 s, then half-open for a few real requests that must all be served.
//!
//! This is the state machine alone, without time and without sharing; `gate.rs` shares it between threads. Every change
//! of state begins an epoch, and what a request of an earlier epoch comes to changes nothing. It never hears of busy
//! answers: they are neither good nor bad.

mod gate;

pub use gate::{Gate, Pass};

use crate::limits::{BREAKER_FAILURES, BREAKER_OPEN_FIRST_MS, BREAKER_OPEN_MAX_MS, BREAKER_TRIALS};

/// What a breaker lets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Everything. So many failed in a row.
    Closed {
        /// Failures in a row.
        failures: u32,
    },
    /// Nothing.
    Open,
    /// A few requests on trial.
    HalfOpen {
        /// On trial or passed.
        taken: u32,
        /// Passed.
        passed: u32,
    },
}

/// A breaker at one moment. It fits a word, so that threads can exchange it whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Breaker {
    /// What it lets through.
    pub state: State,
    /// Counts changes of state, modulo 2^24.
    pub epoch: u32,
    /// How often it has opened without a quiet time between; what the pause grows with.
    pub openings: u32,
}

/// What a request carries from its start to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    epoch: u32,
    trial: bool,
}

const EPOCH_BITS: u32 = 24;
const EPOCH_MASK: u32 = (1 << EPOCH_BITS) - 1;
/// Beyond this the pause grows no more.
const OPENINGS_MAX: u32 = 16;

impl Breaker {
    /// As a backend begins.
    pub const NEW: Breaker =
        Breaker { state: State::Closed { failures: 0 }, epoch: 0, openings: 0 };

    /// Whether a request would be let through.
    pub fn admits(self) -> bool {
        match self.state {
            State::Closed { .. } => true,
            State::Open => false,
            State::HalfOpen { taken, .. } => taken < BREAKER_TRIALS,
        }
    }

    /// Failures in a row, as far as they still count.
    pub fn failures(self) -> u32 {
        match self.state {
            State::Closed { failures } => failures,
            State::Open | State::HalfOpen { .. } => BREAKER_FAILURES,
        }
    }

    /// The state in one word.
    pub fn name(self) -> &'static str {
        match self.state {
            State::Closed { .. } => "closed",
            State::Open => "open",
            State::HalfOpen { .. } => "half_open",
        }
    }

    /// How long it stays open, ms, if nothing asks for longer.
    pub fn pause_ms(self) -> u64 {
        let doublings = self.openings.saturating_sub(1).min(OPENINGS_MAX);
        (BREAKER_OPEN_FIRST_MS << doublings).min(BREAKER_OPEN_MAX_MS)
    }

    /// Lets a request through, or not.
    fn entered(self) -> Option<(Breaker, Ticket)> {
        let epoch = self.epoch;
        match self.state {
            State::Closed { .. } => Some((self, Ticket { epoch, trial: false })),
            State::HalfOpen { taken, passed } if taken < BREAKER_TRIALS => {
                let state = State::HalfOpen { taken: taken + 1, passed };
                Some((Breaker { state, ..self }, Ticket { epoch, trial: true }))
            }
            State::Open | State::HalfOpen { .. } => None,
        }
    }

    /// A request was served. The last of the trials closes it.
    fn succeeded(self, ticket: Ticket) -> Breaker {
        match self.state {
            _ if ticket.epoch != self.epoch => self,
            State::HalfOpen { passed, .. } if passed + 1 >= BREAKER_TRIALS => {
                self.next(State::Closed { failures: 0 })
            }
            State::HalfOpen { taken, passed } => {
                Breaker { state: State::HalfOpen { taken, passed: passed + 1 }, ..self }
            }
            State::Closed { .. } => Breaker { state: State::Closed { failures: 0 }, ..self },
            State::Open => self,
        }
    }

    /// A request failed. `quiet`: it has been closed for long, so that what was before no longer counts.
    fn failed(self, ticket: Ticket, quiet: bool) -> Breaker {
        match self.state {
            _ if ticket.epoch != self.epoch => self,
            State::Closed { failures } if failures + 1 < BREAKER_FAILURES => {
                Breaker { state: State::Closed { failures: failures + 1 }, ..self }
            }
            _ => self.tripped(quiet),
        }
    }

    /// It failed as a whole, whatever single requests say. `quiet`: as above.
    fn tripped(self, quiet: bool) -> Breaker {
        match self.state {
            State::Closed { .. } if quiet => Breaker { openings: 0, ..self }.opened(),
            State::Closed { .. } | State::HalfOpen { .. } => self.opened(),
            State::Open => self,
        }
    }

    /// A request ended and says nothing of the backend: it was full, or the client left. A trial's place is free again.
    fn returned(self, ticket: Ticket) -> Breaker {
        match self.state {
            State::HalfOpen { taken, passed } if ticket.trial && ticket.epoch == self.epoch => {
                Breaker {
                    state: State::HalfOpen { taken: taken.saturating_sub(1), passed },
                    ..self
                }
            }
            _ => self,
        }
    }

    /// Its pause is over and its engine answers: requests may try.
    fn half_opened(self) -> Breaker {
        match self.state {
            State::Open => self.next(State::HalfOpen { taken: 0, passed: 0 }),
            State::Closed { .. } | State::HalfOpen { .. } => self,
        }
    }

    /// Its pause is over and its engine does not answer: it stays open, for longer.
    fn stayed_open(self) -> Breaker {
        match self.state {
            State::Open => Breaker { openings: (self.openings + 1).min(OPENINGS_MAX), ..self },
            State::Closed { .. } | State::HalfOpen { .. } => self,
        }
    }

    fn opened(self) -> Breaker {
        let openings = (self.openings + 1).min(OPENINGS_MAX);
        Breaker { openings, ..self }.next(State::Open)
    }

    fn next(self, state: State) -> Breaker {
        Breaker { state, epoch: self.epoch.wrapping_add(1) & EPOCH_MASK, ..self }
    }

    /// From high to low: epoch (24 bits), openings, state, and its two counts (8 bits each).
    fn packed(self) -> u64 {
        let (state, one, two) = match self.state {
            State::Closed { failures } => (0, failures, 0),
            State::Open => (1, 0, 0),
            State::HalfOpen { taken, passed } => (2, taken, passed),
        };
        let parts = [self.openings, state, one, two];
        parts.iter().fold(u64::from(self.epoch), |word, part| word << 8 | u64::from(part & 0xff))
    }

    fn unpacked(word: u64) -> Breaker {
        let part = |shift: u32| u32::from((word >> shift) as u8);
        let state = match part(16) {
            0 => State::Closed { failures: part(8) },
            1 => State::Open,
            _ => State::HalfOpen { taken: part(8), passed: part(0) },
        };
        // The word holds no more than the epoch above its 32 low bits.
        Breaker { state, epoch: (word >> 32) as u32 & EPOCH_MASK, openings: part(24) }
    }
}

const _: () = assert!(BREAKER_TRIALS > 0 && BREAKER_TRIALS < 256);
const _: () = assert!(BREAKER_FAILURES > 0 && BREAKER_FAILURES < 256);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn ticket(breaker: &mut Breaker) -> Option<Ticket> {
        let (after, ticket) = breaker.entered()?;
        *breaker = after;
        Some(ticket)
    }

    fn failing() -> Breaker {
        let mut breaker = Breaker::NEW;
        for _ in 0..BREAKER_FAILURES {
            let failure = ticket(&mut breaker).unwrap();
            breaker = breaker.failed(failure, false);
        }
        breaker
    }

    fn half_open() -> (Breaker, Vec<Ticket>) {
        let mut breaker = failing().half_opened();
        let trials = std::iter::from_fn(|| ticket(&mut breaker)).collect();
        (breaker, trials)
    }

    #[test]
    fn failures_in_a_row_open_it_and_a_success_between_starts_anew() {
        let mut breaker = Breaker::NEW;
        for _ in 0..10 {
            for _ in 1..BREAKER_FAILURES {
                let failure = ticket(&mut breaker).unwrap();
                breaker = breaker.failed(failure, false);
            }
            let success = ticket(&mut breaker).unwrap();
            breaker = breaker.succeeded(success);
        }
        assert_eq!(breaker, Breaker::NEW);
        assert_eq!(failing().state, State::Open);
        assert!(!failing().admits() && failing().entered().is_none());
    }

    #[test]
    fn late_completions_of_before_the_failure_neither_close_nor_open_it() {
        let (_, early) = Breaker::NEW.entered().unwrap();
        let open = failing();
        assert_eq!(open.succeeded(early), open);
        let (half, trials) = half_open();
        for end in [half.succeeded(early), half.failed(early, false), half.returned(early)] {
            assert_eq!(end, half);
        }
        let closed = trials.into_iter().fold(half, Breaker::succeeded);
        assert_eq!(closed.state, State::Closed { failures: 0 });
        assert_eq!((0..9).fold(closed, |breaker, _| breaker.failed(early, false)), closed);
    }

    #[test]
    fn half_open_admits_a_few_and_all_of_them_close_it() {
        let (mut half, trials) = half_open();
        assert_eq!(trials.len(), BREAKER_TRIALS as usize);
        for trial in trials {
            assert!(!half.admits());
            half = half.succeeded(trial);
        }
        assert_eq!(half.state, State::Closed { failures: 0 });
    }

    #[test]
    fn half_open_admits_three_and_a_failure_among_them_opens_it_again_for_longer() {
        let (half, trials) = half_open();
        let open = half.succeeded(trials[0]).failed(trials[1], true);
        assert_eq!((open.state, open.pause_ms()), (State::Open, 2 * BREAKER_OPEN_FIRST_MS));
        assert_eq!(open.succeeded(trials[2]), open, "the third comes too late");
    }

    #[test]
    fn busy_answers_never_open_it_and_free_a_trials_place() {
        let mut breaker = Breaker::NEW;
        for _ in 0..100 {
            let busy = ticket(&mut breaker).unwrap();
            breaker = breaker.returned(busy);
        }
        assert_eq!(breaker, Breaker::NEW);
        let (half, trials) = half_open();
        let freed = half.returned(trials[0]);
        assert!(freed.admits() && freed.entered().is_some());
    }

    #[test]
    fn the_pause_doubles_up_to_a_minute_and_begins_anew_after_a_quiet_time() {
        let mut breaker = failing();
        let mut pauses = vec![breaker.pause_ms() / 1_000];
        for _ in 0..8 {
            breaker = breaker.stayed_open();
            pauses.push(breaker.pause_ms() / 1_000);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        let mut closed = Breaker { state: State::Closed { failures: 0 }, ..breaker };
        for quiet in [false, true] {
            let mut open = closed;
            while open.state != State::Open {
                let failure = ticket(&mut open).unwrap();
                open = open.failed(failure, quiet);
            }
            assert_eq!(open.pause_ms(), if quiet { 1_000 } else { 60_000 });
            closed = Breaker { openings: open.openings.max(7), ..closed };
        }
    }

    #[test]
    fn tripping_opens_it_from_any_state_and_what_was_let_through_before_counts_no_more() {
        let (_, early) = Breaker::NEW.entered().unwrap();
        let (half, trials) = half_open();
        for breaker in [Breaker::NEW, half] {
            let open = breaker.tripped(false);
            assert_eq!(open.state, State::Open);
            assert_eq!(open.succeeded(early).failed(trials[0], false), open);
            assert_eq!(open.tripped(true), open);
        }
        let soon = Breaker { state: State::Closed { failures: 0 }, ..half };
        let pauses = [false, true].map(|quiet| soon.tripped(quiet).pause_ms() / 1_000);
        assert_eq!(pauses, [2, 1], "a quiet time is honoured");
    }

    #[test]
    fn every_state_survives_its_word() {
        for state in [
            State::Closed { failures: 0 },
            State::Closed { failures: BREAKER_FAILURES - 1 },
            State::Open,
            State::HalfOpen { taken: BREAKER_TRIALS, passed: 1 },
        ] {
            let breaker = Breaker { state, epoch: EPOCH_MASK, openings: OPENINGS_MAX };
            assert_eq!(Breaker::unpacked(breaker.packed()), breaker);
        }
    }
}
