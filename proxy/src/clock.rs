//! The one place where the proxy reads time. Everything else takes it from here or as an argument.
//!
//! Time is counted from the first use in the process, so that it fits the index's `Millis`.
#![allow(clippy::disallowed_methods)]

use std::cell::Cell;
use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use index::Millis;

static START: OnceLock<Instant> = OnceLock::new();

thread_local! {
    /// This thread's last reading.
    static LAST: Cell<u64> = const { Cell::new(0) };
}

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
    let since = START.get_or_init(Instant::now).elapsed();
    // Put together here: the library's own way divides numbers of 128 bits.
    let now =
        since.as_secs().wrapping_mul(1_000_000).wrapping_add(u64::from(since.subsec_micros()));
    LAST.set(now);
    Micros(now)
}

/// What this thread last read: for deadlines and for marks that are coarser than a turn of its loop. A shard
/// reads the clock at every tick and whenever a request reaches a phase, so this is never older than a tick.
pub fn recent() -> Micros {
    match LAST.get() {
        0 => now(),
        last => Micros(last),
    }
}

/// Wall-clock milliseconds since 1970, for log lines only.
pub fn wall_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Both clocks read at one moment, to tell the wall-clock time of many others.
#[derive(Debug, Clone, Copy)]
pub struct Wall {
    now: Micros,
    wall_ms: u64,
}

impl Wall {
    /// Reads both.
    pub fn now() -> Wall {
        Wall { now: now(), wall_ms: wall_millis() }
    }

    /// Wall-clock milliseconds of a moment before or after.
    pub fn of(&self, moment: Micros) -> u64 {
        let (ahead, age) = (moment.since(self.now) / 1000, self.now.since(moment) / 1000);
        self.wall_ms.saturating_add(ahead).saturating_sub(age)
    }
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

/// Spells moments as [`rfc3339`] does, many in a row: the calendar is asked once a second.
#[derive(Debug, Default)]
pub struct Stamper {
    second: u64,
    text: String,
}

impl Stamper {
    /// Appends the moment to `out`.
    pub fn append(&mut self, wall_ms: u64, out: &mut Vec<u8>) {
        let (second, ms) = (wall_ms / 1_000, wall_ms % 1_000);
        if second != self.second || self.text.is_empty() {
            self.second = second;
            self.text = rfc3339(wall_ms);
            self.text.truncate(self.text.len().saturating_sub(".000Z".len()));
        }
        out.extend_from_slice(self.text.as_bytes());
        let digit = |of: u64| b'0' + u8::try_from(of % 10).unwrap_or(0);
        out.extend_from_slice(&[b'.', digit(ms / 100), digit(ms / 10), digit(ms), b'Z']);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_moments_is_spelled_like_each_alone() {
        let mut stamper = Stamper::default();
        for ms in [0, 1, 999, 1_000, 999, 1_795_953_697_980, 1_795_953_697_009, u64::MAX / 1_000] {
            let mut out = Vec::new();
            stamper.append(ms, &mut out);
            assert_eq!(String::from_utf8(out), Ok(rfc3339(ms)));
        }
    }

    #[test]
    fn moments_around_a_reading_of_both_clocks_are_told_in_wall_clock_time() {
        let wall = Wall { now: Micros(5_000_000), wall_ms: 1_000_000 };
        assert_eq!(wall.of(Micros(5_000_000)), 1_000_000);
        assert_eq!(wall.of(Micros(4_000_000)), 999_000);
        assert_eq!(wall.of(Micros(5_002_000)), 1_000_002);
    }

    #[test]
    fn what_was_read_last_is_neither_ahead_nor_older_than_that() {
        let before = now();
        let seen = recent();
        assert!(before <= seen && seen <= now());
    }

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
