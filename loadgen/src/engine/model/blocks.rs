//! KV memory in blocks: those of running requests are pinned, the rest form a prefix cache that forgets the least recently
//! used first. A finished chain is released tail first, so that a root outlives its leaves. Never larger than its capacity,
//! except for one request that runs alone.

use std::collections::HashMap;

const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Entry {
    id: u64,
    pins: u32,
    /// Computed. A block is allocated at admission and computed later.
    ready: bool,
    older: u32,
    newer: u32,
}

/// The blocks of one engine.
#[derive(Debug)]
pub(super) struct Blocks {
    capacity: usize,
    index: HashMap<u64, u32>,
    entries: Vec<Entry>,
    free: Vec<u32>,
    oldest: u32,
    newest: u32,
    cached: usize,
    /// Blocks with content nobody can find by its id: replies in the making.
    nameless: usize,
    evicted: u64,
}

impl Blocks {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            index: HashMap::new(),
            entries: Vec::new(),
            free: Vec::new(),
            oldest: NONE,
            newest: NONE,
            cached: 0,
            nameless: 0,
            evicted: 0,
        }
    }

    pub(super) fn in_use(&self) -> usize {
        self.index.len() - self.cached + self.nameless
    }

    pub(super) fn cached(&self) -> usize {
        self.cached
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Leading blocks of `ids` that are here and computed.
    pub(super) fn ready_prefix(&self, ids: &[u64]) -> usize {
        ids.iter().take_while(|id| self.entry(**id).is_some_and(|entry| entry.ready)).count()
    }

    /// Whether `ids` and `nameless` more blocks fit beside what is in use now.
    pub(super) fn fit(&self, ids: &[u64], nameless: usize) -> bool {
        let unpinned = ids.iter().filter(|id| self.entry(**id).is_none_or(|e| e.pins == 0)).count();
        self.in_use() + unpinned + nameless <= self.capacity
    }

    /// Holds `ids` for a running request; those not here are allocated, not yet computed.
    pub(super) fn pin(&mut self, ids: &[u64]) {
        for id in ids {
            let at = self.find_or_insert(*id, false);
            if self.entries[at as usize].pins == 0 && self.entries[at as usize].ready {
                self.unlink(at);
            }
            self.entries[at as usize].pins += 1;
        }
        self.evict_surplus();
    }

    pub(super) fn mark_ready(&mut self, ids: &[u64]) {
        for id in ids {
            if let Some(at) = self.index.get(id) {
                self.entries[*at as usize].ready = true;
            }
        }
    }

    /// Lets a running request's blocks go, tail first: computed ones stay as cache, the others are free at once.
    pub(super) fn unpin(&mut self, ids: &[u64]) {
        for id in ids.iter().rev() {
            let Some(&at) = self.index.get(id) else { continue };
            let entry = &mut self.entries[at as usize];
            entry.pins = entry.pins.saturating_sub(1);
            match (entry.pins, entry.ready) {
                (0, true) => self.link_newest(at),
                (0, false) => self.remove(at),
                _ => {}
            }
        }
    }

    /// Lets blocks go and forgets them unless another request runs on them.
    pub(super) fn unpin_and_forget(&mut self, ids: &[u64]) {
        for id in ids {
            let Some(&at) = self.index.get(id) else { continue };
            let entry = &mut self.entries[at as usize];
            entry.pins = entry.pins.saturating_sub(1);
            if entry.pins == 0 {
                self.remove(at);
            }
        }
    }

    /// Names blocks that were nameless until now and keeps them as cache, tail first.
    pub(super) fn keep(&mut self, ids: &[u64]) {
        for id in ids.iter().rev() {
            let at = self.find_or_insert(*id, true);
            let entry = self.entries[at as usize];
            if entry.pins > 0 {
                self.entries[at as usize].ready = true;
            } else {
                self.unlink(at);
                self.link_newest(at);
            }
        }
        self.evict_surplus();
    }

    pub(super) fn take_nameless(&mut self, blocks: usize) {
        self.nameless += blocks;
        self.evict_surplus();
    }

    pub(super) fn give_nameless(&mut self, blocks: usize) {
        self.nameless = self.nameless.saturating_sub(blocks);
    }

    /// Forgets everything that no running request holds.
    pub(super) fn forget_cached(&mut self) {
        while self.oldest != NONE {
            let at = self.oldest;
            self.unlink(at);
            self.remove(at);
        }
    }

    fn entry(&self, id: u64) -> Option<&Entry> {
        self.index.get(&id).map(|at| &self.entries[*at as usize])
    }

    fn find_or_insert(&mut self, id: u64, ready: bool) -> u32 {
        if let Some(at) = self.index.get(&id) {
            return *at;
        }
        let entry = Entry { id, pins: 0, ready, older: NONE, newer: NONE };
        let at = self.free.pop().unwrap_or_else(|| {
            self.entries.push(entry);
            self.entries.len() as u32 - 1
        });
        self.entries[at as usize] = entry;
        self.index.insert(id, at);
        if ready {
            self.link_newest(at);
        }
        at
    }

    fn evict_surplus(&mut self) {
        while self.index.len() + self.nameless > self.capacity && self.oldest != NONE {
            let at = self.oldest;
            self.unlink(at);
            self.remove(at);
            self.evicted += 1;
        }
    }

    /// Forgets an entry that is in no list.
    fn remove(&mut self, at: u32) {
        self.index.remove(&self.entries[at as usize].id);
        self.free.push(at);
    }

    fn link_newest(&mut self, at: u32) {
        let before = self.newest;
        let entry = &mut self.entries[at as usize];
        entry.older = before;
        entry.newer = NONE;
        self.newest = at;
        match before {
            NONE => self.oldest = at,
            older => self.entries[older as usize].newer = at,
        }
        self.cached += 1;
    }

    fn unlink(&mut self, at: u32) {
        let Entry { older, newer, .. } = self.entries[at as usize];
        match older {
            NONE => self.oldest = newer,
            _ => self.entries[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            _ => self.entries[newer as usize].older = older,
        }
        self.cached -= 1;
    }
}
