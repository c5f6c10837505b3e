//! Giving up all that a backend held, in steps: at once in what is believed, bit by bit in the tree. A hundred thousand
//! holds are a tenth of a second of work, which must not stand between an observation and its publication.
//!
//! # How
//! The account's epoch moves on, which makes its holds stale; the published snapshot names the backend as one not to be
//! believed. Stale holds are the oldest ones of their backend, and each step gives up some from that end. What the
//! backend stores meanwhile makes the holds it touches fresh. It is believed again when the last stale hold is gone; until
//! then what is routed to it is known from the recent routes.

use super::Evidence;
use crate::BackendId;

impl Evidence {
    /// `backend` holds nothing any more.
    pub(crate) fn clear(&mut self, backend: BackendId) {
        self.disbelieve(backend);
        let mut steps = self.config.purge_steps_max.max(1);
        self.purge_some(&mut steps);
    }

    /// `backend` left the fleet: nothing of it is kept, its budget included.
    pub(crate) fn remove(&mut self, backend: BackendId) {
        self.disbelieve(backend);
        if let Some(account) = self.ledger.account_mut(backend) {
            let lost = std::mem::take(&mut account.lost);
            self.lost.add(&lost);
            account.is_leaving = true;
            account.blocks_max = None;
            account.learned = None;
        }
        let mut steps = self.config.purge_steps_max.max(1);
        self.purge_some(&mut steps);
        self.close_if_gone(backend);
    }

    fn disbelieve(&mut self, backend: BackendId) {
        self.forget_uses(backend);
        let cleared = self.ledger.make_stale(backend);
        if let Some(account) = self.ledger.account_mut(backend)
            && account.blocks > 0
        {
            account.lost.cleared_blocks += cleared;
            self.purging.insert(backend);
            self.dirty = true;
        }
    }

    /// Gives up stale holds, as far as the steps go.
    pub(super) fn purge_some(&mut self, steps: &mut usize) {
        while *steps > 0
            && let Some(backend) = self.purging.first()
        {
            match self.ledger.oldest_stale(backend) {
                Some(oldest) => {
                    self.drop_hold(oldest);
                    *steps = steps.saturating_sub(1 + self.route.len());
                }
                None => {
                    self.purging.remove(backend);
                    self.dirty = true;
                    self.close_if_gone(backend);
                }
            }
        }
    }

    /// Closes the account of a backend that left, once nothing of it is left.
    fn close_if_gone(&mut self, backend: BackendId) {
        let gone = |account: &super::account::Account| account.is_leaving && account.blocks == 0;
        if !self.purging.contains(backend) && self.ledger.account(backend).is_some_and(gone) {
            self.ledger.close_account(backend);
        }
    }
}
