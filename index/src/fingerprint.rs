//! A prompt's fingerprint: its canonical bytes cut into fixed blocks, each hashed with the hash of everything before it.
//! Hash i therefore stands for the whole prefix up to block i, and two chains that agree at i agree at every block before.
//! It keeps hashes only, never a byte of the prompt beyond the few blocks being gathered, and knows no dialect: what is
//! canonical is the caller's business.
//!
//! Formula: `h[-1]` = the key, folded with every root part; `h[i] = mix(h[i-1] ^ xxh3_64(block i, secret))`, where `mix` is the
//! finaliser of SplitMix64 and the secret of xxh3 what that generator gives from the key on. Blocks are hashed apart from one
//! another and chained by `mix` alone, so that a processor works on several at once: with each hash the seed of the next, a
//! block costs what all of its hash's steps take one after the other.

use xxhash_rust::xxh3::{xxh3_64_with_secret, xxh3_64_with_seed};

use crate::{ConversationKey, SequenceHash};

/// The secret all hashes are keyed with. Replicas that share evidence need the same one; otherwise it is random.
#[derive(Clone, Copy)]
pub struct FingerprintKey {
    key: u64,
    blocks: Secret,
}

/// What xxh3 mixes a block with. A secret costs nothing more than the default one; a seed is added to it at each use.
type Secret = [u8; 8 * SECRET_WORDS];

/// As many as xxh3's own secret has; it asks for 17 at least.
const SECRET_WORDS: usize = 24;

/// What SplitMix64 adds from one number to the next (Steele, Lea, Flood 2014).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Blocks gathered of pushes that are shorter, before they are hashed together.
const GATHERED_BLOCKS: usize = 16;

impl FingerprintKey {
    /// Wraps the secret.
    pub fn new(secret: u64) -> Self {
        let mut blocks = [0; _];
        let mut state = secret;
        for word in blocks.as_chunks_mut().0 {
            state = state.wrapping_add(GOLDEN);
            *word = mix(state).to_le_bytes();
        }
        Self { key: secret, blocks }
    }
}

impl std::fmt::Debug for FingerprintKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FingerprintKey(..)")
    }
}

/// The hashes of a prompt's whole blocks, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint {
    /// One hash a whole block. A last partial block is not in it: an engine caches whole blocks only.
    pub blocks: Vec<SequenceHash>,
    /// Canonical bytes pushed, the last partial block included, root parts not.
    pub canonical_bytes: u64,
    /// Bytes a block.
    pub block_bytes: u32,
}

/// Builds a [`Fingerprint`] from a stream of canonical bytes. How the stream is split into pushes changes nothing.
pub struct Fingerprinter {
    secret: Secret,
    chain: u64,
    blocks: Vec<SequenceHash>,
    /// Whole blocks not hashed yet, and one that is not whole yet.
    gathered: Vec<u8>,
    block_bytes: usize,
    canonical_bytes: u64,
}

impl Fingerprinter {
    /// Starts a chain under `key` with blocks of `block_bytes` (0 is read as 1).
    pub fn new(key: FingerprintKey, block_bytes: u32) -> Self {
        Self {
            secret: key.blocks,
            chain: key.key,
            blocks: Vec::new(),
            gathered: Vec::new(),
            block_bytes: block_bytes.max(1) as usize,
            canonical_bytes: 0,
        }
    }

    /// Makes room for a prompt of so many bytes, so that pushing it allocates nothing.
    #[must_use]
    pub fn expecting(mut self, bytes: usize) -> Self {
        self.blocks.reserve(bytes / self.block_bytes);
        self.gathered.reserve(self.gathered_max().min(bytes));
        self
    }

    /// Folds a part of the chain's root in: model, tenant, adapter. Parts are kept apart by their lengths, so ("ab", "c")
    /// and ("a", "bc") differ. To be called before the first [`push`](Self::push).
    pub fn root(&mut self, part: &[u8]) {
        debug_assert!(self.canonical_bytes == 0, "the root comes before the prompt");
        self.chain = fold(self.chain, part);
    }

