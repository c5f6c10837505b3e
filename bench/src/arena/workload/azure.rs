//! Azure's LLM inference traces (Patel et al., ISCA 2024): `TIMESTAMP,ContextTokens,GeneratedTokens`. They tell lengths
//! only, so nothing is ever reused: a workload for judging load balance, not placement.

use std::path::Path;

use super::{BLOCK_TOKENS, Request};
use crate::arena::ArenaError;

pub(super) fn read(path: &Path, lines: &[String]) -> Result<Vec<Request>, ArenaError> {
    let mut requests = Vec::with_capacity(lines.len());
    let mut fresh = 0;
    let rows = lines.iter().enumerate().skip(1).filter(|(_, text)| !text.trim().is_empty());
    for (index, text) in rows {
        let (at_s, prompt_tokens, output_tokens) = row(text).ok_or_else(|| {
            ArenaError::line(path, index, "not TIMESTAMP,ContextTokens,GeneratedTokens")
        })?;
        let blocks = prompt_tokens.div_ceil(BLOCK_TOKENS);
        requests.push(Request {
            at_s,
            prompt_tokens: prompt_tokens.max(1),
            output_tokens: output_tokens.max(1),
            blocks: (fresh..fresh + blocks).collect(),
            session: index as u64,
        });
        fresh += blocks;
    }
    Ok(requests)
}

fn row(text: &str) -> Option<(f64, u64, u64)> {
    let mut fields = text.trim().split(',');
    let at_s = seconds(fields.next()?)?;
    Some((at_s, fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// Seconds of a `2023-11-16 18:17:03.9799600`, from some fixed day on.
fn seconds(stamp: &str) -> Option<f64> {
    let (date, time) = stamp.split_once(' ')?;
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
            ("2024-02-28 23:59:59.5", "2024-02-29 00:00:00.5"),
            ("2023-12-31 23:59:59.5", "2024-01-01 00:00:00.5"),
        ] {
            assert_eq!(seconds(b).unwrap() - seconds(a).unwrap(), 1.0);
        }
        assert_eq!(seconds("yesterday"), None);
    }
}
