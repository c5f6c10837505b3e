//! Where a key belongs: for each key every backend has a place of its own in line, drawn by hash from key and backend
//! (highest random weight: Thaler and Ravishankar 1998). When a backend leaves, only its keys move, and they spread over
//! all others; when one joins, it takes an even share from each. A ring does the same with points to keep, and less
//! evenly. It holds nothing and knows no load.

use crate::BackendId;
use crate::fingerprint::mix;

/// The place of a backend in the key's line: the lowest is the key's home, the next one stands in for it, and so on.
pub(crate) fn place(key: u64, id: BackendId) -> u64 {
    mix(key ^ (u64::from(id.0) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// The first `N` of a key's line out of many, found in one pass.
#[derive(Debug)]
pub(crate) struct First<const N: usize> {
    key: u64,
    found: [(u64, BackendId); N],
    len: usize,
}

impl<const N: usize> First<N> {
    pub(crate) fn new(key: u64) -> Self {
        Self { key, found: [(u64::MAX, BackendId(0)); N], len: 0 }
    }

    /// Lets one more stand in line.
    pub(crate) fn offer(&mut self, id: BackendId) {
        let place = place(self.key, id);
        if self.len == N && place >= self.found[N - 1].0 {
            return;
        }
        let at = self.found[..self.len].partition_point(|(other, _)| *other < place);
        self.len = (self.len + 1).min(N);
        self.found[at..self.len].rotate_right(1);
        self.found[at] = (place, id);
    }

    /// Those found, in line.
    pub(crate) fn ids(&self) -> impl Iterator<Item = BackendId> + '_ {
        self.found[..self.len].iter().map(|(_, id)| *id)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_many_are_those_of_the_lowest_places_in_line() {
        for (key, backends) in [(1, 0), (2, 3), (3, 4), (4, 500)] {
            let mut first = First::<4>::new(key);
            let mut all: Vec<BackendId> = (0..backends).map(BackendId).collect();
            all.iter().for_each(|id| first.offer(*id));
            all.sort_by_key(|id| place(key, *id));
            all.truncate(4);
            assert_eq!(first.ids().collect::<Vec<_>>(), all);
        }
    }

    #[test]
    fn every_backend_is_as_many_keys_home_as_the_next() {
        let mut homes = [0_u32; 40];
        for key in 0..40_000 {
            let home = (0..40).map(BackendId).min_by_key(|id| place(key, *id)).unwrap();
            homes[home.index()] += 1;
        }
        assert!(homes.iter().all(|keys| (850..1150).contains(keys)), "{homes:?}");
    }
}
