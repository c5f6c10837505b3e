//! Whether a backend does anything for the requests it has: judged from what all shards sent there and got back, and from
//! the engine's own numbers.
//!
//! An engine can accept requests, answer every health probe, and compute nothing. It can also be silent for minutes over
//! a long prefill and be in the best of health. The state here is pure and tells the two apart by time: it never calls
//! wedged what may still be prefilling the work that is outstanding there, at a fraction of the pace it has shown.

use index::{Load, Millis};

use crate::limits::{
    PREFILL_LATE_TIMES, PREFILL_TOKENS_PER_S_MIN, WEDGED_BLIND_TIMES, WEDGED_REQUESTS_MIN,
};

/// What a backend looks like at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Look {
    /// Requests in flight.
    pub(super) requests: u32,
    /// As many as it runs at once; 0 is unknown.
    pub(super) requests_max: u32,
    /// Prompt tokens whose first reply byte has not come.
    pub(super) uncached_tokens: u64,
    /// When a byte last came.
    pub(super) heard: Millis,
    /// The engine's own measure of what it has computed, if it can be read.
    pub(super) progress: Option<f64>,
    /// How long the outstanding prefill may honestly take, ms.
    pub(super) honest_ms: u64,
    /// It is on trial after a failure: one request is enough to judge by.
    pub(super) on_trial: bool,
}

/// How long nothing has moved.
#[derive(Debug, Default)]
pub(super) struct Stillness {
    since: Option<Millis>,
    heard: Millis,
    progress: Option<f64>,
}

impl Stillness {
    /// Takes in a look, and says for how long nothing has moved while something should, ms.
    pub(super) fn note(&mut self, look: &Look, now: Millis) -> u64 {
        let computed = look.progress.is_some() && look.progress != self.progress;
        let moved = look.heard != self.heard || computed;
        self.heard = look.heard;
        self.progress = look.progress.or(self.progress);
        let waited_for = look.requests > 0 && look.uncached_tokens > 0;
        let since = if moved { None } else { self.since };
        self.since = waited_for.then(|| since.unwrap_or(now));
        self.since.map_or(0, |since| now.since(since))
    }
}

impl Look {
    /// Whether what it has to prefill excuses a silence of this length.
    pub(super) fn excuses(&self, still_ms: u64) -> bool {
        self.requests > 0 && self.uncached_tokens > 0 && still_ms <= self.honest_ms
    }

    /// Whether a stillness of this length means that nothing will ever come. `after_ms`: what is granted beyond the
    /// honest time, and several times over where the engine cannot be seen computing.
    pub(super) fn is_wedged(&self, still_ms: u64, after_ms: u64) -> bool {
        let seen = self.progress.is_some();
        let full = self.requests_max > 0 && self.requests >= self.requests_max;
        let several = self.requests >= WEDGED_REQUESTS_MIN || seen && full || self.on_trial;
        let granted = if seen { after_ms } else { after_ms.saturating_mul(WEDGED_BLIND_TIMES) };
        several && self.uncached_tokens > 0 && still_ms > granted.saturating_add(self.honest_ms)
    }
}

/// How long a backend's outstanding prefill may honestly take, ms: at a fraction of the pace it has shown, or, until it has
/// shown one, at that of slow hardware.
pub(super) fn honest_ms(load: &Load) -> u64 {
    let paced = load.prefill_ms().map(|ms| ms.saturating_mul(PREFILL_LATE_TIMES));
    let slowest = || load.uncached_tokens().saturating_mul(1_000) / PREFILL_TOKENS_PER_S_MIN;
    paced.unwrap_or_else(slowest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER_MS: u64 = 60_000;

    /// Five requests wait for 10,000 tokens of prefill, which may take 80 s.
    const BUSY: Look = Look {
        requests: 5,
        requests_max: 0,
        uncached_tokens: 10_000,
        heard: Millis(0),
        progress: Some(7.0),
        honest_ms: 80_000,
        on_trial: false,
    };

    /// When a backend that keeps looking like this is first called wedged, s.
    fn wedged_after_s(look: &Look) -> Option<u64> {
        let mut stillness = Stillness::default();
        (0..10_000).find(|second| {
            let still = stillness.note(look, Millis(1_000 + second * 1_000));
            look.is_wedged(still, AFTER_MS)
        })
    }

    #[test]
    fn several_requests_without_a_byte_or_progress_are_a_wedge_after_the_honest_time_and_no_sooner()
    {
        assert_eq!(wedged_after_s(&BUSY), Some(141));
        let huge = Look { honest_ms: 4_000_000, ..BUSY };
        assert_eq!(wedged_after_s(&huge), Some(4_061), "a huge prompt is given its time");
    }

    #[test]
    fn a_single_long_prefill_is_none_however_long_it_takes() {
        for requests in 1..WEDGED_REQUESTS_MIN {
            assert_eq!(wedged_after_s(&Look { requests, ..BUSY }), None, "{requests}");
        }
    }

    #[test]
    fn a_full_backend_is_judged_by_fewer_if_it_can_be_seen_not_to_compute() {
        let full = Look { requests: 1, requests_max: 1, ..BUSY };
        assert_eq!(wedged_after_s(&full), Some(141));
        assert_eq!(wedged_after_s(&Look { progress: None, ..full }), None);
    }

    #[test]
    fn one_that_cannot_be_seen_computing_is_given_much_longer() {
        assert_eq!(wedged_after_s(&Look { progress: None, ..BUSY }), Some(681));
    }

    #[test]
    fn one_request_is_enough_on_trial() {
        assert_eq!(wedged_after_s(&Look { requests: 1, on_trial: true, ..BUSY }), Some(141));
    }

    #[test]
    fn whoever_waits_for_no_prefill_is_waiting_for_a_client() {
        assert_eq!(wedged_after_s(&Look { uncached_tokens: 0, ..BUSY }), None);
    }

    #[test]
    fn a_byte_a_step_of_the_engine_or_an_idle_moment_begins_the_time_anew() {
        let anew: [fn(&mut Look); 3] = [
            |look| look.heard = Millis(100_000),
            |look| look.progress = Some(8.0),
            |look| look.requests = 0,
        ];
        for change in anew {
            let mut stillness = Stillness::default();
            stillness.note(&BUSY, Millis(1_000));
            assert_eq!(stillness.note(&BUSY, Millis(100_000)), 99_000);
            let mut changed = BUSY;
            change(&mut changed);
            assert_eq!(stillness.note(&changed, Millis(101_000)), 0);
            changed.requests = 5;
            assert!(stillness.note(&changed, Millis(102_000)) <= 1_000);
        }
    }

    #[test]
    fn numbers_that_cannot_be_read_for_a_while_are_no_progress() {
        let mut stillness = Stillness::default();
        stillness.note(&BUSY, Millis(1_000));
        stillness.note(&Look { progress: None, ..BUSY }, Millis(2_000));
        assert_eq!(stillness.note(&BUSY, Millis(3_000)), 2_000);
    }

    #[test]
    fn silence_is_excused_for_as_long_as_the_prefill_may_honestly_take() {
        assert!(BUSY.excuses(80_000) && !BUSY.excuses(80_001));
        assert!(!Look { requests: 0, ..BUSY }.excuses(0));
        assert!(!Look { uncached_tokens: 0, ..BUSY }.excuses(0));
    }
}
