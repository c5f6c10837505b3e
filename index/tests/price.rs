//! The price of recomputation in the default policy, and the rate of prefill learned for it: what each term answers to.
#![cfg(not(loom))]

use index::{
    Ask, BackendId, BackendSet, Charge, Fleet, FleetConfig, LoadView, Millis, Overlaps, Policy,
    PolicyKind, View,
};

/// A load with this much prefill pending, on a backend that holds nothing.
fn load(uncached_tokens: u64) -> LoadView {
    LoadView {
        asks_way: false,
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
        first_token: index::Seen::default(),
        overlap_blocks: 0,
    }
}

/// A term of what the policy charges for each candidate, for a prompt of 800 where `share` of the fleet is busy.
fn term(
    policy: &mut dyn Policy,
    name: &str,
    share: f64,
    follows: bool,
    candidates: &[LoadView],
) -> Vec<f64> {
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
        turn_wait_ms: 0,
        give_way_max: 0,
        streams: false,
        now: Millis(0),
        random: 0,
    };
    let view = View {
        ask: &ask,
        overlaps: &Overlaps::new(),
        home: None,
        follows,
        candidates,
        pending_share: share,
    };
    policy.prepare(&view);
    let of = |candidate| policy.score(&view, candidate).terms.iter().find(|t| t.0 == name);
    candidates.iter().map(of).map(|term| term.unwrap().1).collect()
}

/// What a token of a prompt of 800 is charged behind `pending` tokens, where `share` of the fleet is busy and a mean
/// request prefills `mean` tokens.
fn recompute_price(share: f64, pending: u64, mean: f64) -> f64 {
    let mut policy = PolicyKind::DEFAULT.build();
    policy.placed(BackendId(0), mean, false);
    term(&mut *policy, "own", share, false, &[load(pending)])[0] / 800.0
}

/// What three backends are charged for becoming a home, of which one has no conversations, one some and one more.
fn home_prices(policy: &mut dyn Policy, share: f64, follows: bool) -> [f64; 3] {
    let candidates =
        [0_u8, 1, 2].map(|n| LoadView { conversations: n.into(), due: n.into(), ..load(0) });
    term(policy, "home", share, follows, &candidates).try_into().unwrap()
}

/// The default policy where each conversation's 1,000 tokens were followed by `turns` requests of 2,000.
fn after_turns(turns: usize) -> Box<dyn Policy> {
    let mut policy = PolicyKind::DEFAULT.build();
    for _ in 0..40 {
        policy.placed(BackendId(0), 1_000.0, false);
        (0..turns).for_each(|_| policy.placed(BackendId(0), 2_000.0, true));
    }
    policy
}

#[test]
fn a_new_conversation_is_charged_for_its_life_in_a_crowded_home() {
    let [none, some, more] = home_prices(&mut *after_turns(4), 0.5, false);
    assert_eq!(none, 0.0);
    // Eight ninths of the work is bound to homes, so half the fleet busy means a load of 4/9 where a mean number lives.
    let expected = 16.0 + 8_000.0 * (1.0 / (5.0_f64 / 9.0).powi(2) - 1.0) / 2.0;
    assert!((some / expected - 1.0).abs() < 0.01, "{some}, not {expected}");
    assert!(more > 10.0 * some, "{more} at twice that, which is next to overload");
    assert!(home_prices(&mut *after_turns(9), 0.5, false)[1] > 2.0 * some, "longer lives");
}

#[test]
fn a_home_costs_next_to_nothing_where_nobody_waits_or_nobody_comes_back() {
    assert_eq!(home_prices(&mut *after_turns(4), 0.0, false), [0.0, 16.0, 32.0], "an idle fleet");
    assert_eq!(home_prices(&mut *after_turns(0), 0.9, false), [0.0, 16.0, 32.0], "single requests");
    assert_eq!(home_prices(&mut *after_turns(4), 0.9, true), [0.0; 3], "it has a home");
}

/// What three backends are charged beside the price of recomputation, of which none, one and two conversations are expected
/// to come back to, where `share` of the fleet was busy all along and is `now`.
fn crowd_prices(turns: usize, share: f64, now: f64) -> [f64; 3] {
    let candidates = [0_u8, 1, 2].map(|n| LoadView { due: n.into(), ..load(0) });
    let mut policy = PolicyKind::DEFAULT.build();
    for _ in 0..40 {
        term(&mut *policy, "crowd", share, true, &candidates);
        policy.placed(BackendId(0), 800.0, false);
        (0..turns).for_each(|_| policy.placed(BackendId(0), 800.0, true));
    }
    term(&mut *policy, "crowd", now, true, &candidates).try_into().unwrap()
}

#[test]
fn long_work_is_dearer_where_more_conversations_come_back_and_cheaper_where_fewer_do() {
    let [few, mean, many] = crowd_prices(3, 0.5, 0.5);
    // Three quarters of the work follows, so 0.1 + 0.25 * 0.75 of the delay is priced and 0.7 / 2^4 of that is charged.
    let expected = 800.0 * 0.75 * 0.2875 * 0.7 / 16.0;
    assert!((many / expected - 1.0).abs() < 0.05, "{many}, not {expected}");
    assert_eq!((few, mean), (-many, 0.0));
    assert!(crowd_prices(3, 0.8, 0.8)[2] > 3.0 * many, "a busier fleet");
    assert!((crowd_prices(3, 0.5, 0.99)[2] / many - 1.0).abs() < 0.01, "a burst changes nothing");
}

#[test]
fn crowds_are_no_matter_where_nobody_comes_back_or_nobody_waits() {
    assert_eq!(crowd_prices(0, 0.9, 0.9), [0.0; 3], "single requests");
    assert_eq!(crowd_prices(3, 0.0, 0.9), [0.0; 3], "an idle fleet");
}

#[test]
fn recomputation_is_dearer_the_busier_the_fleet_the_longer_the_queue_and_the_request() {
    assert_eq!(recompute_price(0.0, 8_000, 800.0), 1.0, "an idle fleet delays nobody");
    let price = recompute_price(0.5, 0, 800.0);
    assert!((price - 1.1).abs() < 1e-9, "{price}");
    assert!(recompute_price(0.8, 0, 800.0) > price);
    assert!(recompute_price(0.5, 800, 800.0) > price);
    assert!(recompute_price(0.5, 0, 80.0) > price, "the same prompt among short ones");
}

#[test]
fn recomputation_is_dearer_the_more_of_the_work_is_bound_to_homes() {
    // The mean request is one of 2,000 tokens here and there; only what follows what differs.
    let price = |follows: bool| {
        let mut policy = PolicyKind::DEFAULT.build();
        policy.placed(BackendId(0), 2_000.0, false);
        (0..99).for_each(|_| policy.placed(BackendId(0), 2_000.0, follows));
        term(&mut *policy, "own", 0.5, true, &[load(0)])[0] / 800.0
    };
    let (free, bound) = (price(false), price(true));
    assert!((free - 1.0 - 0.1 * 0.4).abs() < 1e-9, "{free}: whoever comes can go elsewhere");
    assert!((bound - 1.0 - 0.35 * 0.4).abs() < 0.01, "{bound}: nearly everybody has a home");
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
