//! The long prompt that a backend is prefilling and that may give way: whoever comes home to that backend asks it to, and
//! whoever sent it ends it there and sends it again behind the one who asked. Engines keep what they have computed of a
//! prompt whose client leaves, so little is lost by it. At most one is kept track of: a second one waits for its turn. It
//! never ends anything itself, and a request that was asked and does not hear of it is only late, never lost.
//!
//! # Orderings
//! One word that publishes nothing else: Relaxed everywhere. It is changed by exchange only, and holds a ticket, so that
//! nobody asks, or hears, for another one.

use crate::limits::WAY_TIMES_MAX;
use crate::sync::{AtomicU64, Ordering};

/// Who may give way at one backend.
#[derive(Debug)]
pub(crate) struct Way(AtomicU64);

/// Names one prompt among all that a backend ever kept track of, for as long as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u32);

/// The word. Bits 0..32 tokens, 0 when there is nobody; 32 asked; 33..40 how often it may still give way; 40..64 ticket.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Standing {
    ticket: u32,
    times: u32,
    asked: bool,
    tokens: u32,
}

impl Way {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// A prompt with so many uncached tokens was sent, which may give way so often. `None` where another one is, or it
    /// may not.
    pub(crate) fn enter(&self, tokens: u64, times: u32) -> Option<Ticket> {
        let (tokens, times) = (low(tokens), times.min(WAY_TIMES_MAX));
        if times == 0 || tokens == 0 {
            return None;
        }
        let entered = self.change(|it| {
            let ticket = it.ticket.wrapping_add(1) & TICKETS;
            (it.tokens == 0).then_some(Standing { ticket, times, asked: false, tokens })
        })?;
        Some(Ticket(entered.ticket))
    }

    /// Tokens it has to prefill, if there is one that may give way or was asked to.
    pub(crate) fn tokens(&self) -> Option<u64> {
        let it = self.read();
        (it.tokens > 0 && (it.times > 0 || it.asked)).then_some(u64::from(it.tokens))
    }

    /// Asks it to give way.
    pub(crate) fn ask(&self) {
        let can = |it: &Standing| it.tokens > 0 && it.times > 0 && !it.asked;
        self.change(|it| can(&it).then_some(Standing { asked: true, ..it }));
    }

    /// Whether this one was asked to.
    pub(crate) fn is_asked(&self, ticket: Ticket) -> bool {
        let it = self.read();
        it.asked && it.is(ticket)
    }

    /// It gave way, and has so much left to prefill. Another one may have taken its place if that is nothing.
    pub(crate) fn gave(&self, ticket: Ticket, left_tokens: u64) {
        let tokens = low(left_tokens).max(1);
        let after = |it: Standing| Standing {
            times: it.times.saturating_sub(1),
            asked: false,
            tokens,
            ..it
        };
        self.change(|it| it.is(ticket).then(|| after(it)));
    }

    /// It has more to prefill than was believed.
    pub(crate) fn grew(&self, ticket: Ticket, tokens: u64) {
        self.change(|it| it.is(ticket).then_some(Standing { tokens: low(tokens), ..it }));
    }

    /// It is prefilled, or ended before, or must not be ended any more.
    pub(crate) fn leave(&self, ticket: Ticket) {
        self.change(|it| {
            it.is(ticket).then_some(Standing { times: 0, asked: false, tokens: 0, ..it })
        });
    }

    fn read(&self) -> Standing {
        // Relaxed: the word is the whole message.
        Standing::unpack(self.0.load(Ordering::Relaxed))
    }

    /// What stands there now, unless `change` gave nothing.
    fn change(&self, change: impl Fn(Standing) -> Option<Standing>) -> Option<Standing> {
        let packed = |word| change(Standing::unpack(word)).map(Standing::pack);
        // Relaxed: the word is the whole message.
        let before = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, packed).ok()?;
        change(Standing::unpack(before))
    }
}

impl Standing {
    fn is(&self, ticket: Ticket) -> bool {
        self.tokens > 0 && self.ticket == ticket.0
    }

    fn pack(self) -> u64 {
        let flags = u64::from(self.times) << 33 | u64::from(self.asked) << 32;
        u64::from(self.ticket) << 40 | flags | u64::from(self.tokens)
    }

