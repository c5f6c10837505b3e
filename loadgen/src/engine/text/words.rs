//! The text of simulated replies. It follows from the prompt's hash alone and begins with it, so a client can tell whether a
//! reply is the one to its own prompt and whether any byte of it was changed or mixed with another's. Every token is four
//! bytes of UTF-8, some of them characters that JSON must escape.

/// Bytes a token.
pub const TOKEN_BYTES: usize = 4;

/// Tokens at the start of a reply that spell the prompt's hash, in hexadecimal.
pub const HASH_TOKENS: u32 = 4;

const CONSONANTS: &[u8; 16] = b"bcdfghklmnprstvz";
const VOWELS: &[u8; 4] = b"aeio";

/// The first `tokens` tokens of the reply to the prompt with this hash.
pub fn expected_text(prompt_hash: u64, tokens: u32) -> String {
    let mut text = String::with_capacity(tokens as usize * TOKEN_BYTES);
    for index in 0..tokens {
        push_token(prompt_hash, index, &mut text);
    }
    text
}

/// Appends token `index` (from 0) of that reply.
pub fn push_token(prompt_hash: u64, index: u32, text: &mut String) {
    if index < HASH_TOKENS {
        let quarter = (prompt_hash >> (48 - 16 * index)) & 0xffff;
        for shift in [12, 8, 4, 0] {
            text.push(char::from_digit(((quarter >> shift) & 0xf) as u32, 16).unwrap_or('0'));
        }
        return;
    }
    let dice = mix(prompt_hash ^ (u64::from(index) << 32));
    let one = consonant(dice >> 8);
    let two = vowel(dice >> 12);
    let three = consonant(dice >> 16);
    let four = vowel(dice >> 20);
    match dice & 0x3f {
        0 => text.extend(['\n', '\n', one, two]),
        1 => text.extend(['"', one, two, '"']),
        2 => text.extend([' ', one, 'é']),
        3 => text.extend(['\\', one, '\t', two]),
        4 | 5 => text.extend(['.', ' ', one, two]),
        6 => text.push('🐦'),
        7..=39 => text.extend([' ', one, two, three]),
        _ => text.extend([two, one, four, three]),
    }
}

/// The prompt's hash spelled at the start of a reply, if every following byte is the one that belongs to it. A reply shorter
/// than the hash cannot be told apart: none.
pub fn text_hash(text: &str) -> Option<u64> {
    let head = text.get(..HASH_TOKENS as usize * TOKEN_BYTES)?;
    let hash = u64::from_str_radix(head, 16).ok()?;
    if !text.len().is_multiple_of(TOKEN_BYTES) {
        return None;
    }
    let tokens = u32::try_from(text.len() / TOKEN_BYTES).ok()?;
    (expected_text(hash, tokens) == text).then_some(hash)
}

fn consonant(dice: u64) -> char {
    char::from(CONSONANTS[(dice & 0xf) as usize])
}

fn vowel(dice: u64) -> char {
    char::from(VOWELS[(dice & 0x3) as usize])
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): every input bit reaches every output bit.
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