    /// Appends canonical bytes.
    #[inline(always)]
    pub fn push(&mut self, bytes: &[u8]) {
        self.canonical_bytes += bytes.len() as u64;
        // Most pushes are a few bytes.
        if bytes.len() < self.gathered_max() - self.gathered.len() {
            self.gathered.extend_from_slice(bytes);
        } else {
            self.complete(bytes);
        }
    }

    fn gathered_max(&self) -> usize {
        GATHERED_BLOCKS * self.block_bytes
    }

    #[inline(never)]
    fn complete(&mut self, bytes: &[u8]) {
        let gathered = self.gathered.len();
        let missing = gathered.next_multiple_of(self.block_bytes) - gathered;
        let (head, rest) = bytes.split_at(missing.min(bytes.len()));
        self.gathered.extend_from_slice(head);
        self.hash_gathered();
        let (blocks, rest) = rest.split_at(rest.len() - rest.len() % self.block_bytes);
        self.hash(blocks);
        self.gathered.extend_from_slice(rest);
    }

    /// Hashes what was gathered, up to the last whole block.
    fn hash_gathered(&mut self) {
        let mut gathered = std::mem::take(&mut self.gathered);
        self.hash(&gathered);
        // What is kept is its memory.
        gathered.clear();
        self.gathered = gathered;
    }

    /// Hashes whole blocks; a rest that is none is left out.
    fn hash(&mut self, blocks: &[u8]) {
        let Self { ref secret, mut chain, .. } = *self;
        self.blocks.extend(blocks.chunks_exact(self.block_bytes).map(|block| {
            chain = mix(chain ^ xxh3_64_with_secret(block, secret));
            SequenceHash(chain)
        }));
        self.chain = chain;
    }

    /// The fingerprint of everything pushed.
    pub fn finish(mut self) -> Fingerprint {
        self.hash_gathered();
        // Of a body that was mostly pictures little is left.
        if self.blocks.len() < self.blocks.capacity() / 2 {
            self.blocks.shrink_to_fit();
        }
        Fingerprint {
            blocks: self.blocks,
            canonical_bytes: self.canonical_bytes,
            block_bytes: self.block_bytes as u32,
        }
    }
}

impl std::fmt::Debug for Fingerprinter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Neither the chain, which starts as the key, nor the partial block, which is prompt text.
        f.debug_struct("Fingerprinter").field("canonical_bytes", &self.canonical_bytes).finish()
    }
}

/// The key of a conversation named `id` within `scope` (tenant, model): equal names in two scopes are two conversations.
pub fn conversation_key(key: FingerprintKey, scope: &[u8], id: &[u8]) -> ConversationKey {
    ConversationKey(fold(fold(mix(key.key ^ CONVERSATION), scope), id))
}

/// Sets conversation keys apart from prompt chains under the same secret ("conversa" in ASCII).
const CONVERSATION: u64 = 0x636f_6e76_6572_7361;

fn fold(chain: u64, part: &[u8]) -> u64 {
    xxh3_64_with_seed(part, mix(chain ^ mix(part.len() as u64 + 1)))
}

