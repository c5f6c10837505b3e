//! Work too large for one go, done in steps: giving up what a lowered budget no longer allows, and what a correction
//! found lost. Half a million blocks are a second of work, which must not stand between an observation and its
//! publication. What is small is done at once.
//!
//! # How
//! A backend whose budget fell may exceed it by what its account allows, and each step lowers that; nothing it stores
//! meanwhile adds to it. A correction that has not come to its end waits with the time it was made: steps later give up
//! what hangs below and was last used before then, and leave alone what was used since.

use super::Evidence;
use super::ledger::HoldId;
use crate::BackendId;
use crate::limits::CORRECTIONS_MAX;
use crate::tree::{Mark, SpanId};

/// A correction that has not come to its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Correction {
    pub(super) backend: BackendId,
    /// What was lost, with all that hangs below it.
    pub(super) span: SpanId,
    /// Its first block: a span that begins otherwise is another one by now.
    pub(super) first: Mark,
    /// When it was made, in ticks.
    pub(super) tick: u32,
}

impl Evidence {
    /// A budget may have fallen: what is beyond it goes, the most of it later if it is much.
    pub(super) fn lower_to_budget(&mut self, backend: BackendId, mut steps: usize) {
        let over = self.over_budget(backend);
        if let Some(account) = self.ledger.account_mut(backend) {
            account.excess = over;
        }
        if over > 0 {
            self.shrinking.insert(backend);
            self.shrink(backend, &mut steps);
        }
    }

    /// Gives up what is beyond lowered budgets, as far as the steps go.
    pub(super) fn shrink_some(&mut self, steps: &mut usize) {
        while *steps > 0
            && let Some(backend) = self.shrinking.first()
        {
            self.shrink(backend, steps);
        }
    }

    fn shrink(&mut self, backend: BackendId, steps: &mut usize) {
        let over = self.over_budget(backend);
        self.evict(backend, over, steps);
        let left = self.over_budget(backend);
        if let Some(account) = self.ledger.account_mut(backend) {
            account.excess = account.excess.min(left);
        }
        if left == 0 {
            self.shrinking.remove(backend);
        }
    }

    /// Blocks believed beyond the budget.
    pub(super) fn over_budget(&self, backend: BackendId) -> u64 {
        let Some(account) = self.ledger.account(backend) else { return 0 };
        let max = account.budget(self.config.backend_blocks_max);
        // Stale blocks are the oldest and would go first; they are not believed, and the purge's.
        if account.fresh_blocks() <= max { 0 } else { account.blocks - max }
    }

    /// Begins a correction, and ends it if it is small.
    pub(super) fn correct(&mut self, correction: Correction, mut steps: usize) -> u64 {
        let (lost, done) = self.drop_below(&correction, None, &mut steps);
        if !done {
            if self.corrections.len() >= CORRECTIONS_MAX {
                // The oldest one stays unfinished: what it would have taken back is reported again, or evicted.
                self.corrections.pop_front();
            }
            self.corrections.push_back(correction);
        }
        lost
    }

    /// Goes on with corrections, as far as the steps go.
    pub(super) fn correct_some(&mut self, steps: &mut usize) {
        while *steps > 0
            && let Some(correction) = self.corrections.pop_front()
        {
            if !self.stands(&correction) {
                continue;
            }
            let (lost, done) = self.drop_below(&correction, Some(correction.tick), steps);
            if let Some(account) = self.ledger.account_mut(correction.backend) {
                account.lost.corrected_blocks += lost;
            }
            // Where nothing went all that is left was used since.
            if !done && lost > 0 {
                self.corrections.push_front(correction);
            }
        }
    }

    /// Whether a correction's span is still the one it was made for: it begins as then, or was used since and has become one
    /// with what lies above it. A number that was given anew and used at once passes too: what it loses then is evidence
    /// older than the correction, which comes back with its next use.
    fn stands(&self, correction: &Correction) -> bool {
        let Correction { backend, span, first, tick } = *correction;
        let Some(hold) = self.ledger.find(span, backend) else { return false };
        self.ledger.record(span).first == first || self.ledger.hold(hold).at >= tick
    }

    /// The backend loses a span and all that hangs below it, leaves first, as far as the steps go; what was used at or
    /// after `since` stays. Returns the blocks lost, and whether all was looked at.
    fn drop_below(
        &mut self,
        correction: &Correction,
        since: Option<u32>,
        steps: &mut usize,
    ) -> (u64, bool) {
        let Correction { backend, span, .. } = *correction;
        let Some(top) = self.ledger.find(span, backend) else { return (0, true) };
        let mut lost = 0;
        let mut next = Some(self.leaf_below(top));
        while let Some(id) = next {
            if *steps == 0 {
                return (lost, false);
            }
            *steps -= 1;
            let hold = *self.ledger.hold(id);
            next = if id == top { None } else { self.after(id) };
            if hold.down == HoldId::NIL && since.is_none_or(|since| hold.at < since) {
                lost += self.drop_hold(id);
                *steps = steps.saturating_sub(self.route.len());
            }
        }
        (lost, true)
    }

    fn leaf_below(&self, mut id: HoldId) -> HoldId {
        while let Some(down) = self.ledger.hold(id).down.some() {
            id = down;
        }
        id
    }

    /// The hold after this one where what hangs below comes first.
    fn after(&self, id: HoldId) -> Option<HoldId> {
        let hold = self.ledger.hold(id);
        match hold.side.some() {
            Some(side) => Some(self.leaf_below(side)),
            None => self.ledger.find(self.ledger.record(hold.span).parent, hold.backend),
        }
    }
}
