//! How much room each waiting tenant was given, in tokens.
//!
//! It is deficit round robin without a quantum: whoever was given least is next, so tenants that keep waiting are apart
//! by no more than one request each. Who comes back after a while gets no credit for it: its account is raised to that
//! of the least served who waits. An account that would be raised so may be forgotten, and is. Tenants are keyed hashes;
//! what a client sent is never kept.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::limits::WAIT_TENANTS_MAX;

/// A tenant: the keyed hash of what its requests carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantKey(pub u64);

/// All those beyond [`WAIT_TENANTS_MAX`] together.
const OTHERS: TenantKey = TenantKey(0);

/// One tenant's account.
#[derive(Debug)]
pub(super) struct Tenant {
    key: TenantKey,
    served: Cell<u64>,
    /// What it will have been given if those already called are served.
    planned: Cell<u64>,
    waiting: Cell<usize>,
}

impl Tenant {
    pub(super) fn charge(&self, tokens: u64) {
        self.served.set(self.served.get().saturating_add(tokens.max(1)));
    }

    pub(super) fn leave(&self) {
        self.waiting.set(self.waiting.get() - 1);
    }

    pub(super) fn plan(&self) {
        self.planned.set(self.served.get());
    }

    pub(super) fn plan_more(&self, tokens: u64) {
        self.planned.set(self.planned.get().saturating_add(tokens.max(1)));
    }

    pub(super) fn planned(&self) -> u64 {
        self.planned.get()
    }
}

/// The accounts of one room.
#[derive(Debug, Default)]
pub(super) struct Tenants(RefCell<Vec<Rc<Tenant>>>);

impl Tenants {
    /// Whether any account is kept.
    pub(super) fn are_told_apart(&self) -> bool {
        !self.0.borrow().is_empty()
    }

    /// The account of a tenant that now waits, once more.
    pub(super) fn enter(&self, key: TenantKey) -> Rc<Tenant> {
        let tenant = self.of(key);
        if tenant.waiting.get() == 0 {
            tenant.served.set(tenant.served.get().max(self.floor()));
        }
        tenant.waiting.set(tenant.waiting.get() + 1);
        tenant
    }

    /// Charges a tenant that may not be waiting.
    pub(super) fn charge(&self, key: TenantKey, tokens: u64) {
        let tenant = self.of(key);
        if tenant.waiting.get() == 0 {
            tenant.served.set(tenant.served.get().max(self.floor()));
        }
        tenant.charge(tokens);
    }

    /// Nobody waits any more: nobody was kept from anything.
    pub(super) fn forget_all(&self) {
        self.0.borrow_mut().clear();
    }

    fn of(&self, key: TenantKey) -> Rc<Tenant> {
        if let Some(known) = self.find(key) {
            return known;
        }
        let floor = self.floor();
        let mut all = self.0.borrow_mut();
        all.retain(|tenant| tenant.waiting.get() > 0 || tenant.served.get() > floor);
        let full = all.len() >= WAIT_TENANTS_MAX;
        let others = all.iter().find(|tenant| tenant.key == OTHERS).map(Rc::clone);
        if full && let Some(others) = others {
            return others;
        }
        let key = if full { OTHERS } else { key };
        let [served, planned] = [floor, 0].map(Cell::new);
        let tenant = Rc::new(Tenant { key, served, planned, waiting: Cell::new(0) });
        all.push(Rc::clone(&tenant));
        tenant
    }

    fn find(&self, key: TenantKey) -> Option<Rc<Tenant>> {
        self.0.borrow().iter().find(|tenant| tenant.key == key).map(Rc::clone)
    }

    /// What the least served of those who wait was given.
    fn floor(&self) -> u64 {
        let all = self.0.borrow();
        let waiting = all.iter().filter(|tenant| tenant.waiting.get() > 0);
        waiting.map(|tenant| tenant.served.get()).min().unwrap_or(0)
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.0.borrow().len()
    }
}
