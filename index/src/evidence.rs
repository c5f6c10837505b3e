//! What is believed about who holds what: the tree and the books beside it, changed together. One writer owns it. It
//! forgets in the order engines do, least recently used and from the end of a path, so that what it believes stays what
//! an engine of that capacity would hold. It never blocks and never looks at a clock.

mod account;
mod capacity;
mod check;
mod edit;
mod handover;
mod learn;
mod ledger;
mod links;
mod purge;
mod reuse;
mod slab;
mod steps;

pub use account::Lost;
pub use handover::Telling;

use std::collections::VecDeque;

use crate::index::IndexConfig;
use crate::limits::{EVICTION_SAMPLE, EXPIRY_HOLDS_MAX, PROMPT_BLOCKS_MAX, PURGE_STEPS_MAX};
use crate::tree::{Mark, SpanId, Tree};
use crate::{BackendId, BackendSet, BackendStats, IndexStats, Millis, SequenceHash};
use capacity::{Vote, Votes};
use ledger::{HoldId, Ledger};
use steps::Correction;

/// The tree and its books.
#[derive(Debug)]
pub(crate) struct Evidence {
    tree: Tree,
    ledger: Ledger,
    config: IndexConfig,
    /// The tree differs from what was published last.
    dirty: bool,
    /// Backends some of whose holds are stale.
    purging: BackendSet,
    /// Backends that hold more than their budget since it was lowered.
    shrinking: BackendSet,
    /// Corrections that have not come to their end, oldest first.
    corrections: VecDeque<Correction>,
    /// Where the next look for somebody to evict from, or to expire, starts.
    cursor: usize,
    /// Votes of all backends on how far capacities are from what is assumed, and what they say.
    fleet_votes: Votes,
    fleet_offset: i32,
    /// What removed backends lost.
    lost: Lost,
    /// Scratch: the spans of the path being worked on, and its first marks.
    path: Vec<SpanId>,
    route: Vec<Mark>,
    /// Scratch: what a report says about single blocks.
    votes: Vec<Vote>,
}

impl Evidence {
    pub(crate) fn new(config: IndexConfig) -> Self {
        Self {
            tree: Tree::new(),
            ledger: Ledger::new(),
            config,
            dirty: false,
            purging: BackendSet::default(),
            shrinking: BackendSet::default(),
            corrections: VecDeque::new(),
            cursor: 0,
            fleet_votes: Votes::default(),
            fleet_offset: 0,
            votes: Vec::new(),
            lost: Lost::default(),
            path: Vec::new(),
            route: Vec::new(),
        }
    }

    /// The tree, when it changed since the last call, and the backends that are not to be believed in it.
    pub(crate) fn changed(&mut self) -> Option<(Tree, BackendSet)> {
        std::mem::take(&mut self.dirty).then(|| (self.tree.clone(), self.purging.clone()))
    }

    /// `backend` holds these leading blocks as of now.
    pub(crate) fn store(&mut self, backend: BackendId, blocks: &[SequenceHash], at: Millis) {
        let blocks = &blocks[..blocks.len().min(PROMPT_BLOCKS_MAX)];
        if blocks.is_empty() {
            return;
        }
        self.ledger.open_account(backend).is_leaving = false;
        self.note_use(backend, blocks, at);
        self.hold_path(backend, blocks, at);
    }

    /// `backend` holds these blocks, and used them now.
    fn hold_path(&mut self, backend: BackendId, blocks: &[SequenceHash], at: Millis) {
        let matched = self.follow_splitting(blocks);
        self.join(backend);
        self.grow(backend, &blocks[matched..]);
        self.touch(backend, at);
        self.fuse_path();
        self.keep_budget(backend);
        self.keep_fleet_budget(backend);
    }

    /// The engine held only `cached` leading blocks where `predicted` were expected: what is believed beyond is wrong,
    /// and so is everything that hangs below it there. One block less is rounding, not eviction.
    pub(crate) fn report(
        &mut self,
        backend: BackendId,
        blocks: &[SequenceHash],
        predicted: u32,
        cached: u32,
        at: Millis,
    ) {
        if predicted <= cached.saturating_add(1) {
            return;
        }
        let Some(span) = self.first_beyond(backend, blocks, cached as usize) else { return };
        let (first, tick) = (self.ledger.record(span).first, ledger::tick(at));
        let removed = self.correct(Correction { backend, span, first, tick }, PURGE_STEPS_MAX);
        if let Some(account) = self.ledger.account_mut(backend) {
            account.lost.corrected_blocks += removed;
            account.lost.corrections += 1;
        }
    }

    /// Sets how many blocks `backend` can hold; 0 goes back to the default.
    pub(crate) fn set_budget(&mut self, backend: BackendId, blocks_max: u64) {
        let account = self.ledger.open_account(backend);
        account.blocks_max = (blocks_max > 0).then_some(blocks_max);
        account.is_leaving = false;
        self.assume(backend);
        self.lower_to_budget(backend, PURGE_STEPS_MAX);
    }

