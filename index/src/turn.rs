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
use crate::limits::{
    TURN_LEAD_MS, TURN_LONG_MS, TURN_LONG_TOKENS, WAY_COST_MS, WAY_LATE_TIMES, WAY_LOST_PRICE,
    WAY_SAMPLES,
};
use crate::line::{Line, Place};
use crate::pace::{HALF, Pace, add};
use crate::sync::{AtomicBool, AtomicU64, Ordering};
use crate::way::{Ticket, Way};

/// What one backend is prefilling for streams.
#[derive(Debug)]
pub(crate) struct Turn {
    /// Whether it prefills one prompt after the other.
    serial: AtomicBool,
    /// Whether it ends a prompt at once whose client leaves, and keeps what it has computed of it.
    stops: AtomicBool,
    /// Uncached tokens of streams whose first token has not come.
    tokens: AtomicU64,
    pace: Pace,
    /// Streams whose first token has not come, in the order they were sent.
    pub(crate) line: Line,
    way: Way,
    /// What was computed of those that gave way, and what was found of it, in one word: tokens found << 32 | computed.
    /// Older samples fade.
    kept: AtomicU64,
}

impl Turn {
    pub(crate) fn new() -> Self {
        Self {
            serial: AtomicBool::new(false),
            stops: AtomicBool::new(false),
            tokens: AtomicU64::new(0),
            pace: Pace::new(),
            line: Line::new(),
            way: Way::new(),
            kept: AtomicU64::new(0),
        }
    }

    /// Whether the engine prefills one prompt after the other.
    pub(crate) fn set_serial(&self, serial: bool) {
        // Relaxed: the flag is the whole message.
        self.serial.store(serial, Ordering::Relaxed);
    }

