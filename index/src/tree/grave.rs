//! Versions nobody reads any more, taken apart in steps. A reader that did not look for long held one version against
//! thousands of changes; freeing it in one go would keep the writer from publishing for milliseconds.

use std::collections::VecDeque;

use super::{Children, Tree};

/// Versions to be freed, and what is left of the one being taken apart.
#[derive(Debug, Default)]
pub(crate) struct Grave {
    versions: VecDeque<Tree>,
    below: Vec<Children>,
}

impl Grave {
    /// Takes a version nobody reads.
    pub(crate) fn bury(&mut self, version: Tree) {
        self.versions.push_back(version);
    }

    /// Takes apart so many spans and fans for each version that waits, and as many once more: the longer the queue, the
    /// faster it is worked off.
    pub(crate) fn free_some(&mut self, steps: usize) {
        for _ in 0..steps.saturating_mul(1 + self.versions.len()) {
            match self.below.pop() {
                Some(children) => children.dismantle(&mut self.below),
                None => match self.versions.pop_front() {
                    Some(version) => self.below.extend(version.into_children()),
                    None => return,
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Mark, SpanId};
    use super::*;
    use crate::{BackendId, SequenceHash};

    #[test]
    fn only_what_no_other_version_shares_is_freed_and_not_before_its_turn() {
        let mut tree = Tree::new();
        let mut edges = Vec::new();
        for name in 1..200 {
            let leaf = Tree::leaf(SpanId(name), &[SequenceHash(u64::from(name))], BackendId(0));
            edges.push(Arc::clone(&leaf.edge));
            tree.attach(&[], leaf);
        }
        let mut newer = tree.clone();
        for name in 1..100 {
            newer.leave(&[Mark(name)], BackendId(0));
        }
        let held =
            |edges: &[Arc<[Mark]>]| edges.iter().filter(|edge| Arc::strong_count(edge) > 1).count();
        let mut grave = Grave::default();
        grave.bury(tree);
        grave.free_some(2);
        assert!(held(&edges) > 190, "a few at a time");
        (0..500).for_each(|_| grave.free_some(2));
        assert_eq!(held(&edges), 100);
        drop(newer);
        assert_eq!(held(&edges), 0);
    }
}
