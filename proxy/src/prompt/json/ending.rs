//! Where a string ends and how its inside is spelled, found in one pass, 64 bytes at a time: bit masks of quotes and
//! backslashes say which characters are escaped without looking at them one by one (the carry trick of Langdale and
//! Lemire, "Parsing gigabytes of JSON per second", 2019). It never decides what an escape means.

use super::vectors;

/// How the inside of a string is spelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// Without a backslash.
    Plain,
    /// With escapes, all of which every writer spells alike.
    Escaped,
    /// With escapes that have more than one spelling, `\u` or `\/`, or with some that JSON does not know.
    Odd,
}

/// Bytes looked at together.
const BLOCK: usize = 64;

pub(super) type Block = [u8; BLOCK];

/// Blocks without quote or backslash after which the next is searched for and not waited for.
const PLAIN_BLOCKS: u32 = 4;

/// Every other bit, from the lowest.
const EVEN: u64 = 0x5555_5555_5555_5555;

/// Finds the ends of a text's strings, one string after the other. What was seen of a block is kept, so that each is looked
/// at once, however many strings stand in it.
#[derive(Clone, Copy)]
pub(super) struct Ends<'b> {
    body: &'b [u8],
    /// Offset behind the block last looked at.
    at: usize,
    seen: Marks,
}

/// What stands in a block, a bit for each byte.
#[derive(Clone, Copy, Default)]
struct Marks {
    /// Quotes that are not escaped.
    quotes: u64,
    /// Backslashes, escaped or not.
    slashes: u64,
    /// What makes a spelling odd.
    odd: u64,
    /// 1 when the byte behind the block is escaped.
    carry: u64,
}

impl<'b> Ends<'b> {
    pub(super) fn of(body: &'b [u8]) -> Ends<'b> {
        Ends { body, at: 0, seen: Marks::default() }
    }

    /// The offset of the quote that ends a string starting at `start`, and how what stands before it is spelled. To be asked
    /// for strings in the order they stand in, between which no backslash stands.
    #[inline(always)]
    pub(super) fn end(&mut self, start: usize) -> Option<(usize, Spelling)> {
        // Keys and short values end in the block they begin in.
        let part = self.seen.part(start);
        if start < self.at && part.quotes != 0 {
            return Some((self.at - BLOCK + part.end(), part.spelling()));
        }
        vectors::end_farther(self, start)
    }

    /// The same, block by block; `masks` says where in a block what stands. In the order quotes, backslashes, odd bytes.
    #[inline(always)]
    pub(super) fn end_by(
        &mut self,
        start: usize,
        masks: impl Fn(&Block) -> [u64; 3],
    ) -> Option<(usize, Spelling)> {
        // A copy stays in registers.
        let mut ends = *self;
        if start >= ends.at {
            ends.look(start - start % BLOCK, 0, &masks)?;
        }
        let mut whole = ends.seen.part(start);
        let mut plain = 0;
        while whole.quotes == 0 {
            plain = if ends.seen.slashes == 0 { plain + 1 } else { 0 };
            let mut next = ends.at;
            if plain >= PLAIN_BLOCKS {
                // A picture, or a text without line ends: whole pages may follow in which nothing stands.
                plain = 0;
                next += memchr::memchr2(b'"', b'\\', ends.body.get(next..)?)?;
                next -= next % BLOCK;
            }
            ends.look(next, whole.carry, &masks)?;
            // Of most blocks everything belongs to the string.
            let part = if ends.seen.quotes == 0 { ends.seen } else { ends.seen.part(0) };
            whole.append(part);
        }
        *self = ends;
        Some((ends.at - BLOCK + whole.end(), whole.spelling()))
    }

    /// Looks at the block at `at`, whose first byte is escaped if `carry` is 1.
    #[inline(always)]
    fn look(&mut self, at: usize, carry: u64, masks: impl Fn(&Block) -> [u64; 3]) -> Option<()> {
        let rest = self.body.get(at..).filter(|rest| !rest.is_empty())?;
        let last;
        let block = match rest.first_chunk() {
            Some(block) => block,
            None => {
                last = padded(rest);
                &last
            }
        };
        self.seen = Marks::of(masks(block), carry);
        self.at = at + BLOCK;
        Some(())
    }
}

/// The bytes behind the last whole block, and zeros, which are no quotes.
#[cold]
fn padded(rest: &[u8]) -> Block {
    let mut block = [0; BLOCK];
    if let Some(room) = block.get_mut(..rest.len()) {
        room.copy_from_slice(rest);
    }
    block
}

/// How a text between its quotes is spelled.
#[cfg(test)]
pub(crate) fn spelling(raw: &[u8]) -> Spelling {
    let quoted = [raw, b"\""].concat();
    Ends::of(&quoted).end(0).map_or(Spelling::Odd, |(_, spelling)| spelling)
}

impl Marks {
    #[inline(always)]
    fn of([quotes, slashes, odd_bytes]: [u64; 3], carry: u64) -> Marks {
        let (escaped, carry) = escaped(slashes, carry);
        // Of all letters that JSON knows behind a backslash only `u` and `/` are odd bytes.
        Marks { quotes: quotes & !escaped, slashes, odd: escaped & odd_bytes, carry }
    }

