//! Block memory that forgets the least recently used: blocks are pinned by running requests, or idle in order of use. An
//! engine's cache is one, and so is a router's guess of it. It never evicts a pinned block, nor anything by itself.

use super::hashing::BlockMap;

/// No neighbour.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Entry {
    id: u64,
    pins: u32,
    older: u32,
    newer: u32,
}

/// Blocks, pinned or idle.
#[derive(Debug)]
pub struct Memory {
    places: BlockMap<u32>,
    entries: Vec<Entry>,
    free: Vec<u32>,
    oldest: u32,
    newest: u32,
    idle: usize,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            places: BlockMap::default(),
            entries: Vec::new(),
            free: Vec::new(),
            oldest: NONE,
            newest: NONE,
            idle: 0,
        }
    }
}

impl Memory {
    /// Whether a block is held.
    pub fn holds(&self, id: u64) -> bool {
        self.places.contains_key(&id)
    }

    /// Whether a block is held and nobody uses it.
    pub fn holds_idle(&self, id: u64) -> bool {
        self.places.get(&id).is_some_and(|place| self.entries[*place as usize].pins == 0)
    }

    /// Leading blocks held.
    pub fn overlap(&self, blocks: &[u64]) -> usize {
        blocks.iter().take_while(|id| self.holds(**id)).count()
    }

    /// Blocks held that nobody uses.
    pub fn idle(&self) -> usize {
        self.idle
    }

    /// Blocks in use.
    pub fn pinned(&self) -> usize {
        self.places.len() - self.idle
    }

    /// Blocks held.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Uses a block once more. True if it was not held before.
    pub fn pin(&mut self, id: u64) -> bool {
        let Some(&place) = self.places.get(&id) else {
            self.insert(id, 1);
            return true;
        };
        if self.entries[place as usize].pins == 0 {
            self.unlink(place);
        }
        self.entries[place as usize].pins += 1;
        false
    }

    /// Uses a block once less; at last it is idle, the most recent one.
    pub fn unpin(&mut self, id: u64) {
        let Some(&place) = self.places.get(&id) else { return };
        let pins = &mut self.entries[place as usize].pins;
        *pins = pins.saturating_sub(1);
        if *pins == 0 {
            self.link(place);
        }
    }

    /// Forgets a block that nobody uses. True if there was one.
    pub fn drop_idle(&mut self, id: u64) -> bool {
        if !self.holds_idle(id) {
            return false;
        }
        let place = self.places.remove(&id);
        place.into_iter().for_each(|place| {
            self.unlink(place);
            self.free.push(place);
        });
        true
    }

    /// Notes a use that does not last. True if the block was not held before.
    pub fn touch(&mut self, id: u64) -> bool {
        let fresh = self.pin(id);
        self.unpin(id);
        fresh
    }

    /// Forgets the idle block whose use is longest ago.
    pub fn evict(&mut self) -> Option<u64> {
        let place = self.oldest;
        let id = self.entries.get(place as usize)?.id;
        self.unlink(place);
        self.places.remove(&id);
        self.free.push(place);
        Some(id)
    }

    /// The blocks held, in no order.
    pub fn ids(&self) -> impl Iterator<Item = u64> + '_ {
        self.places.keys().copied()
    }

    fn insert(&mut self, id: u64, pins: u32) {
        let entry = Entry { id, pins, older: NONE, newer: NONE };
        let place = match self.free.pop() {
            Some(place) => {
                self.entries[place as usize] = entry;
                place
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        self.places.insert(id, place);
    }

    fn link(&mut self, place: u32) {
        let entry = &mut self.entries[place as usize];
        (entry.older, entry.newer) = (self.newest, NONE);
        match self.entries.get_mut(self.newest as usize) {
            Some(before) => before.newer = place,
            None => self.oldest = place,
        }
        self.newest = place;
        self.idle += 1;
    }

    fn unlink(&mut self, place: u32) {
        let Entry { older, newer, .. } = self.entries[place as usize];
        match self.entries.get_mut(older as usize) {
            Some(entry) => entry.newer = newer,
            None => self.oldest = newer,
        }
        match self.entries.get_mut(newer as usize) {
            Some(entry) => entry.older = older,
            None => self.newest = older,
        }
        self.idle -= 1;
    }
}

/// Leading-run reuse of one memory that all prompts share, without load: blocks reused and blocks in all. `capacity` of
/// `None` never forgets.
pub fn reuse<'b>(
    prompts: impl Iterator<Item = &'b [u64]>,
    capacity: Option<usize>,
) -> (usize, usize) {
    let mut memory = Memory::default();
    let (mut reused, mut total) = (0, 0);
    for blocks in prompts {
        reused += memory.overlap(blocks);
        total += blocks.len();
        for id in blocks.iter().rev() {
            memory.touch(*id);
        }
        while capacity.is_some_and(|most| memory.len() > most) {
            memory.evict();
        }
    }
    (reused, total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_unused_goes_first_and_nothing_in_use_ever() {
        let mut memory = Memory::default();
        assert!([1, 2, 3].iter().all(|id| memory.touch(*id)));
        assert!(!memory.pin(2));
        assert!(!memory.touch(1));
        assert_eq!((memory.idle(), memory.pinned()), (2, 1));
        assert_eq!([memory.evict(), memory.evict(), memory.evict()], [Some(3), Some(1), None]);
        memory.unpin(2);
        assert_eq!((memory.evict(), memory.is_empty()), (Some(2), true));
    }
}
