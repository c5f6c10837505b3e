//! The steps every change is made of, each applied to the tree and to the books at once. The path worked on is in
//! `self.path`, its first marks in `self.route`.

use super::Evidence;
use super::ledger::{HoldId, tick};
use crate::limits::{FUSE_HOLDERS_MAX, SPAN_BLOCKS_MAX};
use crate::tree::{Mark, SpanId, Tree};
use crate::{BackendId, Millis, SequenceHash};

impl Evidence {
    /// Walks down along `blocks` as far as anybody's evidence reaches, and cuts the last span where the prompt leaves it,
    /// so that the path consists of whole spans. Returns the blocks on it.
    pub(super) fn follow_splitting(&mut self, blocks: &[SequenceHash]) -> usize {
        let (matched, inside) = self.follow(blocks);
        if let Some((span, at)) = inside {
            let head = self.split(span, at);
            self.path.push(head);
        }
        matched
    }

    /// Walks down along `blocks`. Leaves the spans matched whole in `self.path`; returns the blocks matched, and the span
    /// the prompt leaves or ends in, with how many of its blocks are the prompt's.
    fn follow(&mut self, blocks: &[SequenceHash]) -> (usize, Option<(SpanId, usize)>) {
        self.path.clear();
        let (mut depth, mut inside) = (0, None);
        let path = &mut self.path;
        self.tree.walk(blocks, |span, matched| {
            depth += matched;
            if matched == span.edge.len() {
                path.push(span.id);
            } else {
                inside = Some((span.id, matched));
            }
        });
        (depth, inside)
    }

    /// `backend` now holds every span of the path.
    pub(super) fn join(&mut self, backend: BackendId) {
        let held = |span: &&SpanId| self.ledger.find(**span, backend).is_some();
        let known = self.path.iter().take_while(held).count();
        if known == self.path.len() {
            return;
        }
        self.route_along_path();
        self.dirty = true;
        let joined = self.tree.join(&self.route, known, backend);
        debug_assert!(joined.is_some(), "the path leads through the tree");
        for at in known..self.path.len() {
            self.ledger.join(self.path[at], backend);
        }
    }

    /// Hangs `blocks`, which nobody holds, below the end of the path, held by `backend`.
    pub(super) fn grow(&mut self, backend: BackendId, blocks: &[SequenceHash]) {
        self.route_along_path();
        for run in blocks.chunks(SPAN_BLOCKS_MAX) {
            let above = self.path.last().copied().unwrap_or(SpanId::ROOT);
            let first = Mark::from(run[0]);
            let span = self.ledger.open(above, first, run.len() as u32, backend);
            let attached = self.tree.attach(&self.route, Tree::leaf(span, run, backend));
            debug_assert!(attached.is_some(), "the path leads through the tree");
            self.dirty = true;
            self.path.push(span);
            self.route.push(first);
        }
    }

    /// `backend` used the path: its holds become the most recent, each more recent than what hangs below it.
    pub(super) fn touch(&mut self, backend: BackendId, at: Millis) {
        for index in (0..self.path.len()).rev() {
            if let Some(hold) = self.ledger.find(self.path[index], backend) {
                self.ledger.touch(hold, tick(at));
            }
        }
    }

    /// Joins neighbours on the path that have become one run again.
    pub(super) fn fuse_path(&mut self) {
        let mut kept = 0;
        for at in 1..self.path.len() {
            let (above, below) = (self.path[kept], self.path[at]);
            if self.can_fuse(above, below) {
                self.route_to(above);
                let fused = self.tree.fuse(&self.route);
                debug_assert!(fused.is_some(), "the books say that there is one child");
                self.ledger.fuse(above, below);
                self.dirty = true;
            } else {
                kept += 1;
            }
            self.path[kept] = below;
        }
        self.path.truncate(kept + 1);
    }

    fn can_fuse(&self, above: SpanId, below: SpanId) -> bool {
        let (upper, lower) = (self.ledger.record(above), self.ledger.record(below));
        (upper.blocks + lower.blocks) as usize <= SPAN_BLOCKS_MAX
            && upper.holds.len() <= FUSE_HOLDERS_MAX
            && self.ledger.is_one(above, below)
    }