/// SplitMix64's finaliser (Steele, Lea, Flood 2014): a bijection in which every input bit reaches every output bit.
pub(crate) fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(GOLDEN);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: u64 = 7;

    fn of(block_bytes: u32, root: &[&[u8]], pushes: &[&[u8]]) -> Fingerprint {
        let mut f = Fingerprinter::new(FingerprintKey::new(KEY), block_bytes);
        root.iter().for_each(|part| f.root(part));
        pushes.iter().for_each(|bytes| f.push(bytes));
        f.finish()
    }

    /// One block after the other, as the formula has it.
    fn naive(root: &[u8], text: &[u8], block_bytes: usize) -> Vec<SequenceHash> {
        let key = FingerprintKey::new(KEY);
        let mut chain = fold(KEY, root);
        let mut next = |block| {
            chain = mix(chain ^ xxh3_64_with_secret(block, &key.blocks));
            SequenceHash(chain)
        };
        let whole = text.chunks(block_bytes).filter(|block| block.len() == block_bytes);
        whole.map(&mut next).collect()
    }

    #[test]
    fn any_split_of_the_stream_gives_the_fingerprint_of_the_formula() {
        let mut rng = fastrand::Rng::with_seed(3);
        for round in 0..400 {
            let (block_bytes, len) = (rng.u32(1..200), rng.usize(..8_000));
            let text: Vec<u8> = (0..len as u32).map(|i| (i * 31 % 251) as u8).collect();
            let mut f = Fingerprinter::new(FingerprintKey::new(KEY), block_bytes);
            f.root(b"m");
            let piece_max = [5, 150, 5_000][round % 3];
            let mut rest = &text[..];
            while !rest.is_empty() {
                let (head, tail) = rest.split_at(rng.usize(0..=rest.len().min(piece_max)));
                f.push(head);
                rest = tail;
            }
            let (found, expected) = (f.finish(), naive(b"m", &text, block_bytes as usize));
            assert_eq!(found.blocks, expected, "{len} bytes in blocks of {block_bytes}");
            assert_eq!(found.canonical_bytes, len as u64);
        }
    }

    #[test]
    fn equal_prefixes_share_hashes_up_to_the_first_difference_and_none_after() {
        let (a, mut b) = (vec![1u8; 640], vec![1u8; 640]);
        b[200] = 2;
        let (a, b) = (of(64, &[], &[&a]), of(64, &[], &[&b]));
        assert_eq!(a.blocks[..3], b.blocks[..3]);
        assert!((3..10).all(|i| a.blocks[i] != b.blocks[i]));
    }

    #[test]
    fn equal_blocks_at_different_depths_differ() {
        let f = of(64, &[], &[&[1u8; 640]]);
        let distinct: std::collections::HashSet<_> = f.blocks.iter().collect();
        assert_eq!(distinct.len(), 10);
    }

    #[test]
    fn root_parts_are_kept_apart_and_so_are_keys() {
        let text = [9u8; 64];
        let chains = [
            of(64, &[b"ab", b"c"], &[&text]),
            of(64, &[b"a", b"bc"], &[&text]),
            of(64, &[b"abc"], &[&text]),
            of(64, &[b"abc", b""], &[&text]),
            of(64, &[], &[&text]),
        ];
        let mut firsts: Vec<u64> = chains.iter().map(|f| f.blocks[0].0).collect();
        let mut other = Fingerprinter::new(FingerprintKey::new(8), 64);
        other.push(&text);
        firsts.push(other.finish().blocks[0].0);
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts.len(), 6);
    }

    #[test]
    fn a_last_partial_block_has_no_hash() {
        assert_eq!(of(64, &[], &[&[1; 63]]).blocks.len(), 0);
        assert_eq!(of(64, &[], &[&[1; 64]]).blocks.len(), 1);
        assert_eq!(of(64, &[], &[&[1; 65]]).blocks.len(), 1);
    }

    #[test]
    fn conversations_are_told_apart_by_scope() {
        let key = FingerprintKey::new(KEY);
        let keys = [
            conversation_key(key, b"t1", b"c"),
            conversation_key(key, b"t2", b"c"),
            conversation_key(key, b"t1c", b""),
            conversation_key(key, b"", b"t1c"),
        ];
        assert!((0..4).all(|i| (0..i).all(|j| keys[i] != keys[j])));
    }

    #[test]
    fn nothing_printed_tells_the_secret_or_the_prompt() {
        let mut f = Fingerprinter::new(FingerprintKey::new(123_456_789), 64);
        f.push(b"my secret");
        let printed = format!("{:?} {f:?}", FingerprintKey::new(123_456_789));
        assert!(!printed.contains("123456789") && !printed.contains("109"), "{printed}");
    }
}
