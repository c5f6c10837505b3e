//! How often a stream's pieces are acknowledged to its engine.
//!
//! The kernel acknowledges each small piece as soon as it is read: a segment of its own, an eighth of what a piece costs.
//! Asked to wait, it acknowledges every second one, until one has gone without for 40 ms; then it falls back by itself.
//! An engine that streams fast never lets it come to that. One that sends nothing small while anything is
//! unacknowledged (Nagle's algorithm) always does, and its piece is late by these 40 ms. So the kernel is asked again and
//! again, after a short while where waiting went well and after ever longer ones where it did not: seldom enough that one late
//! piece is lost among the others. It decides only when; it touches no connection.

use crate::limits::{
    ACKS_ASKED_AGAIN_AFTER, ACKS_ASKED_AGAIN_FACTOR, ACKS_ASKED_AGAIN_MAX, ACKS_LOOKED_AT_AFTER,
};

/// How far it is with one stream.
#[derive(Debug)]
pub(super) struct Acks {
    pieces: u32,
    /// The piece with which something is to be done.
    due: u32,
    /// How many pieces to leave in peace after the next look.
    rest: u32,
    asked: bool,
}

/// What is to be done with the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// Ask the kernel to wait.
    Ask,
    /// See whether it still does, and tell [`Acks::looked`].
    Look,
}

impl Acks {
    /// For a stream of which no piece has come: the shortest are over before it is worth a call.
    pub(super) fn new() -> Acks {
        let due = ACKS_LOOKED_AT_AFTER;
        Acks { pieces: 0, due, rest: ACKS_ASKED_AGAIN_AFTER, asked: false }
    }

    /// Another piece has come.
    #[inline]
    pub(super) fn piece(&mut self) -> Option<Due> {
        self.pieces = self.pieces.wrapping_add(1);
        if self.pieces == self.due { Some(self.fall_due()) } else { None }
    }

    fn fall_due(&mut self) -> Due {
        self.asked = !self.asked;
        if self.asked {
            self.due = self.pieces.wrapping_add(ACKS_LOOKED_AT_AFTER);
            Due::Ask
        } else {
            Due::Look
        }
    }

    /// What the look showed: whether the kernel still waits.
    pub(super) fn looked(&mut self, waits: bool) {
        self.rest = match waits {
            true => ACKS_ASKED_AGAIN_AFTER,
            false => self.rest.saturating_mul(ACKS_ASKED_AGAIN_FACTOR).min(ACKS_ASKED_AGAIN_MAX),
        };
        self.due = self.pieces.wrapping_add(self.rest);
    }

    /// Whether it was asked and nobody has seen yet how that went: whoever uses the connection next must not bear it.
    pub(super) fn is_open(&self) -> bool {
        self.asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the pieces with which the kernel is asked, among the first so many.
    fn asked(pieces: u32, waits: impl Fn(u32) -> bool) -> Vec<u32> {
        let mut acks = Acks::new();
        let mut asked = Vec::new();
        for number in 1..=pieces {
            match acks.piece() {
                Some(Due::Ask) => asked.push(number),
                Some(Due::Look) => acks.looked(waits(number)),
                None => {}
            }
        }
        asked
    }

    #[test]
    fn a_kernel_that_waits_is_reminded_after_short_whiles() {
        let asked = asked(1000, |_| true);
        assert_eq!(asked.first(), Some(&ACKS_LOOKED_AT_AFTER));
        let between = ACKS_LOOKED_AT_AFTER + ACKS_ASKED_AGAIN_AFTER;
        assert!(asked.windows(2).all(|two| two[1] - two[0] == between), "{asked:?}");
        assert!(asked.len() > 10);
    }

    #[test]
    fn one_that_never_waits_is_asked_ever_more_seldom() {
        let asked = asked(100_000, |_| false);
        let between: Vec<u32> = asked.windows(2).map(|two| two[1] - two[0]).collect();
        let longest = ACKS_ASKED_AGAIN_MAX + ACKS_LOOKED_AT_AFTER;
        assert!(between.windows(2).all(|two| two[1] > two[0] || two[1] == longest), "{asked:?}");
        assert_eq!(asked.iter().filter(|&&number| number <= 1000).count(), 1, "{asked:?}");
        assert!(asked.len() < 100_000 / 3000, "{asked:?}");
    }

    #[test]
    fn a_pause_is_forgiven_once_it_waits_again() {
        let paused = 300..600;
        let after: Vec<u32> = asked(10_000, |number| !paused.contains(&number))
            .into_iter()
            .filter(|&number| number > 5_000)
            .collect();
        let between = ACKS_LOOKED_AT_AFTER + ACKS_ASKED_AGAIN_AFTER;
        assert!(after.windows(2).all(|two| two[1] - two[0] == between), "{after:?}");
    }

    #[test]
    fn it_is_open_from_asking_until_it_was_looked_at() {
        let mut acks = Acks::new();
        for _ in 0..1000 {
            let before = acks.is_open();
            let open = match acks.piece() {
                Some(Due::Ask) => true,
                Some(Due::Look) => {
                    acks.looked(true);
                    false
                }
                None => before,
            };
            assert_eq!(acks.is_open(), open);
        }
    }
}
