//! Sizes and durations as people write them: `"64MiB"`, `"2s"`.
//!
//! Only whole numbers with one unit; no fractions, no sums, no unit that could mean two things.

/// Bytes in one of each unit. `kB` and `MB` are decimal, as the standard has it.
const SIZES: [(&str, u64); 7] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
];

/// Milliseconds in one of each unit.
const DURATIONS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("min", 60_000), ("h", 3_600_000)];

/// Reads a size in bytes.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    quantity(text, &SIZES).ok_or_else(|| expected("size", "\"64MiB\"", &SIZES))
}

/// Reads a duration in milliseconds.
pub(crate) fn ms(text: &str) -> Result<u64, String> {
    quantity(text, &DURATIONS).ok_or_else(|| expected("duration", "\"2s\"", &DURATIONS))
}

/// Reads a duration in seconds; one that is no whole number of seconds is refused.
pub(crate) fn seconds(text: &str) -> Result<u64, String> {
    let ms = ms(text)?;
    if ms.is_multiple_of(1_000) { Ok(ms / 1_000) } else { Err("must be whole seconds".to_owned()) }
}

/// A size the way [`bytes`] reads it: with a unit when that is exact, else in bytes.
pub(crate) fn show_bytes(value: u64) -> String {
    let exact = |unit: u64| value != 0 && value.is_multiple_of(unit);
    match value {
        _ if exact(1 << 30) => format!("\"{}GiB\"", value >> 30),
        _ if exact(1 << 20) => format!("\"{}MiB\"", value >> 20),
        _ if exact(1 << 10) => format!("\"{}KiB\"", value >> 10),
        _ => value.to_string(),
    }
}

/// `None` if there is no number, no known unit, or the product overflows.
fn quantity(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

fn expected(what: &str, example: &str, units: &[(&str, u64)]) -> String {
    let names: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
    format!("must be a {what} such as {example} (units: {})", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_are_read_with_their_units() {
        assert_eq!(bytes("64MiB"), Ok(64 << 20));
        assert_eq!(bytes(" 32 KiB "), Ok(32 << 10));
        assert_eq!(bytes("5MB"), Ok(5_000_000));
        assert_eq!(bytes("0B"), Ok(0));
        assert_eq!(ms("2s"), Ok(2_000));
        assert_eq!(ms("10min"), Ok(600_000));
        assert_eq!(seconds("30m"), Ok(1_800));
    }

    #[test]
    fn numbers_without_a_unit_fractions_and_overflows_are_refused() {
        for text in ["", "MiB", "1.5MiB", "-1B", "64", "1 M", "1mib", "99999999999GiB"] {
            assert!(bytes(text).is_err(), "{text:?} was read as a size");
        }
        for text in ["", "s", "2", "1d", "-1s", "18446744073709551615s"] {
            assert!(ms(text).is_err(), "{text:?} was read as a duration");
        }
        assert_eq!(seconds("1500ms"), Err("must be whole seconds".to_owned()));
    }

    #[test]
    fn a_shown_size_reads_back_as_itself() {
        for value in [1 << 30, 64 << 20, 32 << 10, 5 << 30] {
            assert_eq!(bytes(show_bytes(value).trim_matches('"')), Ok(value));
        }
        assert_eq!(show_bytes(1_500), "1500");
        assert_eq!(show_bytes(0), "0");
    }
}
