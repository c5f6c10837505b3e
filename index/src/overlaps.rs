//! What a walk of the tree found for one prompt: for every backend, how many leading blocks it plausibly holds. A scratch
//! value, reused from decision to decision, so that the walk allocates nothing once it has grown. It never outlives the
//! decision it was filled for.

use crate::{BackendId, BackendSet};

/// How deep each backend's evidence reaches into one prompt.
#[derive(Debug, Default)]
pub struct Overlaps {
    /// Blocks by backend id, of those written one by one; zero elsewhere.
    depths: Vec<u32>,
    /// Whose are not zero.
    single: Vec<BackendId>,
    /// Groups written at once, from the shallowest; who is in one is in all before it.
    groups: Vec<Group>,
    /// The groups' bitmaps, one after the other.
    words: Vec<u64>,
    /// Backends with a depth above zero.
    holders: BackendSet,
    deepest: u32,
    template_depth: u32,
}

/// Backends that share a depth, or go deeper.
#[derive(Clone, Copy, Debug)]
struct Group {
    depth: u32,
    from: usize,
    to: usize,
}

impl Overlaps {
    /// Empty scratch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Leading blocks `id` plausibly holds.
    pub fn depth(&self, id: BackendId) -> u32 {
        let single = self.depths.get(id.index()).copied().unwrap_or(0);
        let (word, bit) = (id.index() / 64, 1 << (id.index() % 64));
        let is_in =
            |group: &Group| self.bitmap(group).get(word).is_some_and(|bits: &u64| bits & bit != 0);
        match self.groups.partition_point(is_in).checked_sub(1) {
            Some(deepest) => single.max(self.groups[deepest].depth),
            None => single,
        }
    }

    /// Leading blocks below which many distinct branches hang
    /// ([`TEMPLATE_BRANCHES`](crate::limits::TEMPLATE_BRANCHES)): a template, worth a copy on many backends.
    pub fn template_depth(&self) -> u32 {
        self.template_depth
    }

    /// Backends holding at least the first block.
    pub fn holders(&self) -> &BackendSet {
        &self.holders
    }

    /// The deepest overlap of any backend.
    pub fn deepest(&self) -> u32 {
        self.deepest
    }

    /// Forgets everything and keeps its room.
    pub fn clear(&mut self) {
        let Self { depths, single, groups, words, holders, deepest, template_depth } = self;
        single.drain(..).for_each(|id| depths[id.index()] = 0);
        groups.clear();
        words.clear();
        holders.clear();
        (*deepest, *template_depth) = (0, 0);
    }

    /// Raises the depth of `id` to at least `blocks`.
    pub(crate) fn deepen(&mut self, id: BackendId, blocks: u32) {
        if blocks == 0 {
            return;
        }
        self.holders.insert(id);
        if self.depths.len() <= id.index() {
            self.depths.resize(id.index() + 1, 0);
        }
        let depth = &mut self.depths[id.index()];
        if *depth == 0 {
            self.single.push(id);
        }
        *depth = (*depth).max(blocks);
        self.deepest = self.deepest.max(blocks);
    }

    /// Raises the depth of all of `set` to at least `blocks`: to be called with ever smaller sets, each part of the one
    /// before, and ever more blocks.
    pub(crate) fn deepen_all(&mut self, set: &BackendSet, blocks: u32) {
        if self.groups.is_empty() {
            self.holders.union(set);
        }
        let from = self.words.len();
        self.words.extend_from_slice(set.words());
        self.groups.push(Group { depth: blocks, from, to: self.words.len() });
        self.deepest = self.deepest.max(blocks);
    }

    /// Forgets the backends of `gone`.
    pub(crate) fn hide(&mut self, gone: &BackendSet) {
        if gone.is_empty() {
            return;
        }
        let Self { depths, single, groups, words, holders, .. } = self;
        single.retain(|&id| {
            let stays = !gone.contains(id);
            depths[id.index()] *= u32::from(stays);
            stays
        });
        groups.retain(|group| {
            let bitmap = words.get_mut(group.from..group.to).unwrap_or(&mut []);
            bitmap.iter_mut().zip(gone.words()).for_each(|(bits, gone)| *bits &= !gone);
            bitmap.iter().any(|&bits| bits != 0)
        });
        holders.subtract(gone);
        let single = self.single.iter().map(|&id| self.depth(id)).max();
        let wide = self.groups.last().map(|group| group.depth);
        self.deepest = single.max(wide).unwrap_or(0);
    }

    /// Backends whose depth was found one by one, in no order.
    pub(crate) fn single(&self) -> &[BackendId] {
        &self.single
    }

    /// The bitmaps of those who share a depth with many, from the deepest.
    pub(crate) fn wide(&self) -> impl Iterator<Item = &[u64]> {
        self.groups.iter().rev().map(|group| self.bitmap(group))
    }

    pub(crate) fn set_template_depth(&mut self, blocks: u32) {
        self.template_depth = blocks;
    }

    fn bitmap(&self, group: &Group) -> &[u64] {
        self.words.get(group.from..group.to).unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_finding_wins_whatever_the_order() {
        let mut o = Overlaps::new();
        o.deepen(BackendId(5), 3);
        o.deepen(BackendId(5), 2);
        o.deepen(BackendId(6), 1);
        assert_eq!(
            (o.depth(BackendId(5)), o.depth(BackendId(6)), o.depth(BackendId(7))),
            (3, 1, 0)
        );
        assert_eq!((o.deepest(), o.holders().len()), (3, 2));
    }

    #[test]
    fn clearing_leaves_nothing_behind() {
        let mut o = Overlaps::new();
        o.deepen(BackendId(900), 3);
        o.set_template_depth(2);
        o.clear();
        assert_eq!((o.depth(BackendId(900)), o.template_depth(), o.deepest()), (0, 0, 0));
        assert!(o.holders().is_empty());
    }

    #[test]
    fn what_is_hidden_is_as_if_it_held_nothing() {
        let ids = |range: std::ops::Range<u16>| range.map(BackendId).collect::<BackendSet>();
        let mut o = Overlaps::new();
        o.deepen_all(&ids(0..250), 4);
        o.deepen_all(&ids(0..100), 9);
        o.deepen(BackendId(5), 12);
        o.deepen(BackendId(300), 2);
        o.hide(&ids(0..120));
        let depths = [5, 99, 119, 120, 300].map(|id| o.depth(BackendId(id)));
        assert_eq!(depths, [0, 0, 0, 4, 2]);
        assert_eq!((o.deepest(), o.holders().len()), (4, 131));
        o.hide(&ids(0..301));
        assert_eq!((o.deepest(), o.holders().len()), (0, 0));
    }

    #[test]
    fn groups_and_single_backends_say_the_same_as_one_by_one() {
        let ids = |upto: u16| (0..upto).map(BackendId).collect::<BackendSet>();
        let mut o = Overlaps::new();
        for round in 0..2 {
            o.deepen(BackendId(300), 2);
            o.deepen_all(&ids(250), 4);
            o.deepen_all(&ids(100), 9);
            o.deepen(BackendId(5), 12);
            o.deepen(BackendId(200), 3);
            let depths = [300, 249, 200, 99, 5, 301].map(|id| o.depth(BackendId(id)));
            assert_eq!(depths, [2, 4, 4, 9, 12, 0], "round {round}");
            assert_eq!((o.deepest(), o.holders().len()), (12, 251));
            o.clear();
            assert_eq!((o.depth(BackendId(7)), o.depth(BackendId(5)), o.deepest()), (0, 0, 0));
        }
    }
}
