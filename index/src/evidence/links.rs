//! The ledger's lists: order of use, and what hangs below what. Only pointers move here; nothing is counted.

use super::ledger::{HoldId, Ledger};

impl Ledger {
    /// Makes `id` its backend's most recent hold; it is in no list.
    pub(super) fn link_newest(&mut self, id: HoldId) {
        let backend = self.hold(id).backend;
        let account = self.open_account(backend);
        let newest = std::mem::replace(&mut account.newest, id);
        if newest == HoldId::NIL {
            account.oldest = id;
        } else {
            self.hold_mut(newest).newer = id;
        }
        let hold = self.hold_mut(id);
        (hold.older, hold.newer) = (newest, HoldId::NIL);
    }

    /// Puts `id` right after `older` in the order of use.
    pub(super) fn link_newer(&mut self, id: HoldId, older: HoldId) {
        let newer = std::mem::replace(&mut self.hold_mut(older).newer, id);
        match newer.some() {
            Some(newer) => self.hold_mut(newer).older = id,
            None => {
                let backend = self.hold(id).backend;
                self.open_account(backend).newest = id;
            }
        }
        let hold = self.hold_mut(id);
        (hold.older, hold.newer) = (older, newer);
    }

    /// Takes `id` out of the order of use.
    pub(super) fn unlink_age(&mut self, id: HoldId) {
        let hold = *self.hold(id);
        match hold.older.some() {
            Some(older) => self.hold_mut(older).newer = hold.newer,
            None => self.open_account(hold.backend).oldest = hold.newer,
        }
        match hold.newer.some() {
            Some(newer) => self.hold_mut(newer).older = hold.older,
            None => self.open_account(hold.backend).newest = hold.older,
        }
    }

    /// Hangs `id` below `above`, before what hangs there already.
    pub(super) fn link_below(&mut self, above: HoldId, id: HoldId) {
        let side = std::mem::replace(&mut self.hold_mut(above).down, id);
        if let Some(side) = side.some() {
            self.hold_mut(side).back = id;
        }
        let hold = self.hold_mut(id);
        (hold.back, hold.side) = (above, side);
    }

    /// Takes `id` off what it hangs below.
    pub(super) fn unlink_family(&mut self, id: HoldId) {
        let hold = *self.hold(id);
        self.relink_back(hold.back, id, hold.side);
        if let Some(side) = hold.side.some() {
            self.hold_mut(side).back = hold.back;
        }
    }

    /// `new` takes the place of `old` below the same hold; what hangs below either stays there.
    pub(super) fn replace_family(&mut self, old: HoldId, new: HoldId) {
        let hold = *self.hold(old);
        self.relink_back(hold.back, old, new);
        if let Some(side) = hold.side.some() {
            self.hold_mut(side).back = new;
        }
        let place = self.hold_mut(new);
        (place.back, place.side) = (hold.back, hold.side);
    }

    /// Whoever pointed at `from` from before (the hold above, or the one on its side) now points at `to`.
    fn relink_back(&mut self, back: HoldId, from: HoldId, to: HoldId) {
        let Some(back) = back.some() else { return };
        let before = self.hold_mut(back);
        if before.down == from {
            before.down = to;
        } else {
            before.side = to;
        }
    }
}
