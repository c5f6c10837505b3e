//! Edits of the tree, each a path copy: what published versions share is copied on the way, nothing else. A route is the
//! first mark of each span from below the root down. An edit that does not find its route changes nothing and says so;
//! the ledger knows every route, so that would be a bug.

use std::sync::Arc;

use super::mark::marks;
use super::{Children, Holders, Mark, Node, Span, SpanId, Tree};
use crate::{BackendId, SequenceHash};

impl Tree {
    /// Hangs `leaf` below the span at `route`.
    pub(crate) fn attach(&mut self, route: &[Mark], leaf: Span) -> Option<()> {
        // The first child takes over its parent's being a tip.
        let tips = if self.at(route)?.children.is_empty() { 0 } else { 1 };
        self.edit(route, tips)?.children.insert(leaf);
        Some(())
    }

    /// Adds `id` to the holders of every span of `route` from position `from` on.
    pub(crate) fn join(&mut self, route: &[Mark], from: usize, id: BackendId) -> Option<()> {
        let mut span = Arc::make_mut(&mut self.root);
        for (at, &first) in route.iter().enumerate() {
            span = span.children.get_mut(first)?;
            if at >= from {
                span.holders.insert(id);
            }
        }
        Some(())
    }

    /// Takes `id` out of the holders of the span at `route`; a span nobody holds any more is removed.
    pub(crate) fn leave(&mut self, route: &[Mark], id: BackendId) -> Option<()> {
        let (&first, above) = route.split_last()?;
        let span = self.at(route)?;
        if span.holders.len() > 1 {
            self.edit(route, 0)?.holders.remove(id);
            return Some(());
        }
        debug_assert!(span.children.is_empty(), "what hangs below has holders");
        let tips = if self.at(above)?.children.is_single() { 0 } else { -1 };
        self.edit(above, tips)?.children.remove(first).map(drop)
    }

    /// Cuts the span at `route` in two after `at` blocks. The upper part becomes `head`; the lower keeps its number.
    /// Returns the first mark of the lower part.
    pub(crate) fn split(&mut self, route: &[Mark], at: usize, head: SpanId) -> Option<Mark> {
        let slot = self.slot(route)?;
        let tail = Node::span_mut(slot)?;
        let edge = Arc::clone(&tail.edge);
        let (upper, lower) = edge.split_at_checked(at)?;
        let mut above = Span::of(head, Arc::from(upper), tail.holders.clone());
        above.tips = tail.tips;
        tail.set_edge(Arc::from(lower));
        above.children = Children::one(Arc::clone(slot));
        *slot = Arc::new(Node::Span(above));
        lower.first().copied()
    }

    /// Joins the span at `route` with its only child, which keeps its number.
    pub(crate) fn fuse(&mut self, route: &[Mark]) -> Option<()> {
        let slot = self.slot(route)?;
        let above = Node::span_mut(slot)?;
        let mut below = above.children.take_single()?;
        let tail = Node::span_mut(&mut below)?;
        let edge = above.edge.iter().chain(tail.edge.iter()).copied().collect();
        tail.set_edge(edge);
        *slot = below;
        Some(())
    }

    /// Keeps only the first `blocks` blocks of the span at `route`, below which nothing hangs.
    pub(crate) fn truncate(&mut self, route: &[Mark], blocks: usize) -> Option<()> {
        let span = self.edit(route, 0)?;
        debug_assert!(span.children.is_empty(), "only a leaf is cut short");
        let kept = Arc::from(span.edge.get(..blocks)?);
        span.set_edge(kept);
        Some(())
    }

    /// The place of the span at `route` among its parent's children.
    fn slot(&mut self, route: &[Mark]) -> Option<&mut Arc<Node>> {
        let (&first, above) = route.split_last()?;
        self.edit(above, 0)?.children.place_mut(first)
    }

    /// A leaf holding `edge` on one backend.
    pub(crate) fn leaf(id: SpanId, edge: &[SequenceHash], holder: BackendId) -> Span {
        Span::of(id, marks(edge), Holders::one(holder))
    }
}
