//! What is believed, told path by path to whoever takes over, and taken in there: the most recently used part of it, so
//! much as was asked for. Telling changes nothing. It tells marks, which is all the tree keeps of a hash; they stand for
//! the same blocks wherever hashes are made with the same key.

use std::collections::BinaryHeap;

use super::Evidence;
use super::ledger::HoldId;
use crate::limits::PROMPT_BLOCKS_MAX;
use crate::tree::{Mark, SpanId};
use crate::{BackendId, Millis, SequenceHash};

/// How much is told at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Telling {
    /// Paths.
    pub paths_max: usize,
    /// Blocks of all of them together, what they share counted each time.
    pub blocks_max: u64,
}

impl Evidence {
    /// Calls `each` for the paths that were used last, over all backends, the least recently used of these first.
    pub(crate) fn tell(
        &self,
        most: Telling,
        mut each: impl FnMut(BackendId, &[SequenceHash], Millis),
    ) {
        let (mut route, mut blocks) = (Vec::new(), Vec::new());
        for &id in self.last_used(most).iter().rev() {
            let hold = self.ledger.hold(id);
            self.blocks_to(hold.span, &mut route, &mut blocks);
            each(hold.backend, &blocks, Millis(u64::from(hold.at) << 6));
        }
    }

    /// `backend` held these leading blocks when another told so. Nobody has used them here, so nothing is learned of how
    /// much it can hold.
    pub(crate) fn inherit(&mut self, backend: BackendId, blocks: &[SequenceHash], at: Millis) {
        let blocks = &blocks[..blocks.len().min(PROMPT_BLOCKS_MAX)];
        if !blocks.is_empty() {
            self.ledger.open_account(backend).is_leaving = false;
            self.assume(backend);
            self.hold_path(backend, blocks, at);
        }
    }

    /// The holds that end a path and are believed, the most recently used first.
    fn last_used(&self, most: Telling) -> Vec<HoldId> {
        let mut found = Vec::new();
        let mut blocks = 0_u64;
        let newest = |account: &super::account::Account| account.newest.some();
        let accounts = self.ledger.accounts.iter().flatten();
        // By time, and for each backend in its order of use: the next older one comes when the newer one has gone.
        let mut next: BinaryHeap<(u32, u32)> =
            accounts.filter_map(newest).map(|id| (self.ledger.hold(id).at, id.0)).collect();
        while let Some((_, id)) = next.pop().filter(|_| found.len() < most.paths_max) {
            let hold = self.ledger.hold(HoldId(id));
            let epoch = self.ledger.account(hold.backend).map(|account| account.epoch);
            if epoch != Some(hold.epoch) {
                // Stale, and so are all older ones.
                continue;
            }
            next.extend(hold.older.some().map(|older| (self.ledger.hold(older).at, older.0)));
            if hold.down == HoldId::NIL {
                blocks += self.depth_of(hold.span);
                if blocks > most.blocks_max {
                    break;
                }
                found.push(HoldId(id));
            }
        }
        found
    }

    /// Blocks from the root to the end of a span.
    fn depth_of(&self, span: SpanId) -> u64 {
        let (mut at, mut blocks) = (span, 0);
        while at != SpanId::ROOT {
            let record = self.ledger.record(at);
            blocks += u64::from(record.blocks);
            at = record.parent;
        }
        blocks
    }

    /// Leaves the blocks from the root to the end of a span in `blocks`. A mark's own mark is itself.
    fn blocks_to(&self, span: SpanId, route: &mut Vec<Mark>, blocks: &mut Vec<SequenceHash>) {
        route.clear();
        blocks.clear();
        let mut at = span;
        while at != SpanId::ROOT {
            let record = self.ledger.record(at);
            route.push(record.first);
            at = record.parent;
        }
        let mut span = self.tree.root();
        while let Some(below) = route.pop().and_then(|first| span.children.probe(first)) {
            blocks.extend(below.edge.iter().map(|mark| SequenceHash(mark.0.into())));
            span = below;
        }
    }
}
