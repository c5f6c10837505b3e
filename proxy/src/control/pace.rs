//! When each backend is asked: evenly over the interval, and so seldom that a large fleet costs the control
//! thread no more than one of a hundred and fifty.
//!
//! The thread shares a core with a shard where there are no spare ones, and what it takes there clients wait
//! for. Seldom asked is not late noticed: requests that fail open a breaker at once, whatever the interval.

use config::Health;

use crate::limits::{
    FIRST_VISITS_PER_SECOND_MAX, MODELS_INTERVAL_MS, PUBLISHING_PAUSE_FACTOR,
    PUBLISHING_PAUSE_MAX_MS, QUESTIONS_PER_SECOND_MAX,
};

/// One backend's place in the round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    number: u64,
    backends: u64,
    stretch_permille: u64,
}

impl Pace {
    /// Of backend `number`, from 0, of so many.
    pub(crate) fn new(number: usize, backends: usize, rules: &Health) -> Pace {
        let (number, backends) = (number as u64, backends.max(1) as u64);
        // In a thousand seconds, so that nothing is lost to rounding.
        let asked = [rules.interval_ms, rules.scrape_interval_ms, MODELS_INTERVAL_MS];
        let questions: u64 = asked.iter().map(|ms| 1_000_000 / (*ms).max(1)).sum();
        let stretch_permille = (backends * questions / QUESTIONS_PER_SECOND_MAX).max(1_000);
        Pace { number, backends, stretch_permille }
    }

    /// How long a configured interval is in a fleet of this size.
    pub(crate) fn stretched(&self, interval_ms: u64) -> u64 {
        interval_ms.saturating_mul(self.stretch_permille) / 1_000
    }

    /// How long after the start its first visit is, ms.
    pub(crate) fn first_visit_ms(&self) -> u64 {
        self.number * 1_000 / FIRST_VISITS_PER_SECOND_MAX
    }

    /// How long after the first visit the second is: its part of the interval.
    pub(crate) fn phase(&self, interval_ms: u64) -> u64 {
        self.stretched(interval_ms).saturating_mul(self.number + 1) / self.backends
    }
}

/// How long routes are not published again after that took so long, microseconds. A publication looks at the whole
/// fleet, and while it comes up every visit changes something: together they would take its size squared.
pub(super) fn publishing_pause_us(took_us: u64) -> u64 {
    took_us.saturating_mul(PUBLISHING_PAUSE_FACTOR).min(PUBLISHING_PAUSE_MAX_MS * 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Health {
        Health {
            wedged_after_ms: None,
            interval_ms: 2_000,
            timeout_ms: 5_000,
            failures_to_down: 3,
            successes_to_up: 1,
            scrape_interval_ms: 1_000,
        }
    }

    #[test]
    fn a_small_fleet_is_asked_as_configured() {
        for backends in [1, 2, 100, 150] {
            let pace = Pace::new(0, backends, &rules());
            assert_eq!(
                (pace.stretched(2_000), pace.stretched(1_000)),
                (2_000, 1_000),
                "{backends}"
            );
        }
    }

    #[test]
    fn all_backends_together_are_asked_no_more_than_the_bound() {
        for backends in [200, 1_000, 10_000, 65_535] {
            let pace = Pace::new(0, backends, &rules());
            let asked = [2_000, 1_000, MODELS_INTERVAL_MS];
            let rate: f64 = asked.iter().map(|ms| 1e3 / pace.stretched(*ms) as f64).sum();
            let rate = rate * backends as f64;
            assert!(rate <= QUESTIONS_PER_SECOND_MAX as f64 * 1.01, "{backends}: {rate} a second");
            assert!(rate > QUESTIONS_PER_SECOND_MAX as f64 * 0.9, "{backends}: {rate} a second");
        }
    }

    #[test]
    fn the_second_visits_lie_evenly_over_the_interval() {
        let times: Vec<u64> =
            (0..1_000).map(|number| Pace::new(number, 1_000, &rules()).phase(1_000)).collect();
        let whole = Pace::new(0, 1_000, &rules()).stretched(1_000);
        assert_eq!(times.last(), Some(&whole));
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] <= whole / 1_000 + 1));
    }

    #[test]
    fn publishing_takes_a_tenth_of_the_time_at_most_and_is_never_put_off_for_long() {
        for took_us in [20, 3_000, 40_000] {
            assert_eq!(publishing_pause_us(took_us), 9 * took_us);
        }
        assert_eq!(publishing_pause_us(u64::MAX), PUBLISHING_PAUSE_MAX_MS * 1_000);
    }
}
