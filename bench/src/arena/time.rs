//! Simulated time: seconds as an ordered number, and what happens when. No clock is read.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Seconds, ordered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seconds(pub f64);

impl Eq for Seconds {}

impl PartialOrd for Seconds {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Seconds {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// A request comes.
    Arrival(usize),
    /// Its prefill ends, unless it was placed anew since.
    Prefilled {
        /// Whose.
        key: usize,
        /// Of which placement.
        attempt: u64,
    },
    /// Its answer ends, likewise.
    Finished {
        /// Whose.
        key: usize,
        /// Of which placement.
        attempt: u64,
    },
    /// An engine fails.
    Down(usize),
    /// It comes back, cold.
    Up(usize),
    /// Some answers of an engine end, unless its plan changed since.
    Decoded {
        /// Which engine.
        engine: usize,
        /// Of which plan.
        stamp: u64,
    },
}

/// What is to come, in order of time; at one time in the order it was planned.
#[derive(Debug, Default)]
pub struct Agenda {
    events: BinaryHeap<Reverse<(Seconds, u64, Event)>>,
    planned: u64,
}

impl Agenda {
    /// Plans an event.
    pub fn plan(&mut self, at_s: f64, event: Event) {
        self.planned += 1;
        self.events.push(Reverse((Seconds(at_s), self.planned, event)));
    }

    /// The next event and its time.
    pub fn pop(&mut self) -> Option<(f64, Event)> {
        self.events.pop().map(|Reverse((at, _, event))| (at.0, event))
    }
}
