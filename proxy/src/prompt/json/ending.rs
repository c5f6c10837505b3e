//! Where a string ends and how its inside is spelled, found in one pass, 64 bytes at a time: bit masks of quotes and
//! backslashes say which characters are escaped without looking at them one by one (the carry trick of Langdale and
//! Lemire, "Parsing gigabytes of JSON per second", 2019). It never decides what an escape means.

use wide::u8x16;

/// How the inside of a string is spelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// Without a backslash.
    Plain,
    /// With escapes, all of which every writer spells alike.
    Escaped,
    /// With escapes that have more than one spelling: `\u` or `\/` stands in it.
    Odd,
}

/// Bytes looked at together.
const BLOCK: usize = 64;

/// Blocks without quote or backslash after which the next is searched for and not waited for.
const PLAIN_BLOCKS: u32 = 4;

/// Every other bit, from the lowest.
const EVEN: u64 = 0x5555_5555_5555_5555;

/// The offset of the quote that ends a string starting at `start`, and how what stands before it is spelled.
pub(super) fn string_end(body: &[u8], start: usize) -> Option<(usize, Spelling)> {
    let rest = body.get(start..)?;
    // Keys and short values end here.
    if let Some(bytes) = rest.first_chunk::<16>() {
        let first = u8x16::new(*bytes);
        let either = first.simd_eq(u8x16::splat(b'"')) | first.simd_eq(u8x16::splat(b'\\'));
        let at = either.to_bitmask().trailing_zeros() as usize;
        if bytes.get(at) == Some(&b'"') {
            return Some((start + at, Spelling::Plain));
        }
    }
    let mut inside = Inside { carry: 0, plain: 0, spelling: Spelling::Plain };
    let mut at = 0;
    while let Some(block) = rest.get(at..)?.first_chunk::<BLOCK>() {
        if let Some(end) = inside.block(block) {
            return Some((start + at + end, inside.spelling));
        }
        at += BLOCK;
        if inside.plain >= PLAIN_BLOCKS {
            // A picture, or a text without line ends: whole pages may follow in which nothing stands.
            inside.plain = 0;
            at += memchr::memchr2(b'"', b'\\', rest.get(at..)?)?;
        }
    }
    // Zeros behind the body are no quotes.
    let tail = rest.get(at..)?;
    let mut last = [0; BLOCK];
    last.get_mut(..tail.len())?.copy_from_slice(tail);
    let end = inside.block(&last)?;
    Some((start + at + end, inside.spelling))
}

/// How a text between its quotes is spelled.
#[cfg(test)]
pub(crate) fn spelling(raw: &[u8]) -> Spelling {
    let quoted = [raw, b"\""].concat();
    string_end(&quoted, 0).map_or(Spelling::Odd, |(_, spelling)| spelling)
}

/// The part of a string seen so far.
struct Inside {
    /// 1 when the next byte is escaped.
    carry: u64,
    /// Blocks in a row, up to the last one, in which neither quote nor backslash stood.
    plain: u32,
    spelling: Spelling,
}

impl Inside {
    /// Takes 64 bytes in. Returns where among them the string ends.
    fn block(&mut self, block: &[u8; BLOCK]) -> Option<usize> {
        let (quotes, slashes) = (equal(block, b'"'), equal(block, b'\\'));
        // Most blocks of prose hold neither, which one question tells.
        if self.carry == 0 && none(&quotes) && none(&slashes) {
            self.plain += 1;
            return None;
        }
        self.plain = 0;
        let (quotes, slashes) = (mask(&quotes), mask(&slashes));
        if slashes | self.carry == 0 {
            return first(quotes);
        }
        let escaped = self.escaped(slashes);
        let end = first(quotes & !escaped);
        let inside = end.map_or(u64::MAX, |end| before(1 << end));
        if slashes & inside != 0 && self.spelling == Spelling::Plain {
            self.spelling = Spelling::Escaped;
        }
        let odd = mask(&equal(block, b'u')) | mask(&equal(block, b'/'));
        if escaped & inside & odd != 0 {
            self.spelling = Spelling::Odd;
        }
        end
    }

