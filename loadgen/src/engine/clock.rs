//! The simulated engines' only sources of real time. The model itself takes time as an argument.

use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::{Duration, Instant};

use super::model::Micros;

/// A monotonic clock that starts at zero when its engine does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now() }
    }

    /// Microseconds since the start.
    pub(crate) fn now(self) -> Micros {
        Micros::try_from(self.start.elapsed().as_micros()).unwrap_or(Micros::MAX)
    }

    /// The instant at which `now` will say `at`.
    pub(crate) fn instant(self, at: Micros) -> Instant {
        // A year ahead is never reached, and keeps the addition from overflowing.
        self.start + Duration::from_micros(at.min(31_536_000_000_000))
    }
}

/// Wall-clock time, milliseconds since 1970.
#[allow(clippy::disallowed_methods, reason = "this is the clock module")]
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
