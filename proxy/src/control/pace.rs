//! When each backend is asked: evenly over the interval, and so seldom that a large fleet costs a machine no more for
//! each of its shards than a fleet of a hundred and fifty does.
//!
//! The thread shares a core with a shard where there are no spare ones, and what it takes there clients wait
//! for; with more shards there is more to share. Seldom asked is not late noticed: requests that fail open a breaker
//! at once, whatever the interval.

use config::Health;

use crate::limits::{
    FIRST_VISITS_PER_SHARD_SECOND, FIRST_VISITS_SHARDS_MAX, MODELS_INTERVAL_MS,
    PUBLISHING_PAUSE_FACTOR, PUBLISHING_PAUSE_MAX_MS, QUESTIONS_PER_SHARD_SECOND,
    QUESTIONS_SHARDS_MAX,
};

/// One backend's place in the round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    number: u64,
    backends: u64,
    stretch_permille: u64,
    first_visits_per_second: u64,
}

impl Pace {
    /// Of backend `number`, from 0, of so many, in a process of so many shards.
    pub(crate) fn new(number: usize, backends: usize, shards: usize, rules: &Health) -> Pace {
        let (number, backends) = (number as u64, backends.max(1) as u64);
        let shards = shards.max(1) as u64;
        let most = QUESTIONS_PER_SHARD_SECOND * shards.min(QUESTIONS_SHARDS_MAX);
        // In a thousand seconds, so that nothing is lost to rounding.
        let asked = [rules.interval_ms, rules.scrape_interval_ms, MODELS_INTERVAL_MS];
        let questions: u64 = asked.iter().map(|ms| 1_000_000 / (*ms).max(1)).sum();
        let stretch_permille = (backends * questions / most).max(1_000);
        let first_visits_per_second =
            FIRST_VISITS_PER_SHARD_SECOND * shards.min(FIRST_VISITS_SHARDS_MAX);
        Pace { number, backends, stretch_permille, first_visits_per_second }
    }

    /// How long a configured interval is in a fleet of this size.
    pub(crate) fn stretched(&self, interval_ms: u64) -> u64 {
        interval_ms.saturating_mul(self.stretch_permille) / 1_000
    }

    /// How long after the start its first visit is, ms.
    pub(crate) fn first_visit_ms(&self) -> u64 {
        self.number * 1_000 / self.first_visits_per_second
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
            let pace = Pace::new(0, backends, 1, &rules());
            assert_eq!(
                (pace.stretched(2_000), pace.stretched(1_000)),
                (2_000, 1_000),
                "{backends}"
            );
        }
    }

    #[test]
    fn all_backends_together_are_asked_no_more_than_the_bound() {
        for (backends, shards, most) in [
            (200, 1, 250.0),
            (1_000, 1, 250.0),
            (10_000, 1, 250.0),
            (1_000, 4, 1_000.0),
            (10_000, 8, 2_000.0),
            (65_535, 64, 2_000.0),
        ] {
            let pace = Pace::new(0, backends, shards, &rules());
            let asked = [2_000, 1_000, MODELS_INTERVAL_MS];
            let rate: f64 = asked.iter().map(|ms| 1e3 / pace.stretched(*ms) as f64).sum();
            let rate = rate * backends as f64;
            assert!(rate <= most * 1.01 && rate > most * 0.9, "{backends}: {rate} a second");
        }
    }

    #[test]
    fn ten_thousand_backends_are_visited_once_within_ten_seconds_by_two_shards_or_more() {
        let last = |shards| Pace::new(9_999, 10_000, shards, &rules()).first_visit_ms();
        assert_eq!([last(1), last(2), last(64)], [19_998, 9_999, 9_999]);
    }

    #[test]
    fn the_second_visits_lie_evenly_over_the_interval() {
        let times: Vec<u64> =
            (0..1_000).map(|number| Pace::new(number, 1_000, 1, &rules()).phase(1_000)).collect();
        let whole = Pace::new(0, 1_000, 1, &rules()).stretched(1_000);
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
