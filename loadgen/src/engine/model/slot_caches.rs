//! What each slot keeps for itself, as llama.cpp's slots do: the blocks of its last request, and nothing of the others'. A
//! request that names no slot gets the idle one whose cache begins most alike, else the one left longest ago.

use std::collections::HashSet;

use super::events::Slot;

/// The share of a prompt that a slot must hold to be chosen for it, in percent: `--slot-prompt-similarity`.
const ALIKE_PERCENT: usize = 10;

/// The slots' own caches. Ids are chained, so a set of them is as good as their order.
#[derive(Debug)]
pub(super) struct SlotCaches {
    held: Vec<HashSet<u64>>,
    left: Vec<u64>,
    turns: u64,
}

impl SlotCaches {
    pub(super) fn new(slots: usize) -> Self {
        Self { held: vec![HashSet::new(); slots], left: vec![0; slots], turns: 0 }
    }

    /// Leading blocks of `ids` that the slot holds.
    pub(super) fn ready_prefix(&self, slot: usize, ids: &[u64]) -> usize {
        ids.iter().take_while(|id| self.held[slot].contains(id)).count()
    }

    /// The idle slot for a prompt.
    pub(super) fn choose(&self, slots: &[Slot], ids: &[u64]) -> Option<usize> {
        let idle = || (0..slots.len()).filter(|slot| slots[*slot].running.is_none());
        let alike = idle().max_by_key(|slot| self.ready_prefix(*slot, ids))?;
        let shared = self.ready_prefix(alike, ids);
        if shared * 100 > ids.len() * ALIKE_PERCENT {
            return Some(alike);
        }
        idle().min_by_key(|slot| self.left[*slot])
    }

    /// The slot holds these blocks from now on, and nothing else.
    pub(super) fn hold(&mut self, slot: usize, ids: impl Iterator<Item = u64>) {
        self.held[slot] = ids.collect();
        self.turns += 1;
        self.left[slot] = self.turns;
    }

    pub(super) fn forget(&mut self, slot: usize) {
        self.held[slot].clear();
    }
}
