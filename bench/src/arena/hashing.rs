//! Maps keyed by block ids, which are well spread after one multiplication and come from the operator's own files: the
//! default hasher would take most of a run's time. Never for keys somebody else may choose.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A map by block id.
pub(crate) type BlockMap<V> = HashMap<u64, V, BuildHasherDefault<IdHasher>>;
/// A set of block ids.
pub(crate) type BlockSet = HashSet<u64, BuildHasherDefault<IdHasher>>;

/// Hashes one number.
#[derive(Debug, Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(self.0 ^ u64::from(*byte));
        }
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = mixed(id);
    }
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood 2014).
pub(crate) fn mixed(id: u64) -> u64 {
    let id = id.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let id = (id ^ (id >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let id = (id ^ (id >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    id ^ (id >> 31)
}