    /// Cuts `span` after `at` of its blocks. Returns the upper part; the lower keeps its number.
    pub(super) fn split(&mut self, span: SpanId, at: usize) -> SpanId {
        self.route_to(span);
        self.dirty = true;
        let blocks = self.tree.at(&self.route).map(|span| span.edge.get(at).copied());
        let first = blocks.flatten().unwrap_or(Mark(0));
        let head = self.ledger.split(span, at as u32, first);
        let cut = self.tree.split(&self.route, at, head);
        debug_assert_eq!(cut, Some(first), "the books lead through the tree");
        head
    }

    /// The first span of `backend` on the path of `blocks` that lies beyond `cached` blocks, cut there if need be.
    pub(super) fn first_beyond(
        &mut self,
        backend: BackendId,
        blocks: &[SequenceHash],
        cached: usize,
    ) -> Option<SpanId> {
        let (_, inside) = self.follow(blocks);
        self.path.extend(inside.map(|(span, _)| span));
        let mut depth = 0;
        for at in 0..self.path.len() {
            let span = self.path[at];
            self.ledger.find(span, backend)?;
            let matched = match inside {
                Some((last, matched)) if last == span => matched,
                _ => self.ledger.record(span).blocks as usize,
            };
            if depth + matched > cached {
                let kept = cached - depth.min(cached);
                if kept > 0 {
                    self.split(span, kept);
                }
                return Some(span);
            }
            depth += matched;
        }
        None
    }

    /// Gives up a hold that nothing hangs below. Returns the blocks lost.
    pub(super) fn drop_hold(&mut self, id: HoldId) -> u64 {
        let hold = *self.ledger.hold(id);
        let blocks = self.ledger.record(hold.span).blocks;
        self.route_to(hold.span);
        let left = self.tree.leave(&self.route, hold.backend);
        debug_assert!(left.is_some(), "the books lead through the tree");
        self.ledger.leave(id);
        self.dirty = true;
        u64::from(blocks)
    }

    /// Gives up all but the first `kept` blocks of a hold that nothing hangs below. Returns the blocks lost.
    pub(super) fn drop_tail(&mut self, id: HoldId, kept: u32) -> u64 {
        let span = self.ledger.hold(id).span;
        let record = self.ledger.record(span);
        let lost = u64::from(record.blocks - kept);
        if record.holds.len() > 1 {
            // The lower part keeps the number, so `id` is the hold on it.
            self.split(span, kept as usize);
            return self.drop_hold(id);
        }
        self.route_to(span);
        let cut = self.tree.truncate(&self.route, kept as usize);
        debug_assert!(cut.is_some(), "the books lead through the tree");
        self.ledger.truncate(id, kept);
        self.dirty = true;
        lost
    }

    /// Bytes held by tree and books, estimated: allocations are counted by their number and size, not measured.
    pub(super) fn bytes(&self) -> u64 {
        let spans = self.ledger.records.live() as u64;
        let shared = (self.ledger.holds.live() as u64).saturating_sub(spans);
        let books = (self.ledger.records.bytes() + self.ledger.holds.bytes()) as u64;
        spans * SPAN_BYTES + self.ledger.distinct * 4 + shared * SHARED_HOLD_BYTES + books
    }

    fn route_along_path(&mut self) {
        self.route.clear();
        self.route.extend(self.path.iter().map(|&span| self.ledger.record(span).first));
    }

    /// Leaves the first marks of the spans from below the root down to `span` in `self.route`.
    fn route_to(&mut self, span: SpanId) {
        self.route.clear();
        let mut at = span;
        while at != SpanId::ROOT {
            let record = self.ledger.record(at);
            self.route.push(record.first);
            at = record.parent;
        }
        self.route.reverse();
    }
}

/// A span with its counts, its edge's counts, its place, and its share of the fans.
const SPAN_BYTES: u64 = 64 + 16 + 8 + 16;

/// A hold beyond a span's first: its place in the record's list, with the room lists grow by. The holders' bitmaps are an
/// eighth of a byte a backend, and few.
const SHARED_HOLD_BYTES: u64 = 12;
