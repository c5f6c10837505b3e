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

/// Wall-clock milliseconds as RFC 3339 in UTC, for log lines and admin answers. The calendar is the
/// proleptic Gregorian one; days are turned into a date by counting eras of 400 years from March.
pub fn rfc3339(wall_ms: u64) -> String {
    let (days, ms_of_day) = (wall_ms / 86_400_000, wall_ms % 86_400_000);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (s, ms) = (ms_of_day / 1_000, ms_of_day % 1_000);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{ms:03}Z",
        s / 3600,
        s / 60 % 60,
        s % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (ms, date) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (1_795_953_697_980, "2026-11-29T12:01:37.980Z"),
            (4_102_444_800_000, "2100-01-01T00:00:00.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(ms), date);
        }
    }
}