    /// Forgets what one backend, the next in turn, has not used for too long. A bounded step, called often.
    pub(crate) fn expire_some(&mut self, now: Millis) {
        let idle = self.config.idle_ms_max;
        let accounts = self.ledger.accounts.len();
        if idle == 0 || accounts == 0 {
            return;
        }
        self.cursor = (self.cursor + 1) % accounts;
        let backend = BackendId(self.cursor as u16);
        if self.purging.contains(backend) {
            return;
        }
        let mut expired = 0;
        for _ in 0..EXPIRY_HOLDS_MAX {
            let Some(oldest) = self.oldest(backend) else { break };
            if u64::from(ledger::tick(now)) <= u64::from(self.ledger.hold(oldest).at) + (idle >> 6)
            {
                break;
            }
            expired += self.drop_hold(oldest);
        }
        if let Some(account) = self.ledger.account_mut(backend) {
            account.lost.expired_blocks += expired;
        }
    }

    /// Does some of what is left to do: a bounded step.
    pub(crate) fn work_off_some(&mut self) {
        let mut steps = self.config.purge_steps_max.max(1);
        self.purge_some(&mut steps);
        self.shrink_some(&mut steps);
        self.correct_some(&mut steps);
    }

    /// Whether anything is left to do.
    pub(crate) fn is_behind(&self) -> bool {
        !(self.purging.is_empty() && self.shrinking.is_empty() && self.corrections.is_empty())
    }

    /// Blocks held, summed over backends, as far as they are believed.
    pub(crate) fn resident_blocks(&self) -> u64 {
        self.ledger.resident - self.ledger.stale
    }

    /// Counts of everything, by backend.
    pub(crate) fn stats(&self, stats: &mut IndexStats) {
        stats.resident_blocks = self.resident_blocks();
        stats.stale_blocks = self.ledger.stale;
        stats.distinct_blocks = self.ledger.distinct;
        stats.spans = self.ledger.records.live() as u64 - 1;
        stats.bytes = self.bytes();
        stats.lost = self.lost;
        for (index, account) in self.ledger.accounts.iter().enumerate() {
            let Some(account) = account.as_ref().filter(|account| !account.is_leaving) else {
                continue;
            };
            stats.lost.add(&account.lost);
            stats.backends.push(BackendStats {
                id: BackendId(index as u16),
                blocks: account.fresh_blocks(),
                blocks_max: account.budget(self.config.backend_blocks_max),
                blocks_assumed: account.blocks_max.unwrap_or(self.config.backend_blocks_max),
                spans: account.spans,
                lost: account.lost,
            });
        }
    }

    /// Evicts the oldest of `backend` until it is within its budget, and what it may exceed that by for now.
    fn keep_budget(&mut self, backend: BackendId) {
        let Some(account) = self.ledger.account(backend) else { return };
        let max = account.budget(self.config.backend_blocks_max);
        // Stale blocks are the oldest, so they go first. As long as what is believed fits, no more of them go at once
        // than the longest prompt brings: the rest goes in steps.
        let over = account.blocks.saturating_sub(max);
        let fits = account.fresh_blocks() <= max;
        let now = if fits { PROMPT_BLOCKS_MAX as u64 } else { over.saturating_sub(account.excess) };
        let mut unbounded = usize::MAX;
        self.evict(backend, over.min(now), &mut unbounded);
    }

    /// Evicts from the largest of a few backends until the fleet is within its own bound.
    fn keep_fleet_budget(&mut self, storing: BackendId) {
        while let over @ 1.. = self.ledger.resident.saturating_sub(self.config.fleet_blocks_max) {
            let victim = self.largest_of_a_few(storing);
            let blocks = self.ledger.account(victim).map_or(0, |account| account.blocks);
            let mut unbounded = usize::MAX;
            self.evict(victim, over.min(blocks), &mut unbounded);
        }
    }

    /// The largest of the next few backends in turn and the one that has just stored, which holds something.
    fn largest_of_a_few(&mut self, storing: BackendId) -> BackendId {
        let accounts = self.ledger.accounts.len().max(1);
        let blocks = |at: usize| self.ledger.accounts[at].as_ref().map_or(0, |a| a.blocks);
        let turn = (self.cursor..self.cursor + EVICTION_SAMPLE).map(|at| at % accounts);
        let largest = turn.chain([storing.index()]).max_by_key(|&at| blocks(at));
        self.cursor = (self.cursor + EVICTION_SAMPLE) % accounts;
        BackendId(largest.unwrap_or(0) as u16)
    }

    /// Takes exactly `blocks` blocks from `backend`, oldest first and from the end of each path, or as far as the steps go.
    fn evict(&mut self, backend: BackendId, blocks: u64, steps: &mut usize) {
        let mut over = blocks;
        let stale = |ledger: &Ledger| ledger.account(backend).map_or(0, |a| a.stale_blocks);
        let stale_before = stale(&self.ledger);
        while over > 0
            && *steps > 0
            && let Some(oldest) = self.oldest(backend)
        {
            let held = u64::from(self.ledger.record(self.ledger.hold(oldest).span).blocks);
            over -= if held <= over {
                self.drop_hold(oldest)
            } else {
                self.drop_tail(oldest, (held - over) as u32)
            };
            *steps = steps.saturating_sub(1 + self.route.len());
        }
        // Stale blocks were lost before.
        let freed = stale_before - stale(&self.ledger);
        if let Some(account) = self.ledger.account_mut(backend) {
            account.lost.evicted_blocks += (blocks - over).saturating_sub(freed);
        }
    }

    fn oldest(&self, backend: BackendId) -> Option<HoldId> {
        self.ledger.account(backend)?.oldest.some()
    }
}
