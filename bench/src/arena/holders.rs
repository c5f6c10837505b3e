//! Who holds which block, over all engines: one bit an engine for each block. Fed exactly (what an engine's own events
//! would tell) or by a router's guesses. It is no part of the product; the models of peers and the oracle look things up
//! in it.

use super::hashing::BlockMap;
use super::memory::Memory;

/// Bits of one word.
const BITS: usize = 64;

/// A bitmap of engines for each block.
#[derive(Debug)]
pub struct Holders {
    engines: usize,
    words: usize,
    rows: BlockMap<u32>,
    bits: Vec<u64>,
    free: Vec<u32>,
    /// Scratch: who holds all blocks so far.
    left: Vec<u64>,
}

impl Holders {
    /// For so many engines.
    pub fn new(engines: usize) -> Self {
        let words = engines.div_ceil(BITS);
        Self {
            engines,
            words,
            rows: BlockMap::default(),
            bits: Vec::new(),
            free: Vec::new(),
            left: Vec::new(),
        }
    }

    /// `engine` holds the block.
    pub fn add(&mut self, id: u64, engine: usize) {
        let row = match self.rows.get(&id) {
            Some(row) => *row,
            None => self.new_row(id),
        };
        self.bits[row as usize * self.words + engine / BITS] |= 1 << (engine % BITS);
    }

    /// `engine` holds it no longer.
    pub fn remove(&mut self, id: u64, engine: usize) {
        let Some(&row) = self.rows.get(&id) else { return };
        let words = &mut self.bits[row as usize * self.words..][..self.words];
        words[engine / BITS] &= !(1 << (engine % BITS));
        if words.iter().all(|word| *word == 0) {
            self.rows.remove(&id);
            self.free.push(row);
        }
    }

    /// Leading blocks each engine holds.
    pub fn overlaps(&mut self, blocks: &[u64], out: &mut Vec<u32>) {
        out.clear();
        out.resize(self.engines, 0);
        self.left.clear();
        self.left.resize(self.words, u64::MAX);
        for (depth, id) in blocks.iter().enumerate() {
            let row = self.rows.get(id).map(|row| *row as usize * self.words);
            let mut any = 0;
            for word in 0..self.words {
                let held = row.map_or(0, |row| self.bits[row + word]);
                let gone = self.left[word] & !held;
                self.left[word] &= held;
                any |= self.left[word];
                settle(out, word, gone, depth as u32);
            }
            if any == 0 {
                return;
            }
        }
        for word in 0..self.words {
            settle(out, word, self.left[word], blocks.len() as u32);
        }
    }

    fn new_row(&mut self, id: u64) -> u32 {
        let row = self.free.pop().unwrap_or_else(|| {
            self.bits.resize(self.bits.len() + self.words, 0);
            (self.bits.len() / self.words.max(1)) as u32 - 1
        });
        self.rows.insert(id, row);
        row
    }
}

/// The engines of these bits hold so many leading blocks.
fn settle(out: &mut [u32], word: usize, mut bits: u64, depth: u32) {
    while bits != 0 {
        let engine = word * BITS + bits.trailing_zeros() as usize;
        if let Some(overlap) = out.get_mut(engine) {
            *overlap = depth;
        }
        bits &= bits - 1;
    }
}

/// A router's guess of what engines hold: a memory for each, fed by the router's own decisions.
#[derive(Debug)]
pub struct Mirror {
    capacities: Vec<usize>,
    memories: Vec<Memory>,
    holders: Holders,
}

impl Mirror {
    /// For engines that are thought to hold so many blocks each.
    pub fn new(capacities: &[usize]) -> Self {
        let memories = capacities.iter().map(|_| Memory::default()).collect();
        let holders = Holders::new(capacities.len());
        Self { capacities: capacities.to_vec(), memories, holders }
    }

    /// `engine` lost what it had.
    pub fn clear(&mut self, engine: usize) {
        let memory = std::mem::take(&mut self.memories[engine]);
        memory.ids().for_each(|id| self.holders.remove(id, engine));
    }

    /// `engine` got a prompt of these blocks.
    pub fn touch(&mut self, engine: usize, blocks: &[u64]) {
        let memory = &mut self.memories[engine];
        for id in blocks.iter().rev() {
            if memory.touch(*id) {
                self.holders.add(*id, engine);
            }
        }
        while memory.len() > self.capacities[engine] {
            let Some(id) = memory.evict() else { return };
            self.holders.remove(id, engine);
        }
    }

    /// Leading blocks each engine is thought to hold.
    pub fn overlaps(&mut self, blocks: &[u64], out: &mut Vec<u32>) {
        self.holders.overlaps(blocks, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_are_leading_runs_over_more_engines_than_a_word_has_bits() {
        let mut holders = Holders::new(130);
        for (engine, blocks) in [(0, &[1, 2, 3][..]), (64, &[1, 3]), (129, &[1, 2])] {
            blocks.iter().for_each(|id| holders.add(*id, engine));
        }
        let mut out = Vec::new();
        holders.overlaps(&[1, 2, 3], &mut out);
        assert_eq!((out[0], out[64], out[129], out[5]), (3, 1, 2, 0));
        holders.remove(2, 0);
        holders.overlaps(&[1, 2, 3], &mut out);
        assert_eq!((out[0], out[129]), (1, 2));
        holders.overlaps(&[], &mut out);
        assert!(out.iter().all(|depth| *depth == 0));
    }
}
