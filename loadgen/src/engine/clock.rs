//! The simulated engines' only sources of real time, and its spellings. The model itself takes time as an argument. Clients read
//! the wall clock here too, to hold it against the stamps of events.

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

/// Wall-clock time, microseconds since 1970.
#[allow(clippy::disallowed_methods, reason = "this is the clock module")]
pub(crate) fn unix_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// A moment of the civil calendar, UTC.
struct Civil {
    year: u64,
    /// From 1.
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
}

/// Howard Hinnant's `civil_from_days`, for times after 1970.
fn civil(unix_s: u64) -> Civil {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    let z = days + 719_468;
    let (era, of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    Civil {
        year: year_of_era + era * 400 + u64::from(month < 3),
        month,
        day: of_year - (153 * shifted + 2) / 5 + 1,
        hour: second / 3_600,
        minute: second / 60 % 60,
        second: second % 60,
    }
}

/// A date as HTTP headers have it (RFC 9110 section 5.6.7).
pub(crate) fn http_date(unix_s: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let Civil { year, month, day, hour, minute, second } = civil(unix_s);
    let weekday = DAYS[(unix_s / 86_400 % 7) as usize];
    let month = MONTHS[(month - 1) as usize];
    format!("{weekday}, {day:02} {month} {year} {hour:02}:{minute:02}:{second:02} GMT")
}

/// A date as Python's `isoformat` prints it, with microseconds and the UTC offset.
pub(crate) fn iso_date(unix_ms: u64) -> String {
    let Civil { year, month, day, hour, minute, second } = civil(unix_ms / 1_000);
    let micros = unix_ms % 1_000 * 1_000;
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}+00:00")
}

#[cfg(test)]
mod tests {
    use super::{http_date, iso_date};

    #[test]
    fn dates_are_printed_as_http_and_python_want_them() {
        assert_eq!(http_date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(http_date(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(http_date(1_709_210_096), "Thu, 29 Feb 2024 12:34:56 GMT");
        assert_eq!(iso_date(1_709_210_096_007), "2024-02-29T12:34:56.007000+00:00");
    }
}
