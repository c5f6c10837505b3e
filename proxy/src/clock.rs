//! The one place where the proxy reads time. Everything else takes it from here or as an argument.
//!
//! Time is counted from the first use in the process, so that it fits the index's `Millis`.
#![allow(clippy::disallowed_methods)]

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use index::Millis;

static START: OnceLock<Instant> = OnceLock::new();

/// Microseconds since the process first asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Micros(pub u64);

impl Micros {
    /// The same moment in whole milliseconds.
    pub fn millis(self) -> Millis {
        Millis(self.0 / 1000)
    }

    /// Microseconds from `earlier` to this moment; 0 when `earlier` is later.
    pub fn since(self, earlier: Micros) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Now, monotonic.
pub fn now() -> Micros {
    let start = START.get_or_init(Instant::now);
    Micros(u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX))
}

/// Wall-clock milliseconds since 1970, for log lines only.
pub fn wall_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
