//! Which of a backend's streams is being prefilled, where prompts are prefilled one after the other in the order they
//! came: the one behind the last whose first token came. Each has a number. Where one in the middle leaves, or engines
//! keep to no order, nobody is said to be first until the next first token tells again.
//!
//! # Orderings
//! Hints that publish nothing: Relaxed everywhere. The second number is changed by exchange, and never falls.

use crate::sync::{AtomicU64, Ordering};

/// The streams of one backend whose first token has not come.
#[derive(Debug)]
pub(crate) struct Line {
    /// The last that came.
    last: AtomicU64,
    /// The last that is done with.
    done: AtomicU64,
}

/// A stream's place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(u64);

impl Line {
    pub(crate) fn new() -> Self {
        Self { last: AtomicU64::new(0), done: AtomicU64::new(0) }
    }

    /// A stream comes, behind all others.
    pub(crate) fn join(&self) -> Place {
        // Relaxed: numbers, and nothing with them.
        Place(self.last.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Whether it is the one being prefilled.
    pub(crate) fn is_first(&self, place: Place) -> bool {
        // Relaxed: a hint.
        self.done.load(Ordering::Relaxed) + 1 == place.0
    }

    /// Its first token came, so everybody before it is done with.
    pub(crate) fn served(&self, place: Place) {
        // Relaxed: a hint.
        self.done.fetch_max(place.0, Ordering::Relaxed);
    }

    /// It left, perhaps while others were before it.
    pub(crate) fn left(&self, place: Place) {
        let next = |done: u64| (done + 1 == place.0).then_some(place.0);
        // Relaxed: a hint. Where it fails, it was not the first.
        let _ = self.done.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_who_came_next_after_the_last_that_was_served() {
        let line = Line::new();
        let [one, two, three] = std::array::from_fn(|_| line.join());
        assert!(line.is_first(one) && !line.is_first(two));
        line.served(one);
        assert!(line.is_first(two) && !line.is_first(three));
        line.left(two);
        assert!(line.is_first(three));
    }

    #[test]
    fn nobody_is_first_before_those_that_came_earlier() {
        let line = Line::new();
        let [one, two, three, four] = std::array::from_fn(|_| line.join());
        line.left(two);
        assert!(line.is_first(one), "who left stood behind it");
        line.served(one);
        assert!(!line.is_first(three) && !line.is_first(four), "nobody knows");
        line.served(three);
        assert!(line.is_first(four));
        line.served(two);
        assert!(line.is_first(four), "it never goes back");
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::thread;

    use super::*;
    use crate::sync::{Arc, model};

    #[test]
    fn two_that_come_and_go_at_once_leave_the_next_one_first() {
        model(|| {
            let line = Arc::new(Line::new());
            let other = Arc::clone(&line);
            let there = thread::spawn(move || other.served(other.join()));
            line.served(line.join());
            there.join().unwrap();
            assert!(line.is_first(line.join()));
        });
    }
}
