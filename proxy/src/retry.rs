//! Which requests may be sent again, and how many a shard may spend on that: a share of its recent requests and a floor.
//!
//! Without a bound, a failing fleet would get each request several times over and fail harder. What may already have
//! been carried out is sent again only where carrying it out twice leaves nothing behind but its cost.

use std::cell::Cell;

use index::Millis;

use crate::api::Api;
use crate::http::Method;

use crate::limits::{RETRY_FLOOR, RETRY_SHARE_PERMILLE};

/// Whether a call may be sent again although an engine may have begun on it. `keeps_state`: its body asks an engine to
/// remember something, or it could not be read.
pub fn may_repeat(api: Api, method: &Method, keeps_state: bool) -> bool {
    match api {
        // Inference leaves nothing behind but a warmer cache, unless it was asked to.
        _ if api.reserves_slot() => !keeps_state,
        Api::CountTokens | Api::Tokenize | Api::Models => true,
        // Files, batches, stored responses, engines' own switches: nobody knows what a call does here.
        _ => matches!(method, Method::Get | Method::Head | Method::Options),
    }
}

/// Half of what was counted is forgotten this often, ms.
const HALVED_EVERY_MS: u64 = 10_000;

/// The shard's account.
#[derive(Debug, Default)]
pub struct RetryBudget {
    requests: Cell<u64>,
    retries: Cell<u64>,
    halved: Cell<u64>,
}

impl RetryBudget {
    /// Notes a request.
    pub fn note_request(&self) {
        self.requests.set(self.requests.get().saturating_add(1));
    }

    /// Takes one retry out of the budget, if one is left.
    pub fn take(&self) -> bool {
        let share = self.requests.get().saturating_mul(RETRY_SHARE_PERMILLE) / 1000;
        if self.retries.get() >= share.saturating_add(RETRY_FLOOR) {
            return false;
        }
        self.retries.set(self.retries.get() + 1);
        true
    }

    /// Forgets the past by halves.
    pub fn tick(&self, now: Millis) {
        if now.0.saturating_sub(self.halved.get()) >= HALVED_EVERY_MS {
            self.halved.set(now.0);
            self.requests.set(self.requests.get() / 2);
            self.retries.set(self.retries.get() / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaves_nothing_behind_may_be_repeated_and_nothing_else() {
        for api in Api::ALL {
            let expected = !matches!(api, Api::Other);
            assert_eq!(may_repeat(api, &Method::Post, false), expected, "{}", api.name());
            let state = may_repeat(api, &Method::Post, true);
            assert_eq!(state, expected && !api.reserves_slot(), "{}", api.name());
        }
        for method in [Method::Get, Method::Head, Method::Options] {
            assert!(may_repeat(Api::Other, &method, true));
        }
        for method in [Method::Put, Method::Patch, Method::Delete] {
            assert!(!may_repeat(Api::Other, &method, false));
        }
    }

    #[test]
    fn retries_end_at_the_floor_plus_a_share_of_requests() {
        let budget = RetryBudget::default();
        for _ in 0..100 {
            budget.note_request();
        }
        let granted = (0..1000).filter(|_| budget.take()).count() as u64;
        assert_eq!(granted, RETRY_FLOOR + 100 * RETRY_SHARE_PERMILLE / 1000);
    }

    #[test]
    fn the_past_is_forgotten() {
        let budget = RetryBudget::default();
        while budget.take() {}
        budget.tick(Millis(HALVED_EVERY_MS));
        assert!(budget.take());
    }
}
