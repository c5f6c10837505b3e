//! Where what an engine reports meets what is known of the order of use: each backend's budget follows from it. It
//! decides nothing about single blocks; that is the correction's.

use std::ops::Range;

use super::Evidence;
use super::account::Learned;
use super::capacity::{Capacity, Vote};
use super::reuse::Reuse;
use crate::limits::{CAPACITY_DOUBT, PURGE_STEPS_MAX};
use crate::{BackendId, Millis, SequenceHash};

impl Evidence {
    /// `backend` used these blocks.
    pub(super) fn note_use(&mut self, backend: BackendId, blocks: &[SequenceHash], at: Millis) {
        self.assume(backend);
        if let Some(learned) = self.learned_mut(backend) {
            learned.reuse.note(blocks, stamp(at));
        }
    }

    /// The engine had at least `cached.start` and at most `cached.end` leading blocks of a prompt routed at this time.
    pub(crate) fn learn(
        &mut self,
        backend: BackendId,
        blocks: &[SequenceHash],
        cached: Range<u32>,
        routed_at: Millis,
    ) {
        let others = self.fleet_offset;
        let Some(account) = self.ledger.account_mut(backend) else { return };
        let Some(Learned { reuse, capacity }) = account.learned.as_deref_mut() else { return };
        self.votes.clear();
        let votes = &mut self.votes;
        reuse.tell(blocks, stamp(routed_at), |place, distance| {
            let (held, lost) = (place < cached.start as usize, place >= cached.end as usize);
            if held || lost {
                votes.push(Vote { steps: capacity.steps_to(distance), cached: held });
            }
        });
        if self.votes.is_empty() {
            return;
        }
        let moved = capacity.learn(&self.votes, others);
        if moved {
            reuse.suit(capacity.blocks());
        }
        if capacity.is_counted() {
            self.fleet_votes.cast(&self.votes, self.ledger.accounts.len());
            // Less than assumed, once found, stands like what is assumed; more is tried out, and has to be found again.
            self.fleet_offset = self.fleet_votes.best(self.fleet_offset.min(0));
        }
        if moved {
            self.lower_to_budget(backend, PURGE_STEPS_MAX);
        }
    }

    /// Begins anew where the capacity assumed of a backend is quite another one than before.
    pub(super) fn assume(&mut self, backend: BackendId) {
        let (default, others) = (self.config.backend_blocks_max, self.fleet_offset);
        let Some(account) = self.ledger.account_mut(backend) else { return };
        let assumed = account.blocks_max.unwrap_or(default);
        let known = account.learned.as_mut();
        if known
            .is_some_and(|known| known.capacity.suits(assumed) || known.capacity.follow(assumed))
        {
            return;
        }
        let capacity = Capacity::new(assumed, others);
        let mut reuse = Reuse::new(assumed);
        reuse.suit(capacity.blocks());
        account.learned = Some(Box::new(Learned { reuse, capacity }));
    }

    /// Nothing is cached there any more, and what was learned may no longer hold.
    pub(super) fn forget_uses(&mut self, backend: BackendId) {
        if let Some(learned) = self.learned_mut(backend) {
            learned.reuse.forget();
            learned.capacity.doubt(CAPACITY_DOUBT);
        }
    }

    fn learned_mut(&mut self, backend: BackendId) -> Option<&mut Learned> {
        self.ledger.account_mut(backend)?.learned.as_deref_mut()
    }
}

/// A time as it is kept with a use. Two prompts of one backend with the same have been routed within a millisecond, or a
/// minute apart: a vote of one for the other is an odd vote.
fn stamp(at: Millis) -> u16 {
    at.0 as u16
}
