//! Time stamps of traces as seconds. Leap seconds and time zones are none of its business.

/// Seconds of a `2023-11-16 18:17:03.9799600`, or of a `2026-11-29T18:15:19.123Z`, from some fixed day on.
pub(super) fn seconds(stamp: &str) -> Option<f64> {
    let (date, time) = stamp.trim_end_matches('Z').split_once([' ', 'T'])?;
    let mut date = date.split('-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let mut time = time.split(':').map(|part| part.parse::<f64>().ok());
    let (hours, minutes, seconds) = (time.next()??, time.next()??, time.next()??);
    let day = days(year, month, day) as f64;
    Some(((day * 24.0 + hours) * 60.0 + minutes) * 60.0 + seconds)
}

/// Days since the first of March of year 0, in the proleptic Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    365 * year + year / 4 - year / 100 + year / 400 + (month * 306 + 5) / 10 + day - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_a_second_apart_over_a_month_and_a_leap_day() {
        for (a, b) in [
            ("2023-11-30 23:59:59.5", "2023-12-01 00:00:00.5"),
            ("2024-02-28T23:59:59.5Z", "2024-02-29T00:00:00.5Z"),
            ("2023-12-31 23:59:59.5", "2024-01-01 00:00:00.5"),
        ] {
            assert_eq!(seconds(b).unwrap() - seconds(a).unwrap(), 1.0);
        }
        assert_eq!(seconds("yesterday"), None);
    }
}