    /// Which bytes follow a backslash that is not escaped itself.
    fn escaped(&mut self, slashes: u64) -> u64 {
        let slashes = slashes & !self.carry;
        let follows = slashes << 1 | self.carry;
        // A run of backslashes that begins at an odd place carries over into the byte behind it, if it is even long.
        let odd_starts = slashes & !EVEN & !follows;
        let (runs, overflow) = odd_starts.overflowing_add(slashes);
        self.carry = u64::from(overflow);
        (EVEN ^ runs << 1) & follows
    }
}

fn first(mask: u64) -> Option<usize> {
    (mask != 0).then(|| mask.trailing_zeros() as usize)
}

/// All bits below the lowest one of `mask`.
fn before(mask: u64) -> u64 {
    mask.wrapping_sub(1) & !mask
}

/// All ones for each byte of the block that equals `byte`.
fn equal(block: &[u8; BLOCK], byte: u8) -> [u8x16; BLOCK / 16] {
    let (parts, _) = block.as_chunks::<16>();
    let byte = u8x16::splat(byte);
    std::array::from_fn(|at| u8x16::new(parts.get(at).copied().unwrap_or_default()).simd_eq(byte))
}

fn none([a, b, c, d]: &[u8x16; BLOCK / 16]) -> bool {
    (*a | *b | *c | *d).to_bitmask() == 0
}

/// A bit for each byte that is all ones.
fn mask(parts: &[u8x16; BLOCK / 16]) -> u64 {
    parts.iter().rev().fold(0, |mask, part| mask << 16 | u64::from(part.to_bitmask()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One byte after the other, as the grammar has it.
    fn naive(body: &[u8]) -> Option<(usize, Spelling)> {
        let (mut at, mut spelling) = (0, Spelling::Plain);
        loop {
            match body.get(at)? {
                b'"' => return Some((at, spelling)),
                b'\\' => {
                    let odd = matches!(body.get(at + 1), Some(b'u' | b'/'));
                    if odd {
                        spelling = Spelling::Odd;
                    } else if spelling == Spelling::Plain {
                        spelling = Spelling::Escaped;
                    }
                    at += 2;
                }
                _ => at += 1,
            }
        }
    }

    #[test]
    fn it_ends_where_reading_byte_by_byte_ends() {
        let mut rng = fastrand::Rng::with_seed(5);
        for _ in 0..20_000 {
            let alphabet = [&b"\\\"u/ab"[..], b"\\\\\\\"u", b"aaaaaaaaaaaaa\\\"u/"][rng.usize(..3)];
            let len = rng.usize(..300);
            let body: Vec<u8> = (0..len).map(|_| alphabet[rng.usize(..alphabet.len())]).collect();
            let start = rng.usize(..=len.min(80));
            let expected = naive(&body[start..]).map(|(end, spelling)| (start + end, spelling));
            assert_eq!(string_end(&body, start), expected, "{:?}", String::from_utf8_lossy(&body));
        }
    }

    #[test]
    fn runs_of_backslashes_are_followed_across_blocks() {
        for before in 0..200 {
            for slashes in 0..140 {
                let body =
                    [&vec![b'a'; before][..], &vec![b'\\'; slashes], &b"\"u\"\\\""[..]].concat();
                assert_eq!(string_end(&body, 0), naive(&body), "{slashes} after {before}");
            }
        }
    }

    #[test]
    fn an_odd_spelling_is_seen_at_every_place_and_an_escaped_backslash_is_none() {
        for before in 0..300 {
            let text = |end: &str| format!("{}\\n{end}", "a".repeat(before));
            assert_eq!(spelling(text(r"\u0041").as_bytes()), Spelling::Odd, "at {before}");
            assert_eq!(spelling(text(r"\/").as_bytes()), Spelling::Odd, "at {before}");
            assert_eq!(spelling(text(r"\\u0041").as_bytes()), Spelling::Escaped, "at {before}");
        }
    }
}
