//! A span: a run of blocks, who holds all of them, and what hangs below. Plain data; dropping one never recurses, since a
//! path may be thousands of spans deep.

use std::sync::Arc;

use super::{Children, Holders, Mark, Node};
use crate::SequenceHash;

/// A span's number in the ledger. The root is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SpanId(pub(crate) u32);

impl SpanId {
    pub(crate) const ROOT: SpanId = SpanId(0);
}

/// A run of blocks with the same holders and no branch inside.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    /// The blocks' marks; empty only at the root. Shared between versions.
    pub(crate) edge: Arc<[Mark]>,
    /// Who holds all of these blocks, and so all above; and the last mark, so that a whole match does not touch the run.
    pub(crate) holders: Holders,
    pub(crate) children: Children,
    /// Ends of prompts below: 1 where nothing hangs below, else the sum over the children.
    pub(crate) tips: u32,
    pub(crate) id: SpanId,
}

// With the two counts of an `Arc` that is 64 bytes, a size allocators have; one word more would cost two.
const _: () = assert!(size_of::<Node>() == 48);

impl Span {
    pub(crate) fn root() -> Self {
        Self {
            edge: Arc::from([]),
            holders: Holders::default(),
            children: Children::default(),
            tips: 1,
            id: SpanId::ROOT,
        }
    }

    /// A span without children; `edge` is not empty.
    pub(crate) fn of(id: SpanId, edge: Arc<[Mark]>, holders: Holders) -> Self {
        let mut span = Self::root();
        (span.id, span.holders) = (id, holders);
        span.set_edge(edge);
        span
    }

    pub(crate) fn set_edge(&mut self, edge: Arc<[Mark]>) {
        self.holders.set_last(edge.last().copied().unwrap_or(Mark(0)));
        self.edge = edge;
    }

    pub(crate) fn first(&self) -> Mark {
        self.edge.first().copied().unwrap_or(Mark(0))
    }

    /// How many leading blocks of `rest` are this span's. Chained hashes make agreement at one block agreement at all
    /// before, so the end is compared first and the point of departure searched by halving.
    pub(crate) fn matched(&self, rest: &[SequenceHash]) -> usize {
        let len = self.edge.len().min(rest.len());
        let Some(end) = len.checked_sub(1) else { return 0 };
        let mine = if len == self.edge.len() { self.holders.last() } else { self.edge[end] };
        if mine == rest[end].into() {
            return len;
        }
        let (mut same, mut differs) = (0, end);
        while same < differs {
            let middle = (same + differs) / 2;
            if self.edge[middle] == rest[middle].into() {
                same = middle + 1;
            } else {
                differs = middle;
            }
        }
        same
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if self.children.is_empty() {
            return;
        }
        let mut below = vec![std::mem::take(&mut self.children)];
        while let Some(children) = below.pop() {
            children.dismantle(&mut below);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::mark::marks;
    use super::*;

    fn chain(range: std::ops::Range<u64>) -> Vec<SequenceHash> {
        range.map(SequenceHash).collect()
    }

    #[test]
    fn the_point_of_departure_is_found_wherever_it_is() {
        let span = Span::of(SpanId(1), marks(&chain(1..33)), Holders::default());
        for shared in 0..=32 {
            let mut rest = chain(1..shared + 1);
            assert_eq!(span.matched(&rest), shared as usize, "a prompt that ends inside");
            rest.extend(chain(1000..1040));
            assert_eq!(span.matched(&rest), shared as usize, "a prompt that turns off");
        }
        assert_eq!(span.matched(&[]), 0);
    }

    #[test]
    fn a_very_deep_path_is_dropped_without_recursion() {
        let mut span = Span::of(SpanId(1), marks(&chain(0..1)), Holders::default());
        for i in 1..1_000_000 {
            let mut above = Span::of(SpanId(1), marks(&chain(i..i + 1)), Holders::default());
            above.children.insert(span);
            span = above;
        }
    }
}
