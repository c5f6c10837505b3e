//! What a walk of the tree found for one prompt: for every backend, how many leading blocks it plausibly holds. A scratch
//! value, reused from decision to decision, so that the walk allocates nothing once it has grown. It never outlives the
//! decision it was filled for.

use crate::{BackendId, BackendSet};

/// How deep each backend's evidence reaches into one prompt.
#[derive(Debug, Default)]
pub struct Overlaps {
    /// Blocks by backend id; zero where nothing is held.
    depths: Vec<u32>,
    /// Backends with a depth above zero.
    holders: BackendSet,
    template_depth: u32,
}

impl Overlaps {
    /// Empty scratch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Leading blocks `id` plausibly holds.
    pub fn depth(&self, id: BackendId) -> u32 {
        self.depths.get(id.index()).copied().unwrap_or(0)
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
        self.holders.iter().map(|id| self.depth(id)).max().unwrap_or(0)
    }

    /// Forgets everything and keeps its room.
    pub fn clear(&mut self) {
        let Self { depths, holders, template_depth } = self;
        holders.iter().for_each(|id| depths[id.index()] = 0);
        holders.clear();
        *template_depth = 0;
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
        *depth = (*depth).max(blocks);
    }

    pub(crate) fn set_template_depth(&mut self, blocks: u32) {
        self.template_depth = blocks;
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
}
