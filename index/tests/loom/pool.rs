//! The limit on tokens, which shards lower and the control thread grants anew, each without asking the other.

use index::{Charge, Fleet, Limits};
use loom::sync::Arc;
use loom::thread;

use crate::{B, fleet, model};

const TOLD: u64 = 8_000;
const HELD: u64 = 4_000;

/// What control makes of a reading: what was lowered comes back by ten tokens.
fn regained(granted: u64) -> u64 {
    (granted + 10).min(TOLD)
}

/// A fleet whose backends are marked, and the first of which has a request in flight.
fn busy() -> Arc<Fleet> {
    let fleet = fleet(3, Limits { requests_max: 4, tokens_max: TOLD });
    std::mem::forget(fleet.reserve(B, Charge { tokens: HELD, uncached_tokens: 0 }));
    fleet
}

fn ran_out(fleet: &Arc<Fleet>) -> thread::JoinHandle<()> {
    let fleet = Arc::clone(fleet);
    thread::spawn(move || fleet.backend(B).lower_tokens_max())
}

#[test]
fn a_reading_that_comes_meanwhile_takes_back_no_lowered_pool_and_loses_no_limit_of_its_own() {
    model(|| {
        let fleet = busy();
        let shard = ran_out(&fleet);
        fleet.backend(B).regrant(5, regained);
        shard.join().unwrap();
        let Limits { requests_max, tokens_max } = fleet.backend(B).limits();
        assert_eq!(requests_max, 5);
        assert!([3_000, 3_010].contains(&tokens_max), "{tokens_max}");
        fleet.check_invariants().unwrap();
    });
}

#[test]
fn two_who_find_a_pool_used_up_lower_it_once() {
    model(|| {
        let fleet = busy();
        let shard = ran_out(&fleet);
        fleet.backend(B).lower_tokens_max();
        shard.join().unwrap();
        assert_eq!(fleet.backend(B).limits(), Limits { requests_max: 4, tokens_max: 3_000 });
    });
}

#[test]
fn a_pool_lowered_while_requests_come_is_marked_as_full_as_it_is() {
    model(|| {
        let fleet = busy();
        let shard = ran_out(&fleet);
        let more = fleet.reserve(B, Charge { tokens: 2_000, uncached_tokens: 0 });
        shard.join().unwrap();
        let lowered = fleet.backend(B).limits().tokens_max;
        let allowed = if more.is_ok() { [3_000, 4_500] } else { [3_000, 3_000] };
        assert!(allowed.contains(&lowered), "{lowered}");
        fleet.check_invariants().unwrap();
        drop(more);
        fleet.check_invariants().unwrap();
    });
}