    /// Whether the engine ends a prompt at once whose client leaves, and keeps what it has computed of it.
    pub(crate) fn set_stops(&self, stops: bool) {
        // Relaxed: the flag is the whole message.
        self.stops.store(stops, Ordering::Relaxed);
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

    /// The same, of one of which nobody knows how much was prefilled.
    pub(crate) fn learn_nothing(&self, now: Millis) {
        self.pace.started(now);
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
        // Relaxed: a hint. An exchange, as every change of the sums is: those have one order.
        self.kept.swap(0, Ordering::Relaxed);
    }

    /// Whether a prompt with so many uncached tokens takes long here.
    pub(crate) fn is_long(&self, uncached_tokens: u64) -> bool {
        uncached_tokens >= TURN_LONG_TOKENS
            && self.pace.takes_ms(uncached_tokens).is_some_and(|ms| ms >= TURN_LONG_MS)
    }

    /// A stream that was sent may give way so often, if it is a long one. To be told of what it comes to.
    pub(crate) fn may_give_way(&self, uncached_tokens: u64, times: u32) -> Option<Ticket> {
        // Relaxed: hints.
        let can = self.serial.load(Ordering::Relaxed) && self.stops.load(Ordering::Relaxed);
        if !can || times == 0 || !self.is_long(uncached_tokens) {
            return None;
        }
        self.way.enter(uncached_tokens, times)
    }

    /// What a stream comes to that is being prefilled and should long have been done: less of its prompt was cached than
    /// was believed, nobody knows how much less, so that half of what may be left is. `None` while it may have as many
    /// uncached tokens as it was sent with, and where others than streams (`pending` is the work of all) may be what it
    /// waits for.
    pub(crate) fn found_long(
        &self,
        place: Place,
        tokens: u64,
        prompt_tokens: u64,
        pending: u64,
        now: Millis,
    ) -> Option<u64> {
        // Relaxed: hints.
        let (serial, streams) =
            (self.serial.load(Ordering::Relaxed), self.tokens.load(Ordering::Relaxed));
        if !serial || pending > streams || !self.line.is_first(place) {
            return None;
        }
        let spent_ms = self.pace.spent_ms(now);
        let late_ms = self.pace.takes_ms(tokens)?.saturating_mul(WAY_LATE_TIMES) + TURN_LONG_MS;
        if spent_ms < late_ms {
            return None;
        }
        let done = self.pace.prefills_in(spent_ms).min(prompt_tokens);
        let found = done + (prompt_tokens - done) / 2;
        (found > tokens).then_some(found)
    }

    /// A stream has so many more uncached tokens than it was sent with, `tokens` in all.
    pub(crate) fn grew(&self, ticket: Option<Ticket>, more: u64, tokens: u64) {
        // Relaxed: a hint.
        self.tokens.fetch_add(more, Ordering::Relaxed);
        if let Some(ticket) = ticket {
            self.way.grew(ticket, tokens);
        }
    }

    /// Prefill work that somebody with so many uncached tokens would not wait behind if the one being prefilled gave way, in
    /// tokens; 0 when that has come too far. What was done of it counts once even where the engine keeps it, so that nobody
    /// gives way who is more than half done, and more often where it does not.
    pub(crate) fn given_way(&self, uncached_tokens: u64, now: Millis) -> u64 {
        let Some(tokens) = self.way.tokens() else { return 0 };
        let (takes, own) = (self.pace.takes_ms(tokens), self.pace.takes_ms(uncached_tokens));
        let (Some(takes), Some(own)) = (takes, own) else { return 0 };
        let left = self.pace.left_ms(tokens, now).unwrap_or(0);
        let done =
            takes.saturating_sub(left) as f64 * (1.0 + WAY_LOST_PRICE * (1.0 - self.kept_share()));
        let price = (done as u64).saturating_add(own).saturating_add(WAY_COST_MS);
        let saved_ms = left.saturating_sub(price);
        tokens.saturating_mul(saved_ms) / takes.max(1)
    }

    /// Asks the one being prefilled to give way.
    pub(crate) fn ask_way(&self) {
        self.way.ask();
    }

    /// Whether this one was asked to.
    pub(crate) fn is_asked(&self, ticket: Ticket) -> bool {
        self.way.is_asked(ticket)
    }

    /// It gave way: it was ended with `left_tokens` of `tokens` to go, and is to be prefilled anew from there.
    pub(crate) fn gave_way(&self, ticket: Ticket, tokens: u64, left_tokens: u64, now: Millis) {
        self.way.gave(ticket, left_tokens);
        self.left(tokens.saturating_sub(left_tokens));
        self.pace.started(now);
    }

    /// How much of its tokens is computed of a prompt that is being prefilled, and how much is left if it gives way.
    pub(crate) fn done_and_left(&self, tokens: u64, now: Millis) -> (u64, u64) {
        let done = tokens.saturating_sub(self.pace.remaining(tokens, now));
        // At most as many as are done, so the cast loses only a fraction of a token.
        (done, tokens - (done as f64 * self.kept_share()) as u64)
    }

    /// Of what was computed of one that gave way, so much was found when it came again.
    pub(crate) fn note_kept(&self, found: u64, computed: u64) {
        let added = |sums: u64| {
            let found = add(sums >> 32, found.min(computed), WAY_SAMPLES);
            Some(found << 32 | add(sums & HALF, computed, WAY_SAMPLES))
        };
        // Relaxed: a hint. It never fails, as the closure always gives a word.
        let _ = self.kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, added);
    }

    /// The share of it that the engine keeps, 0 to 1; all until it told.
    fn kept_share(&self) -> f64 {
        // Relaxed: a hint.
        let sums = self.kept.load(Ordering::Relaxed);
        let (found, computed) = ((sums >> 32) as f64, (sums & HALF) as f64);
        if computed > 0.0 { (found / computed).min(1.0) } else { 1.0 }
    }

    /// It is prefilled, or ended, or must not be ended any more.
    pub(crate) fn stays(&self, ticket: Ticket) {
        self.way.leave(ticket);
    }

