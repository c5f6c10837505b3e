//! What the tree keeps of a block's hash: half of it. Half the memory, and a comparison that is wrong once in four thousand
//! million: then a prompt is believed to be held a run further than it is, one decision may be worse for it, and nothing
//! else follows. Nobody outside can bring it about, since hashes are keyed.
//!
//! The tree compares nothing but marks, its fans' keys included. So it is consistent in itself whatever collides: two runs
//! that begin with one mark are one run up to where their marks differ.

use crate::SequenceHash;

/// Half of a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark(pub(crate) u32);

impl From<SequenceHash> for Mark {
    fn from(hash: SequenceHash) -> Self {
        // Both halves, for whoever hands in hashes that are not spread over all bits.
        Self((hash.0 ^ hash.0 >> 32) as u32)
    }
}

/// The marks of a run of blocks.
pub(crate) fn marks(blocks: &[SequenceHash]) -> std::sync::Arc<[Mark]> {
    blocks.iter().map(|&hash| Mark::from(hash)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_of_a_hash_matters_to_its_mark() {
        let whole = Mark::from(SequenceHash(0x0123_4567_89ab_cdef));
        for bit in 0..64 {
            assert_ne!(Mark::from(SequenceHash(0x0123_4567_89ab_cdef ^ 1 << bit)), whole, "{bit}");
        }
    }
}
