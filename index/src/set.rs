//! A growable bitmap over backend ids: pools, exclusions, the holders of a run of blocks. It never shrinks its storage
//! below what was asked for, and two sets are equal when they hold the same ids, however much room each has.

use crate::BackendId;

const WORD_BITS: usize = u64::BITS as usize;

/// A set of backends.
#[derive(Clone, Default)]
pub struct BackendSet {
    words: Vec<u64>,
    len: u32,
}

impl BackendSet {
    /// An empty set with room for ids below `backends`.
    pub fn with_capacity(backends: usize) -> Self {
        Self { words: Vec::with_capacity(backends.div_ceil(WORD_BITS)), len: 0 }
    }

    /// Adds `id`, growing as needed. True when it was not there.
    pub fn insert(&mut self, id: BackendId) -> bool {
        let (word, bit) = place(id);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        let fresh = self.words[word] & bit == 0;
        self.words[word] |= bit;
        self.len += u32::from(fresh);
        fresh
    }

    /// Takes `id` out. True when it was there.
    pub fn remove(&mut self, id: BackendId) -> bool {
        let (word, bit) = place(id);
        let Some(bits) = self.words.get_mut(word) else { return false };
        let held = *bits & bit != 0;
        *bits &= !bit;
        self.len -= u32::from(held);
        held
    }

    /// Whether `id` is in the set.
    pub fn contains(&self, id: BackendId) -> bool {
        let (word, bit) = place(id);
        self.words.get(word).is_some_and(|bits| bits & bit != 0)
    }

    /// Number of backends in the set.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the set holds nobody.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Empties the set and keeps its room.
    pub fn clear(&mut self) {
        self.words.clear();
        self.len = 0;
    }

    /// The ids, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = BackendId> + '_ {
        self.words.iter().enumerate().flat_map(|(word, &bits)| ids_of(word, bits))
    }

    /// The lowest id.
    pub fn first(&self) -> Option<BackendId> {
        self.iter().next()
    }

    /// Takes out every id of `other`.
    pub fn subtract(&mut self, other: &BackendSet) {
        for (mine, theirs) in self.words.iter_mut().zip(&other.words) {
            *mine &= !theirs;
        }
        self.recount();
    }

    /// Adds every id of `other`.
    pub fn union(&mut self, other: &BackendSet) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        for (mine, theirs) in self.words.iter_mut().zip(&other.words) {
            *mine |= theirs;
        }
        self.recount();
    }

    /// Keeps only the ids also in `other`.
    pub fn intersect(&mut self, other: &BackendSet) {
        self.words.truncate(other.words.len());
        for (mine, theirs) in self.words.iter_mut().zip(&other.words) {
            *mine &= theirs;
        }
        self.recount();
    }

    /// Calls `each` for every id that is not in `other`: 64 backends a step.
    pub(crate) fn each_not_in(&self, other: &BackendSet, mut each: impl FnMut(BackendId)) {
        for (word, &bits) in self.words.iter().enumerate() {
            let theirs = other.words.get(word).copied().unwrap_or(0);
            ids_of(word, bits & !theirs).for_each(&mut each);
        }
    }

    /// The bitmap: 64 ids a word, the lowest first.
    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    fn recount(&mut self) {
        self.len = self.words.iter().map(|bits| bits.count_ones()).sum();
    }
}

fn place(id: BackendId) -> (usize, u64) {
    (id.index() / WORD_BITS, 1 << (id.index() % WORD_BITS))
}

pub(crate) fn ids_of(word: usize, mut bits: u64) -> impl Iterator<Item = BackendId> {
    std::iter::from_fn(move || {
        if bits == 0 {
            return None;
        }
        let at = word * WORD_BITS + bits.trailing_zeros() as usize;
        bits &= bits - 1;
        // Words exist only for ids that were inserted, and those are u16.
        Some(BackendId(at as u16))
    })
}

impl PartialEq for BackendSet {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl Eq for BackendSet {}

impl FromIterator<BackendId> for BackendSet {
    fn from_iter<I: IntoIterator<Item = BackendId>>(ids: I) -> Self {
        let mut set = BackendSet::default();
        for id in ids {
            set.insert(id);
        }
        set
    }
}

impl std::fmt::Debug for BackendSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter().map(|id| id.0)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ids: &[u16]) -> BackendSet {
        ids.iter().map(|&id| BackendId(id)).collect()
    }

    #[test]
    fn insert_and_remove_report_what_changed() {
        let mut s = BackendSet::with_capacity(10);
        assert!(s.insert(BackendId(700)));
        assert!(!s.insert(BackendId(700)));
        assert!(s.contains(BackendId(700)) && !s.contains(BackendId(701)));
        assert!(
            s.remove(BackendId(700)) && !s.remove(BackendId(700)) && !s.remove(BackendId(9000))
        );
        assert!(s.is_empty());
    }

    #[test]
    fn ids_come_out_in_order() {
        let ids: Vec<u16> = set(&[65535, 0, 64, 63, 128]).iter().map(|id| id.0).collect();
        assert_eq!(ids, [0, 63, 64, 128, 65535]);
    }

    #[test]
    fn union_and_intersection_keep_the_count() {
        let mut a = set(&[1, 2, 300]);
        a.union(&set(&[2, 900]));
        assert_eq!((a.len(), &a), (4, &set(&[1, 2, 300, 900])));
        a.subtract(&set(&[1, 7]));
        assert_eq!((a.len(), a.first()), (3, Some(BackendId(2))));
        a.intersect(&set(&[2, 300, 301]));
        assert_eq!((a.len(), &a), (2, &set(&[2, 300])));
    }

    #[test]
    fn sets_of_different_room_are_equal_when_they_hold_the_same() {
        let mut a = set(&[3, 999]);
        a.remove(BackendId(999));
        assert_eq!(a, set(&[3]));
    }

    #[test]
    fn the_difference_of_sets_of_different_room_is_whole() {
        let mut out = Vec::new();
        set(&[1, 2, 70, 500]).each_not_in(&set(&[1, 70]), |id| out.push(id.0));
        set(&[1, 70]).each_not_in(&set(&[1, 2, 70, 500]), |id| out.push(id.0));
        assert_eq!(out, [2, 500]);
    }
}
