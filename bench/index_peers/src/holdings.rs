//! What engines hold: for every backend an exact cache of blocks that forgets the least recently used first. It makes the
//! updates that all indexes are given, and is the truth their answers are judged by.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

/// A map whose keys are hashes already.
pub(crate) type ByHash<V> = HashMap<u64, V, BuildHasherDefault<Itself>>;

/// Hashes a hash as itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Itself(u64);

impl Hasher for Itself {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.0 = self.0.rotate_left(8) ^ u64::from(byte));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// One backend's blocks in the order of their use.
#[derive(Clone, Debug, Default)]
struct Cache {
    used: ByHash<u64>,
    /// Uses in their order; those a later use of the same block has overtaken are passed over.
    order: VecDeque<(u64, u64)>,
    uses: u64,
}

impl Cache {
    /// Uses a prompt's blocks from the last to the first, so that a block is always older than the one it follows.
    fn touch(&mut self, blocks: &[u64]) {
        for &block in blocks.iter().rev() {
            self.uses += 1;
            self.used.insert(block, self.uses);
            self.order.push_back((self.uses, block));
        }
    }

    fn evict(&mut self) -> Option<u64> {
        while let Some((use_, block)) = self.order.pop_front() {
            if self.used.get(&block) == Some(&use_) {
                self.used.remove(&block);
                return Some(block);
            }
        }
        None
    }
}

/// All backends' blocks.
#[derive(Clone, Debug)]
pub(crate) struct Holdings {
    caches: Vec<Cache>,
    holders: ByHash<Vec<u16>>,
    /// Blocks each backend may hold.
    capacity: usize,
    /// Blocks each backend had to compute so far.
    computed: Vec<u64>,
}

/// How a prompt changed what a backend holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// Leading blocks that were there before.
    pub(crate) held: usize,
    /// What had to go, in the order it went.
    pub(crate) evicted: Vec<u64>,
}

impl Holdings {
    pub(crate) fn new(backends: usize, capacity: usize) -> Self {
        Self {
            caches: vec![Cache::default(); backends],
            holders: ByHash::default(),
            capacity,
            computed: vec![0; backends],
        }
    }

    /// Who gets a prompt: the deepest holder, if it holds more than the trace's common first block and has not computed
    /// `slack` blocks more than the idlest; else the idlest.
    pub(crate) fn choose(&self, blocks: &[u64], slack: u64) -> usize {
        let idlest = (0..self.caches.len()).min_by_key(|&at| self.computed[at]).unwrap_or(0);
        let deepest = blocks.iter().rposition(|block| self.holders.contains_key(block));
        let Some(depth) = deepest.filter(|&depth| depth > 0) else { return idlest };
        let best = self.holders[&blocks[depth]].iter().map(|&at| usize::from(at));
        let best = best.min_by_key(|&at| self.computed[at]).unwrap_or(idlest);
        if self.computed[best] > self.computed[idlest] + slack { idlest } else { best }
    }

    /// `backend` computes a prompt.
    pub(crate) fn store(&mut self, backend: usize, blocks: &[u64]) -> Change {
        let Self { caches, holders, capacity, computed } = self;
        let cache = &mut caches[backend];
        let held = blocks.iter().take_while(|block| cache.used.contains_key(block)).count();
        cache.touch(blocks);
        for &block in &blocks[held..] {
            holders.entry(block).or_default().push(backend as u16);
        }
        let over = cache.used.len().saturating_sub(*capacity);
        let evicted: Vec<u64> = (0..over).filter_map(|_| cache.evict()).collect();
        for block in &evicted {
            let Some(who) = holders.get_mut(block) else { continue };
            who.retain(|&at| usize::from(at) != backend);
            if who.is_empty() {
                holders.remove(block);
            }
        }
        computed[backend] += (blocks.len() - held) as u64;
        Change { held, evicted }
    }

    /// Leading blocks each backend holds.
    pub(crate) fn depths(&self, blocks: &[u64]) -> Vec<u32> {
        let depth =
            |cache: &Cache| blocks.iter().take_while(|b| cache.used.contains_key(b)).count();
        self.caches.iter().map(|cache| depth(cache) as u32).collect()
    }

    /// Blocks held, summed over backends.
    pub(crate) fn resident(&self) -> usize {
        self.caches.iter().map(|cache| cache.used.len()).sum()
    }

    /// Blocks held by anybody.
    pub(crate) fn distinct(&self) -> usize {
        self.holders.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_end_of_a_prompt_goes_first() {
        let mut holdings = Holdings::new(1, 4);
        assert_eq!(holdings.store(0, &[1, 2, 3]), Change { held: 0, evicted: vec![] });
        assert_eq!(holdings.store(0, &[1, 4, 5]), Change { held: 1, evicted: vec![3] });
        assert_eq!(holdings.depths(&[1, 2, 3]), [2]);
        assert_eq!(holdings.store(0, &[1, 2, 6]), Change { held: 2, evicted: vec![5] });
        assert_eq!((holdings.resident(), holdings.distinct()), (4, 4));
    }

    #[test]
    fn a_prompt_goes_to_its_deepest_holder_unless_that_has_done_too_much() {
        let mut holdings = Holdings::new(2, 100);
        holdings.store(1, &[1, 2, 3]);
        assert_eq!(holdings.choose(&[1, 2, 9], 3), 1);
        assert_eq!(holdings.choose(&[1, 2, 9], 2), 0);
        assert_eq!(holdings.choose(&[1, 9], 3), 0);
    }
}
