//! When an open breaker lets a probe decide: after 1, 2, 4 … 60 s.
//!
//! Shards open breakers, on failures in a row; this only closes them again. Pure: time is an argument.

use index::Millis;

use crate::limits::{BREAKER_FAILURES, BREAKER_OPEN_FIRST_MS, BREAKER_OPEN_MAX_MS};

/// One backend's breaker, as control sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Breaker {
    due: Option<Millis>,
    pause_ms: u64,
    closed_at: Option<Millis>,
}

impl Breaker {
    /// Whether it is open.
    pub(crate) fn is_open(&self) -> bool {
        self.due.is_some()
    }

    /// When a probe may close it.
    pub(crate) fn due(&self) -> Option<Millis> {
        self.due
    }

    /// Looks at the failures in a row that shards counted. True when it has opened since the last look.
    pub(crate) fn look(&mut self, failures: u32, now: Millis) -> bool {
        if self.is_open() || failures < BREAKER_FAILURES {
            return false;
        }
        // Opening soon after closing means that probes pass and requests fail: wait longer each time.
        let soon = self.closed_at.is_some_and(|closed| now.since(closed) < BREAKER_OPEN_MAX_MS);
        self.pause_ms = if soon { self.longer() } else { BREAKER_OPEN_FIRST_MS };
        self.due = Some(Millis(now.0.saturating_add(self.pause_ms)));
        true
    }

    /// Takes in a probe's answer. True when it closes the breaker.
    pub(crate) fn probed(&mut self, alive: bool, now: Millis) -> bool {
        let Some(due) = self.due else { return false };
        if now < due {
            return false;
        }
        if !alive {
            self.pause_ms = self.longer();
            self.due = Some(Millis(now.0.saturating_add(self.pause_ms)));
            return false;
        }
        self.due = None;
        self.closed_at = Some(now);
        true
    }

    fn longer(&self) -> u64 {
        (self.pause_ms.max(BREAKER_OPEN_FIRST_MS / 2) * 2).min(BREAKER_OPEN_MAX_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_at_the_bound_and_closes_at_the_first_good_probe_after_a_second() {
        let mut breaker = Breaker::default();
        assert!(!breaker.look(BREAKER_FAILURES - 1, Millis(0)));
        assert!(breaker.look(BREAKER_FAILURES, Millis(0)));
        assert!(!breaker.look(BREAKER_FAILURES, Millis(1)));
        assert!(!breaker.probed(true, Millis(999)));
        assert!(breaker.probed(true, Millis(1_000)));
        assert!(!breaker.is_open());
    }

    #[test]
    fn failing_probes_double_the_pause_up_to_a_minute() {
        let mut breaker = Breaker::default();
        breaker.look(BREAKER_FAILURES, Millis(0));
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let now = breaker.due().unwrap();
            breaker.probed(false, now);
            pauses.push(breaker.due().unwrap().since(now) / 1_000);
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60, 60]);
    }

    #[test]
    fn opening_again_soon_after_closing_waits_longer_than_the_first_time() {
        let mut breaker = Breaker::default();
        breaker.look(BREAKER_FAILURES, Millis(0));
        breaker.probed(true, Millis(1_000));
        breaker.look(BREAKER_FAILURES, Millis(1_500));
        assert_eq!(breaker.due(), Some(Millis(3_500)));
        breaker.probed(true, Millis(3_500));
        breaker.look(BREAKER_FAILURES, Millis(100_000));
        assert_eq!(breaker.due(), Some(Millis(101_000)));
    }
}
