//! What a text may come to in tokens while no reply has told yet: a guess from a few looks at its bytes, on the careful
//! side. Once a reply told, nobody asks it; it keeps nothing of what it sees.

use crate::limits::{COLD_BYTES_PER_TOKEN_MILLI, DENSITY_LOOK_BYTES, DENSITY_LOOKS};

/// Thousandths of a byte a token. Numbers, and names with digits in them such as hashes and keys, come to a token a byte in
/// most vocabularies; all else to what is assumed of any text.
pub fn bytes_per_token_milli(body: &[u8]) -> u32 {
    let step = (body.len() / DENSITY_LOOKS).max(DENSITY_LOOK_BYTES);
    let looks = body.chunks(step).map(|part| part.get(..DENSITY_LOOK_BYTES).unwrap_or(part));
    let (seen, dense) = looks.fold((0_u64, 0_u64), |(seen, dense), look| {
        (seen + look.len() as u64, dense + dense_bytes(look))
    });
    let other = (seen - dense) * 1000 / u64::from(COLD_BYTES_PER_TOKEN_MILLI);
    let milli = (seen * 1000).checked_div(dense + other);
    milli.and_then(|milli| u32::try_from(milli).ok()).unwrap_or(COLD_BYTES_PER_TOKEN_MILLI)
}

/// Bytes of its words that have a digit in them.
fn dense_bytes(look: &[u8]) -> u64 {
    let words = look.split(|byte| !byte.is_ascii_alphanumeric());
    let dense = words.filter(|word| word.iter().any(u8::is_ascii_digit));
    dense.map(|word| word.len() as u64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_and_numbers_come_to_a_byte_a_token_and_ordinary_text_to_two() {
        let words = "a garden by the river, and letters; ".repeat(200);
        assert_eq!(bytes_per_token_milli(words.as_bytes()), 2_000);
        let hashes = "3f9a01cc71b2e4d8 ".repeat(200);
        assert!((1_000..1_100).contains(&bytes_per_token_milli(hashes.as_bytes())));
        let settings = "garden=37 river=4 ".repeat(200);
        assert!((1_600..2_000).contains(&bytes_per_token_milli(settings.as_bytes())));
        let half = [words.as_str(), &"7".repeat(words.len())].concat();
        assert!((1_250..1_450).contains(&bytes_per_token_milli(half.as_bytes())));
    }

    #[test]
    fn bodies_of_any_length_are_looked_at() {
        assert_eq!(bytes_per_token_milli(b""), 2_000);
        assert_eq!(bytes_per_token_milli(b"7"), 1_000);
        let text = "ab12 yz ".repeat(400);
        for length in 0..3_000 {
            let milli = bytes_per_token_milli(&text.as_bytes()[..length]);
            assert!((1_000..=2_000).contains(&milli), "{length}: {milli}");
        }
    }
}