    /// Whether a prompt with so many uncached tokens is long, and the engine not nearly done with what it has.
    pub(crate) fn is_taken(&self, uncached_tokens: u64, now: Millis) -> bool {
        // Relaxed: hints.
        let (serial, ahead) =
            (self.serial.load(Ordering::Relaxed), self.tokens.load(Ordering::Relaxed));
        if !serial || ahead == 0 || !self.is_long(uncached_tokens) {
            return false;
        }
        self.pace.left_ms(ahead, now).is_some_and(|left| left > TURN_LEAD_MS)
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

    /// The same with a long prompt that may give way once.
    fn giving_way() -> (Turn, Ticket) {
        let turn = busy();
        turn.set_stops(true);
        let ticket = turn.may_give_way(LONG, 1).unwrap();
        (turn, ticket)
    }

    #[test]
    fn what_a_long_prompt_gives_way_for_is_what_is_left_of_it_less_what_is_done_and_who_comes() {
        let (turn, _) = giving_way();
        let saved_ms =
            |after_ms: u64, own: u64| turn.given_way(own, Millis(100_000 + after_ms)) / 8;
        assert_eq!(saved_ms(0, 0), 1_000 - WAY_COST_MS);
        assert_eq!(saved_ms(100, 800), 900 - 100 - 100 - WAY_COST_MS);
        assert_eq!(saved_ms(500, 0), 0, "half of it is done");
        assert_eq!(saved_ms(0, 8_000), 0, "who comes takes as long");
    }

    #[test]
    fn who_gave_way_has_less_to_go_and_is_not_asked_again() {
        let (turn, ticket) = giving_way();
        turn.ask_way();
        assert!(turn.is_asked(ticket));
        assert_eq!(turn.done_and_left(LONG, Millis(100_250)), (2_000, 6_000));
        turn.gave_way(ticket, LONG, 6_000, Millis(100_250));
        assert!(!turn.is_asked(ticket));
        assert_eq!(turn.given_way(0, Millis(100_250)), 0, "it may give way once");
        turn.left(6_000);
        assert!(!turn.is_taken(LONG, Millis(100_250)));
    }

    #[test]
    fn where_engines_keep_nothing_giving_way_costs_more() {
        let (turn, _) = giving_way();
        let kept = turn.given_way(0, Millis(100_200));
        (0..50).for_each(|_| turn.note_kept(0, 4_000));
        let lost = turn.given_way(0, Millis(100_200));
        assert!(lost < kept, "{lost} {kept}");
        assert_eq!(turn.done_and_left(LONG, Millis(100_250)), (2_000, LONG), "all of it is to go");
        (0..200).for_each(|_| turn.note_kept(9_999, 4_000));
        assert_eq!(turn.given_way(0, Millis(100_200)), kept, "no more is kept than was computed");
        turn.note_kept(0, u64::MAX);
        turn.forget();
        assert!(turn.kept_share() == 1.0, "another engine stands there");
    }

    #[test]
    fn nobody_gives_way_who_is_short_or_where_that_would_not_end_it() {
        let turn = busy();
        assert_eq!(turn.may_give_way(LONG, 1), None, "the engine works for clients that left");
        turn.set_stops(true);
        assert_eq!(turn.may_give_way(3_999, 1), None, "it is short");
        assert_eq!(turn.may_give_way(LONG, 0), None, "it may not");
        turn.set_serial(false);
        assert_eq!(turn.may_give_way(LONG, 1), None, "nobody waits behind it");
        turn.set_serial(true);
        assert!(turn.may_give_way(LONG, 1).is_some());
        assert_eq!(turn.may_give_way(LONG, 1), None, "another one is there");
    }

    #[test]
    fn nobody_waits_for_a_prompt_that_left() {
        let turn = busy();
        turn.left(LONG);
        assert!(!turn.is_taken(LONG, Millis(100_000)));
    }
}
