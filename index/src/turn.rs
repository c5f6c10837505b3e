//! Whether a long prompt had better wait than stand in line behind others. An engine that prefills one prompt after the
//! other, in the order they came, lets everybody wait behind a long one that came a moment earlier. One that is held back
//! until the engine is nearly done with what it has loses nothing by it, shorter ones go first, and where it goes is decided
//! with what is known by then. It only ever answers a question: who waits, and for how long at most, is the caller's matter.
//!
//! Reckoned by the clock, not by first tokens alone, so that nobody waits for one that does not come; and with streams only,
//! because a reply that comes whole does not tell when its prefill ended. An engine is believed to prefill one prompt after
//! the other only where that is known: one with several ranks behind one address would be held to the speed of one.
//!
//! # Orderings
//! Hints that publish nothing: Relaxed everywhere.

use crate::Millis;
use crate::limits::{TURN_LEAD_MS, TURN_LONG_MS, TURN_LONG_TOKENS};
use crate::pace::Pace;
use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// What one backend is prefilling for streams.
#[derive(Debug)]
pub(crate) struct Turn {
    /// Whether it prefills one prompt after the other.
    serial: AtomicBool,
    /// Uncached tokens of streams whose first token has not come.
    tokens: AtomicU64,
    pace: Pace,
}

impl Turn {
    pub(crate) fn new() -> Self {
        Self { serial: AtomicBool::new(false), tokens: AtomicU64::new(0), pace: Pace::new() }
    }

    /// Whether the engine prefills one prompt after the other.
    pub(crate) fn set_serial(&self, serial: bool) {
        // Relaxed: the flag is the whole message.
        self.serial.store(serial, Ordering::Relaxed);
    }

    /// A stream with so many uncached tokens was sent.
    pub(crate) fn began(&self, tokens: u64, now: Millis) {
        // Relaxed: a hint.
        if self.tokens.fetch_add(tokens, Ordering::Relaxed) == 0 {
            self.pace.started(now);
        }
    }

    /// Its first token came. To be followed by its leave.
    pub(crate) fn learn(&self, tokens: u64, now: Millis) {
        self.pace.prefilled(tokens, now);
    }

    /// It is prefilled, or ended before.
    pub(crate) fn left(&self, tokens: u64) {
        // Relaxed: every subtraction follows its own addition.
        let before = self.tokens.fetch_sub(tokens, Ordering::Relaxed);
        debug_assert!(before >= tokens, "gave back a prefill that never began");
    }

    /// Another engine stands behind this id now.
    pub(crate) fn forget(&self) {
        self.pace.forget();
    }

    /// Whether a prompt with so many uncached tokens is long, and the engine not nearly done with what it has.
    pub(crate) fn is_taken(&self, uncached_tokens: u64, now: Millis) -> bool {
        // Relaxed: hints.
        let (serial, ahead) =
            (self.serial.load(Ordering::Relaxed), self.tokens.load(Ordering::Relaxed));
        if !serial || ahead == 0 || uncached_tokens < TURN_LONG_TOKENS {
            return false;
        }
        let is_long = self.pace.takes_ms(uncached_tokens).is_some_and(|ms| ms >= TURN_LONG_MS);
        is_long && self.pace.left_ms(ahead, now).is_some_and(|left| left > TURN_LEAD_MS)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const LONG: u64 = 8_000;

    /// A backend that prefills 8 tokens a millisecond and was given one long prompt at 100 s.
    fn busy() -> Turn {
        let turn = Turn::new();
        turn.set_serial(true);
        turn.began(LONG, Millis(0));
        prefill(&turn, LONG, Millis(1_000));
        turn.began(LONG, Millis(100_000));
        turn
    }

    fn prefill(turn: &Turn, tokens: u64, now: Millis) {
        turn.learn(tokens, now);
        turn.left(tokens);
    }

    #[test]
    fn a_long_prompt_waits_until_the_one_before_it_is_nearly_prefilled() {
        let turn = busy();
        assert!(turn.is_taken(LONG, Millis(100_000)));
        assert!(turn.is_taken(LONG, Millis(100_900)));
        assert!(!turn.is_taken(LONG, Millis(101_000 - TURN_LEAD_MS)));
    }

    #[test]
    fn nobody_waits_for_a_first_token_that_is_late() {
        assert!(!busy().is_taken(LONG, Millis(101_000)));
        assert!(!busy().is_taken(LONG, Millis(900_000)));
    }

    #[test]
    fn a_short_prompt_never_waits() {
        let long_tokens = 8 * TURN_LONG_MS;
        assert!(busy().is_taken(long_tokens, Millis(100_000)));
        assert!(!busy().is_taken(long_tokens - 1, Millis(100_000)));
    }

    #[test]
    fn where_engines_are_slow_a_prompt_of_one_step_does_not_wait() {
        let turn = Turn::new();
        turn.set_serial(true);
        turn.began(1_000, Millis(0));
        prefill(&turn, 1_000, Millis(10_000));
        turn.began(4_000, Millis(10_000));
        assert!(!turn.is_taken(TURN_LONG_TOKENS - 1, Millis(10_000)));
        assert!(turn.is_taken(TURN_LONG_TOKENS, Millis(10_000)));
    }

    #[test]
    fn nobody_waits_where_prompts_may_be_prefilled_side_by_side_or_no_rate_is_known() {
        let turn = busy();
        turn.set_serial(false);
        assert!(!turn.is_taken(LONG, Millis(100_000)));
        let unknown = Turn::new();
        unknown.set_serial(true);
        unknown.began(LONG, Millis(0));
        assert!(!unknown.is_taken(LONG, Millis(0)));
        let another = busy();
        another.forget();
        assert!(!another.is_taken(LONG, Millis(100_000)));
    }

    #[test]
    fn nobody_waits_for_a_prompt_that_left() {
        let turn = busy();
        turn.left(LONG);
        assert!(!turn.is_taken(LONG, Millis(100_000)));
    }
}
