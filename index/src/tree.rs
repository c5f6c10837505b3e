//! One compressed radix tree over chained block hashes, for the whole fleet: which backends hold which run of blocks.
//! Immutable once published: the writer edits by copying the path it changes and shares everything else, so publishing
//! costs what a batch touched. It keeps no recency and no budget; that is the ledger's.
//!
//! A span is a run of blocks with the same holders and no branch inside. Hashes are chained, so a whole span matches by
//! comparing its last mark (half a hash), and where a prompt leaves it is found by binary search: a lookup costs the spans
//! on the path, not the blocks.

mod children;
mod edit;
mod grave;
mod holders;
mod mark;
mod span;

use std::sync::Arc;

pub(crate) use children::{Children, Node};
pub(crate) use grave::Grave;
pub(crate) use holders::Holders;
pub(crate) use mark::Mark;
pub(crate) use span::{Span, SpanId};

use crate::limits::{DROPOUTS_SINGLE_MAX, TEMPLATE_BRANCHES};
use crate::{Overlaps, SequenceHash};

/// A tree, or one published version of it: cloning shares everything.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    root: Arc<Span>,
}

impl Tree {
    pub(crate) fn new() -> Self {
        Self { root: Arc::new(Span::root()) }
    }

    pub(crate) fn root(&self) -> &Span {
        &self.root
    }

    /// What hangs below the root, if no other version shares it.
    fn into_children(self) -> Option<Children> {
        let mut root = Arc::into_inner(self.root)?;
        Some(std::mem::take(&mut root.children))
    }

    /// Walks down along `blocks`. Calls `each` for every span entered, with how many of its blocks matched (at least
    /// one); the walk ends after the first that did not match whole.
    pub(crate) fn walk<'t>(
        &'t self,
        blocks: &[SequenceHash],
        mut each: impl FnMut(&'t Span, usize),
    ) {
        let mut span: &Span = &self.root;
        let mut rest = blocks;
        while let Some(child) = rest.first().and_then(|&first| span.children.probe(first.into())) {
            let matched = child.matched(rest);
            if matched == 0 {
                return;
            }
            each(child, matched);
            if matched < child.edge.len() {
                return;
            }
            (span, rest) = (child, &rest[matched..]);
        }
    }

    /// Finds how deep each backend's evidence reaches. Holders only ever drop out on the way down, so each backend is
    /// written once, when it does; where many drop out at once, their bitmap is.
    pub(crate) fn overlaps(&self, blocks: &[SequenceHash], out: &mut Overlaps) {
        out.clear();
        let mut depth = 0;
        let mut above: Option<&Holders> = None;
        self.walk(blocks, |span, matched| {
            if let Some(above) = above {
                drop_out(above, &span.holders, depth, out);
            }
            // A prompt has at most 2^32 blocks: its bytes would not fit in memory otherwise.
            depth += matched as u32;
            above = Some(&span.holders);
            if span.tips >= TEMPLATE_BRANCHES {
                out.set_template_depth(depth);
            }
        });
        if let Some(above) = above {
            drop_out(above, &Holders::default(), depth, out);
        }
    }

    /// The span at the end of `route`, the first marks of the spans from below the root down.
    pub(crate) fn at(&self, route: &[Mark]) -> Option<&Span> {
        let mut span: &Span = &self.root;
        for &first in route {
            span = span.children.probe(first)?;
        }
        Some(span)
    }

    /// The same for editing: copies what published versions share on the way, and adds `tips` to every span passed, the
    /// last one included.
    pub(crate) fn edit(&mut self, route: &[Mark], tips: i32) -> Option<&mut Span> {
        let mut span = Arc::make_mut(&mut self.root);
        span.tips = span.tips.saturating_add_signed(tips);
        for &first in route {
            span = span.children.get_mut(first)?;
            span.tips = span.tips.saturating_add_signed(tips);
        }
        Some(span)
    }
}

/// Those who hold everything down to `depth` and nothing of what follows. Who holds what follows holds all before it, so
/// equal counts are equal sets.
fn drop_out(above: &Holders, below: &Holders, depth: u32, out: &mut Overlaps) {
    match (above.len().saturating_sub(below.len()), above.bitmap()) {
        (0, _) => {}
        (DROPOUTS_SINGLE_MAX.., Some(set)) => out.deepen_all(set, depth),
        _ => above.each_not_in(below, |id| out.deepen(id, depth)),
    }
}