    /// What belongs to a string that goes on at `from`, or begins there: its end, and what stands before it.
    #[inline(always)]
    fn part(self, from: usize) -> Marks {
        let behind = u64::MAX << (from % BLOCK);
        let quotes = self.quotes & behind;
        let inside = behind & before(quotes);
        Marks { quotes, slashes: self.slashes & inside, odd: self.odd & inside, ..self }
    }

    /// Goes on with the part of the same string in the next block.
    #[inline(always)]
    fn append(&mut self, next: Marks) {
        let (slashes, odd) = (self.slashes | next.slashes, self.odd | next.odd);
        *self = Marks { slashes, odd, ..next };
    }

    fn end(self) -> usize {
        self.quotes.trailing_zeros() as usize
    }

    fn spelling(self) -> Spelling {
        match (self.slashes, self.odd) {
            (_, 1..) => Spelling::Odd,
            (1.., 0) => Spelling::Escaped,
            (0, 0) => Spelling::Plain,
        }
    }
}

/// Which bytes follow a backslash that is not escaped itself, and whether the byte behind the block does.
fn escaped(slashes: u64, carry: u64) -> (u64, u64) {
    let slashes = slashes & !carry;
    let follows = slashes << 1 | carry;
    // A run of backslashes that begins at an odd place carries over into the byte behind it, if it is even long.
    let odd_starts = slashes & !EVEN & !follows;
    let (runs, overflow) = odd_starts.overflowing_add(slashes);
    ((EVEN ^ runs << 1) & follows, u64::from(overflow))
}

/// All bits below the lowest one of `mask`; all of them if there is none.
fn before(mask: u64) -> u64 {
    mask.wrapping_sub(1) & !mask
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
                    // `u`, `/` and letters that no escape has.
                    let odd = body.get(at + 1).is_some_and(|letter| letter % 2 == 1);
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
    fn strings_end_where_reading_byte_by_byte_ends_them() {
        let mut rng = fastrand::Rng::with_seed(5);
        for _ in 0..20_000 {
            let alphabet = [&b"\\\"u/ab"[..], b"\\\\\\\"u", b"aaaaaaaaaaaaa\\\"u/"][rng.usize(..3)];
            let len = rng.usize(..400);
            let mut body: Vec<u8> =
                (0..len).map(|_| alphabet[rng.usize(..alphabet.len())]).collect();
            // Strings with something between them that is neither quote nor backslash.
            let (mut expected, mut at) = (Vec::new(), 0);
            loop {
                let start = (at + rng.usize(..80)).min(len);
                body[at..start].fill(b',');
                let found = naive(&body[start..]).map(|(end, spelling)| (start + end, spelling));
                expected.push((start, found));
                let Some((end, _)) = found else { break };
                at = end + 1;
            }
            let mut ends = Ends::of(&body);
            for (start, found) in expected {
                let body = String::from_utf8_lossy(&body);
                assert_eq!(ends.end(start), found, "at {start} of {body:?}");
            }
        }
    }

    #[test]
    fn runs_of_backslashes_are_followed_across_blocks() {
        for before in 0..200 {
            for slashes in 0..140 {
                let body =
                    [&vec![b'a'; before][..], &vec![b'\\'; slashes], &b"\"u\"\\\""[..]].concat();
                assert_eq!(Ends::of(&body).end(0), naive(&body), "{slashes} after {before}");
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
