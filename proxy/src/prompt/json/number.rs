//! One spelling for every number: `0.70`, `0.7` and `7e-1` are the same prompt. Decimal digits are kept exactly; nothing
//! is rounded through a float.

/// Numbers with at most this many digits are written without an exponent.
const PLAIN_DIGITS_MAX: usize = 15;

/// Hands on the canonical spelling of a number in pieces.
pub(crate) fn canonical(raw: &[u8], mut take: impl FnMut(&[u8])) {
    if is_plain(raw) || raw.iter().any(|byte| matches!(byte, b'N' | b'I')) {
        return take(raw);
    }
    let number = Decimal::read(raw);
    if number.is_zero() {
        return take(b"0");
    }
    if raw.first() == Some(&b'-') {
        take(b"-");
    }
    number.write(&mut take);
}

/// A short integer without a sign or leading zero: already canonical, and nearly every number there is.
pub(crate) fn is_plain(raw: &[u8]) -> bool {
    raw.len() <= PLAIN_DIGITS_MAX
        && raw.iter().all(u8::is_ascii_digit)
        && (raw.len() == 1 || raw.first() != Some(&b'0'))
}

/// Significant digits, which may have a point inside, and the power of ten of the last one.
struct Decimal<'a> {
    whole: &'a [u8],
    fraction: &'a [u8],
    exponent: i64,
}

impl<'a> Decimal<'a> {
    fn read(raw: &'a [u8]) -> Decimal<'a> {
        let unsigned = raw.strip_prefix(b"-").unwrap_or(raw);
        let (mantissa, power) = cut(unsigned, |byte| byte | 0x20 == b'e');
        let (whole, fraction) = cut(mantissa, |byte| byte == b'.');
        let fraction = trim_end_zeros(fraction);
        let mut number = Decimal { whole, fraction, exponent: exponent(power) };
        number.trim();
        number
    }

    /// Removes zeros that carry no information, from either end.
    fn trim(&mut self) {
        self.exponent = self.exponent.saturating_sub(length(self.fraction));
        if self.fraction.is_empty() {
            let kept = trim_end_zeros(self.whole);
            self.exponent = self.exponent.saturating_add(length(self.whole) - length(kept));
            self.whole = kept;
        }
        self.whole = trim_start_zeros(self.whole);
        if self.whole.is_empty() {
            self.fraction = trim_start_zeros(self.fraction);
        }
    }

    fn is_zero(&self) -> bool {
        self.whole.is_empty() && self.fraction.is_empty()
    }

    fn write(&self, take: &mut impl FnMut(&[u8])) {
        take(self.whole);
        take(self.fraction);
        let digits = self.whole.len() + self.fraction.len();
        let room = PLAIN_DIGITS_MAX.saturating_sub(digits);
        match usize::try_from(self.exponent) {
            Ok(zeros) if zeros <= room => (0..zeros).for_each(|_| take(b"0")),
            _ => {
                take(b"e");
                take(self.exponent.to_string().as_bytes());
            }
        }
    }
}

fn cut(raw: &[u8], at: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    match raw.iter().position(|&byte| at(byte)).and_then(|place| raw.split_at_checked(place)) {
        Some((before, after)) => (before, after.get(1..).unwrap_or_default()),
        None => (raw, b""),
    }
}

fn exponent(power: &[u8]) -> i64 {
    let negative = power.first() == Some(&b'-');
    let digits = power.strip_prefix(b"-").or_else(|| power.strip_prefix(b"+")).unwrap_or(power);
    let size = digits.iter().fold(0i64, |value, digit| {
        value.saturating_mul(10).saturating_add(i64::from(digit.wrapping_sub(b'0')))
    });
    // Far beyond what a body can hold in digits, so that sums with lengths stay exact or saturate the same way.
    let size = size.min(i64::MAX / 4);
    if negative { -size } else { size }
}

fn length(digits: &[u8]) -> i64 {
    i64::try_from(digits.len()).unwrap_or(i64::MAX / 4)
}

fn trim_start_zeros(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
    digits.get(zeros..).unwrap_or_default()
}

fn trim_end_zeros(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().rev().take_while(|&&digit| digit == b'0').count();
    digits.get(..digits.len() - zeros).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(raw: &str) -> String {
        let mut bytes = Vec::new();
        canonical(raw.as_bytes(), |piece| bytes.extend_from_slice(piece));
        String::from_utf8(bytes).expect("digits")
    }

    #[test]
    fn equal_numbers_have_one_spelling() {
        for (spellings, expected) in [
            (&["0.7", "0.70", "7e-1", "7E-01", "0.07e1", "70e-2"][..], "7e-1"),
            (&["1", "1.0", "1e0", "10e-1", "0.1e1", "1E+0"], "1"),
            (&["100", "1e2", "100.00", "0.001e5"], "100"),
            (&["-5", "-5.0", "-50e-1"], "-5"),
            (&["0", "-0", "0.0", "0e9", "-0.000e-7"], "0"),
            (&["1e300", "1.0E300", "10e299"], "1e300"),
            (&["1000000000000000", "1e15"], "1e15"),
            (&["123456789012345", "123456789012345.0"], "123456789012345"),
            (&["1234567890123456789", "1234567890123456789.0"], "1234567890123456789"),
            (&["12.5", "12.50", "125e-1"], "125e-1"),
            (&["0.0025", "2.5e-3", "25e-4"], "25e-4"),
            (&["1.05", "1.050"], "105e-2"),
            (&["NaN"], "NaN"),
            (&["-Infinity"], "-Infinity"),
        ] {
            for raw in spellings {
                assert_eq!(form(raw), expected, "{raw}");
            }
        }
    }

    #[test]
    fn different_numbers_have_different_spellings() {
        let forms = ["1", "10", "11", "0.1", "-1", "1e20", "1e21", "1.01", "0", "101"].map(form);
        for (at, one) in forms.iter().enumerate() {
            assert!(forms.iter().skip(at + 1).all(|other| other != one), "{one}");
        }
    }

    #[test]
    fn absurd_exponents_do_not_overflow() {
        for raw in [
            "1e99999999999999999999999",
            "1e-99999999999999999999999",
            "0.001e-9223372036854775808",
        ] {
            assert!(form(raw).contains('e'), "{raw}");
        }
    }
}