    fn unpack(word: u64) -> Standing {
        Standing {
            ticket: (word >> 40) as u32,
            times: (word >> 33) as u32 & WAY_TIMES_MAX,
            asked: word >> 32 & 1 == 1,
            tokens: word as u32,
        }
    }
}

const TICKETS: u32 = (1 << 24) - 1;

/// The same, or as many as the word holds.
fn low(tokens: u64) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn who_is_asked_hears_it_until_it_gave_way_as_often_as_it_may() {
        let way = Way::new();
        let ticket = way.enter(9_000, 2).unwrap();
        assert!(!way.is_asked(ticket));
        for left in [7_000, 5_000] {
            way.ask();
            assert!(way.is_asked(ticket));
            way.gave(ticket, left);
            assert!(!way.is_asked(ticket));
        }
        assert_eq!(way.tokens(), None, "it gave way twice");
        way.ask();
        assert!(!way.is_asked(ticket));
    }

    #[test]
    fn one_is_kept_track_of_at_a_time() {
        let way = Way::new();
        let first = way.enter(9_000, 4).unwrap();
        assert_eq!(way.enter(8_000, 4), None);
        assert_eq!(way.tokens(), Some(9_000));
        way.leave(first);
        assert_eq!(way.tokens(), None);
        assert!(way.enter(8_000, 4).is_some());
        assert_eq!(way.tokens(), Some(8_000));
    }

    #[test]
    fn who_comes_later_is_not_asked_for_one_that_left() {
        let way = Way::new();
        let first = way.enter(9_000, 4).unwrap();
        way.ask();
        way.leave(first);
        let second = way.enter(8_000, 4).unwrap();
        assert!(!way.is_asked(second));
        way.ask();
        assert!(!way.is_asked(first));
        way.leave(first);
        way.gave(first, 1);
        assert!(way.is_asked(second));
        assert_eq!(way.tokens(), Some(8_000));
    }

    #[test]
    fn who_has_more_to_prefill_than_was_believed_is_still_the_same() {
        let way = Way::new();
        let ticket = way.enter(9_000, 1).unwrap();
        way.ask();
        way.grew(ticket, 20_000);
        assert!(way.is_asked(ticket));
        assert_eq!(way.tokens(), Some(20_000));
        way.leave(ticket);
        way.grew(ticket, 30_000);
        assert_eq!(way.tokens(), None);
    }

    #[test]
    fn nobody_is_asked_who_may_not_give_way_or_has_nothing_to_prefill() {
        let way = Way::new();
        assert_eq!(way.enter(9_000, 0), None);
        assert_eq!(way.enter(0, 4), None);
        way.ask();
        assert_eq!(way.tokens(), None);
    }

    #[test]
    fn more_than_the_word_holds_is_as_much_as_it_holds() {
        let way = Way::new();
        let ticket = way.enter(u64::MAX, u32::MAX).unwrap();
        assert_eq!(way.tokens(), Some(u64::from(u32::MAX)));
        (0..WAY_TIMES_MAX).for_each(|_| way.gave(ticket, u64::MAX));
        assert_eq!(way.tokens(), None);
        for _ in 0..=TICKETS {
            way.leave(Ticket(way.read().ticket));
            assert!(way.enter(1, 1).is_some(), "tickets begin again");
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::thread;

    use super::*;
    use crate::sync::{Arc, model};

    #[test]
    fn nobody_is_asked_in_place_of_one_that_left() {
        model(|| {
            let way = Arc::new(Way::new());
            let first = way.enter(9, 2).unwrap();
            let asking = Arc::clone(&way);
            let other = thread::spawn(move || asking.ask());
            way.leave(first);
            let second = way.enter(8, 2).unwrap();
            other.join().unwrap();
            assert!(!way.is_asked(first));
            way.gave(first, 1);
            assert_eq!(way.tokens(), Some(8));
            // Asked it may be: whoever asks means whoever is there.
            way.gave(second, 7);
            assert!(!way.is_asked(second));
        });
    }

    #[test]
    fn of_two_that_come_at_once_one_is_kept_track_of() {
        model(|| {
            let way = Arc::new(Way::new());
            let entering = Arc::clone(&way);
            let other = thread::spawn(move || entering.enter(9, 2));
            let here = way.enter(8, 2);
            let there = other.join().unwrap();
            assert!(here.is_some() != there.is_some());
        });
    }
}
