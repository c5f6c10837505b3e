//! The only place of this crate that reads the clock.

use std::time::Instant;

/// Runs `operation` so many times, folds its results into `checksum`, and returns the nanoseconds it took.
#[expect(clippy::disallowed_methods, reason = "a stop-watch reads the clock")]
pub(crate) fn timed(count: u64, operation: &mut impl FnMut() -> u64, checksum: &mut u64) -> u128 {
    let start = Instant::now();
    for _ in 0..count {
        *checksum = checksum.rotate_left(5) ^ std::hint::black_box(operation());
    }
    start.elapsed().as_nanos()
}

/// A running stop-watch, for operations that are timed one by one.
#[derive(Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts one.
    #[expect(clippy::disallowed_methods, reason = "a stop-watch reads the clock")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Nanoseconds since it was started.
    pub fn ns(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
