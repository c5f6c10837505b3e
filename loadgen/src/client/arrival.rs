//! When the requests of an open loop are due, as offsets from its start.
//!
//! Pure: the schedule is fixed by rate and seed before anything is sent, and no answer can move it.

use std::time::Duration;

use fastrand::Rng;

use super::options::Arrivals;
use super::seed;

/// An endless schedule of arrivals.
#[derive(Debug)]
pub(crate) struct Schedule {
    gap_s: f64,
    arrivals: Arrivals,
    rng: Rng,
    count: u64,
    at_s: f64,
}

impl Schedule {
    /// `rate_per_s` must be above zero.
    pub(crate) fn new(rate_per_s: f64, arrivals: Arrivals, rng: Rng) -> Schedule {
        Schedule { gap_s: 1.0 / rate_per_s, arrivals, rng, count: 0, at_s: 0.0 }
    }
}

impl Iterator for Schedule {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.at_s = match self.arrivals {
            // From the count, not by adding up, so that rounding never drifts from the rate.
            Arrivals::Constant => self.count as f64 * self.gap_s,
            Arrivals::Poisson => self.at_s + seed::exponential(&mut self.rng, self.gap_s),
        };
        self.count += 1;
        Duration::try_from_secs_f64(self.at_s).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::super::seed::Stream;
    use super::*;

    fn schedule(arrivals: Arrivals, seed: u64) -> Schedule {
        Schedule::new(200.0, arrivals, seed::rng(seed, Stream::Arrivals, 0))
    }

    #[test]
    fn constant_arrivals_keep_their_distance() {
        let at: Vec<_> = schedule(Arrivals::Constant, 1).take(3).collect();
        assert_eq!(at, [0, 5, 10].map(Duration::from_millis));
    }

    #[test]
    fn poisson_arrivals_offer_the_rate_and_vary() {
        let at: Vec<_> = schedule(Arrivals::Poisson, 5).take(20_000).collect();
        let rate = 20_000.0 / at[19_999].as_secs_f64();
        assert!((rate - 200.0).abs() < 6.0, "rate {rate}");
        assert!(at.windows(2).all(|pair| pair[0] <= pair[1]));
        // An exponential gap is shorter than its mean with probability 1 - 1/e.
        let short = at.windows(2).filter(|pair| (pair[1] - pair[0]).as_secs_f64() < 0.005).count();
        assert!((short as f64 / 20_000.0 - 0.632).abs() < 0.02, "{short} short gaps");
    }

    #[test]
    fn the_same_seed_gives_the_same_schedule() {
        let first: Vec<_> = schedule(Arrivals::Poisson, 9).take(50).collect();
        let second: Vec<_> = schedule(Arrivals::Poisson, 9).take(50).collect();
        assert_eq!(first, second);
    }
}
