//! The price of recomputation in the default policy, and the rate of prefill learned for it: what each term answers to.
#![cfg(not(loom))]

use index::{
    Ask, BackendId, BackendSet, Charge, Fleet, FleetConfig, LoadView, Millis, Overlaps, PolicyKind,
    View,
};

/// A load with this much prefill pending, on a backend that holds nothing.
fn load(uncached_tokens: u64) -> LoadView {
    LoadView {
        id: BackendId(0),
        in_flight: 0,
        tokens_in_flight: 0,
        uncached_tokens,
        conversations: 0,
        due: 0.0,
        queue_depth: 0,
        kv_usage_permille: 0,
        requests_max: 0,
        tokens_max: 0,
        overlap_blocks: 0,
    }
}

/// What a token of a prompt of 800 is charged behind `pending` tokens, where `share` of the fleet is busy and a mean
/// request prefills `mean` tokens.
fn recompute_price(share: f64, pending: u64, mean: f64) -> f64 {
    let blocks = [];
    let (pool, excluded) = (BackendSet::default(), BackendSet::default());
    let ask = Ask {
        blocks: &blocks,
        block_tokens: 8.0,
        prompt_tokens: 800,
        output_tokens: 0,
        conversation: None,
        pool: &pool,
        excluded: &excluded,
        waited_ms: 0,
        home_wait_ms: 0,
        now: Millis(0),
        random: 0,
    };
    let candidates = [load(pending)];
    let view = View {
        ask: &ask,
        overlaps: &Overlaps::new(),
        home: None,
        follows: false,
        candidates: &candidates,
        pending_share: share,
    };
    let mut policy = PolicyKind::DEFAULT.build();
    policy.placed(BackendId(0), mean, false);
    let own = policy.score(&view, &candidates[0]).terms.iter().find(|t| t.0 == "own");
    own.unwrap().1 / 800.0
}

#[test]
fn recomputation_is_dearer_the_busier_the_fleet_the_longer_the_queue_and_the_request() {
    assert_eq!(recompute_price(0.0, 8_000, 800.0), 1.0, "an idle fleet delays nobody");
    let price = recompute_price(0.5, 0, 800.0);
    assert!((price - 1.3).abs() < 1e-9, "{price}");
    assert!(recompute_price(0.8, 0, 800.0) > price);
    assert!(recompute_price(0.5, 800, 800.0) > price);
    assert!(recompute_price(0.5, 0, 80.0) > price, "the same prompt among short ones");
}

#[test]
fn the_price_of_recomputation_is_bounded() {
    assert_eq!(recompute_price(1.0, u64::MAX, 0.0), 1.0 + 7.0 + 28.0);
    assert_eq!(recompute_price(1.0, 0, 0.0), 1.0 + 28.0);
}

#[test]
fn the_prompt_being_prefilled_counts_for_what_is_left_of_it() {
    let fleet = Fleet::new(FleetConfig::with_capacity(1));
    let charge = Charge { tokens: 0, uncached_tokens: 8_000 };
    let load = &fleet.backend(BackendId(0)).load;
    let first = fleet.reserve(BackendId(0), charge).unwrap();
    assert_eq!(load.remaining_tokens(Millis(500)), 8_000, "no rate is known yet");
    first.prefill_done_at(Millis(1_000));
    let _second = fleet.reserve(BackendId(0), charge).unwrap();
    assert_eq!((load.uncached_tokens(), load.remaining_tokens(Millis(1_500))), (8_000, 4_000));
    fleet.backend(BackendId(0)).reset();
    assert_eq!(load.remaining_tokens(Millis(1_500)), 8_000, "another engine's rate is unknown");
}
