//! Which bytes may stand where (RFC 9110, section 5). Tables and predicates; nothing here knows a
//! message.

/// `token` characters: what methods, field names, connection options and codings are made of.
const TOKEN: [bool; 256] = token_table();

const fn token_table() -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0_usize;
    while byte < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "the loop ends at 256")]
        #[expect(clippy::indexing_slicing, reason = "evaluated by the compiler only")]
        {
            let mark = matches!(byte as u8, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.');
            let other = matches!(byte as u8, b'^'..=b'`' | b'|' | b'~');
            table[byte] = mark || other || (byte as u8).is_ascii_alphanumeric();
        }
        byte += 1;
    }
    table
}

/// Whether `byte` may be part of a token.
#[inline]
pub(super) fn is_token_byte(byte: u8) -> bool {
    TOKEN.get(usize::from(byte)).copied().unwrap_or(false)
}

/// Whether `bytes` is a token: not empty, and every byte allowed.
#[inline]
pub(super) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&byte| is_token_byte(byte))
}

/// Whether `byte` may be part of a field value: visible, blank, or at least 0x80 (which no reader
/// gives a meaning to).
#[inline]
pub(super) fn is_value_byte(byte: u8) -> bool {
    (byte >= b' ' && byte != 0x7f) || byte == b'\t'
}

/// Whether every byte may be part of a field value.
#[inline]
pub(super) fn is_value(bytes: &[u8]) -> bool {
    // Without an early exit the compiler makes this a vector loop.
    bytes.iter().fold(true, |fine, &byte| fine & is_value_byte(byte))
}

/// `bytes` without the blanks (SP, HTAB) around them.
#[inline]
pub(super) fn trim_blanks(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// A plain decimal number: digits only, no sign, no blank, no leading zero (which some readers take
/// for octal).
pub(super) fn parse_decimal(bytes: &[u8]) -> Option<u64> {
    match bytes {
        [] | [b'0', _, ..] => None,
        _ => bytes.iter().try_fold(0_u64, |sum, &byte| {
            let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
            sum.checked_mul(10)?.checked_add(digit)
        }),
    }
}

/// The elements of a comma-separated list, blanks trimmed, empty ones included.
pub(super) fn list_elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(trim_blanks)
}
