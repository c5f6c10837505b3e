//! Decisions as callers see them: who gets a request, why, and what is left behind.
#![cfg(not(loom))]
#![expect(clippy::result_large_err, reason = "a decision is inline by design")]

use index::{
    Ask, BackendId, BackendSet, Charge, ConversationKey, Decision, Fleet, FleetConfig, IndexConfig,
    IndexReader, IndexWriter, Limits, LoadView, Millis, Nowhere, Observation, Picker, Placed,
    Policy, PolicyKind, Reason, Refusal, Rejected, Score, SequenceHash, Verdict, View, index,
};

/// A fleet, an index and the sets a request names; tokens are four a block of sixteen bytes.
struct Bench {
    fleet: Fleet,
    writer: IndexWriter,
    reader: IndexReader,
    pool: BackendSet,
    excluded: BackendSet,
    now: Millis,
    random: u64,
}

/// One request of the tests: a prompt of whole blocks, eight tokens each.
#[derive(Clone)]
struct Prompt {
    blocks: Vec<SequenceHash>,
    conversation: Option<ConversationKey>,
    waited_ms: u64,
}

const BLOCK_TOKENS: u64 = 8;
const HOME_WAIT_MS: u64 = 200;

impl Bench {
    fn new(backends: u16) -> Self {
        let (writer, handle) = index(IndexConfig::default());
        Self {
            fleet: Fleet::new(FleetConfig::with_capacity(usize::from(backends))),
            writer,
            reader: handle.reader(),
            pool: (0..backends).map(BackendId).collect(),
            excluded: BackendSet::default(),
            now: Millis(1_000),
            random: 1,
        }
    }

    fn pick(&mut self, picker: &mut Picker, prompt: &Prompt) -> Result<Placed<'_>, Nowhere> {
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(99);
        let ask = ask(self.now, self.random, &self.pool, &self.excluded, prompt);
        picker.pick(&self.fleet, self.reader.load(), &ask)
    }

    /// Picks, and ends the request at once.
    fn decide(&mut self, picker: &mut Picker, prompt: &Prompt) -> Result<Decision, Nowhere> {
        self.pick(picker, prompt).map(|placed| placed.decision)
    }

    fn explain(&mut self, picker: &mut Picker, prompt: &Prompt) -> Decision {
        let ask = ask(self.now, self.random, &self.pool, &self.excluded, prompt);
        picker.explain(&self.fleet, self.reader.load(), &ask)
    }

    fn store(&mut self, id: u16, prompt: &Prompt) {
        let (backend, at) = (BackendId(id), self.now);
        self.writer.apply(Observation::Stored { backend, blocks: prompt.blocks.clone(), at });
        self.writer.publish(self.now);
    }

    fn limit(&self, requests_max: u32) {
        for id in self.pool.iter() {
            self.fleet.backend(id).set_limits(Limits { requests_max, tokens_max: 0 });
        }
    }

    /// Keeps a request of `uncached` prefill tokens running on a backend for the rest of the test.
    fn occupy(&self, id: u16, uncached: u64) {
        let charge = Charge { tokens: uncached, uncached_tokens: uncached };
        std::mem::forget(self.fleet.reserve(BackendId(id), charge).unwrap());
    }

    fn pin(&self, conversation: u64, id: u16) {
        self.fleet.affinity().set(&self.fleet, key(conversation), BackendId(id), self.now);
    }

    fn conversations(&self) -> Vec<u32> {
        self.pool.iter().map(|id| self.fleet.backend(id).load.conversations()).collect()
    }
}

fn ask<'a>(
    now: Millis,
    random: u64,
    pool: &'a BackendSet,
    excluded: &'a BackendSet,
    prompt: &'a Prompt,
) -> Ask<'a> {
    Ask {
        blocks: &prompt.blocks,
        block_tokens: BLOCK_TOKENS as f32,
        prompt_tokens: prompt.blocks.len() as u64 * BLOCK_TOKENS,
        output_tokens: 10,
        conversation: prompt.conversation,
        pool,
        excluded,
        waited_ms: prompt.waited_ms,
        home_wait_ms: HOME_WAIT_MS,
        turn_wait_ms: 0,
        give_way_max: 0,
        streams: false,
        now,
        random,
    }
}

fn key(n: u64) -> ConversationKey {
    index::conversation_key(index::FingerprintKey::new(5), b"tests", &n.to_le_bytes())
}

/// A chain of hashes that is the same for the same names, block by block.
fn chain(names: impl IntoIterator<Item = u64>) -> Vec<SequenceHash> {
    let mut fingerprinter = index::Fingerprinter::new(index::FingerprintKey::new(5), 8);
    names.into_iter().for_each(|name| fingerprinter.push(&name.to_le_bytes()));
    fingerprinter.finish().blocks
}

fn prompt(names: impl IntoIterator<Item = u64>) -> Prompt {
    Prompt { blocks: chain(names), conversation: None, waited_ms: 0 }
}

impl Prompt {
    fn of(mut self, conversation: u64) -> Self {
        self.conversation = Some(key(conversation));
        self
    }

    fn waited(mut self, waited_ms: u64) -> Self {
        self.waited_ms = waited_ms;
        self
    }
}

fn cost() -> Picker {
    Picker::new(PolicyKind::DEFAULT)
}

#[test]
fn an_empty_pool_has_no_backend() {
    let mut bench = Bench::new(2);
    bench.pool = BackendSet::default();
    let nowhere = bench.decide(&mut cost(), &prompt(0..4)).unwrap_err();
    assert!(matches!(&nowhere, Nowhere::NoBackend(d) if d.considered == 0 && d.backend.is_none()));
}

#[test]
fn backends_that_take_nothing_are_counted_by_reason() {
    let mut bench = Bench::new(5);
    bench.fleet.backend(BackendId(0)).set_enabled(false);
    bench.fleet.backend(BackendId(1)).set_healthy(false);
    bench.fleet.backend(BackendId(2)).set_breaker_open(true);
    bench.excluded.insert(BackendId(3));
    bench.excluded.insert(BackendId(4));
    let nowhere = bench.decide(&mut cost(), &prompt(0..4)).unwrap_err();
    let Nowhere::NoBackend(decision) = nowhere else { panic!("{nowhere:?}") };
    let r = decision.refused;
    assert_eq!((r.disabled, r.unhealthy, r.breaker_open, r.excluded, r.busy()), (1, 1, 1, 2, 0));
    assert_eq!(decision.considered, 5);
    let shown = decision.candidates.iter().flatten().map(|c| c.verdict);
    assert!(shown.eq([
        Verdict::Refused(Refusal::Disabled),
        Verdict::Refused(Refusal::Unhealthy),
        Verdict::Refused(Refusal::BreakerOpen),
        Verdict::Refused(Refusal::Excluded),
        Verdict::Refused(Refusal::Excluded),
    ]));
}

#[test]
fn a_full_fleet_is_busy_not_broken() {
    let mut bench = Bench::new(2);
    bench.limit(1);
    bench.occupy(0, 5);
    bench.occupy(1, 5);
    let nowhere = bench.decide(&mut cost(), &prompt(0..4)).unwrap_err();
    assert!(matches!(&nowhere, Nowhere::Busy(d) if d.refused.busy_requests == 2));
}

#[test]
fn a_full_token_pool_is_busy_too() {
    let mut bench = Bench::new(1);
    bench.fleet.backend(BackendId(0)).set_limits(Limits { requests_max: 0, tokens_max: 100 });
    bench.occupy(0, 50);
    let nowhere = bench.decide(&mut cost(), &prompt(0..5)).unwrap_err();
    let Nowhere::Busy(decision) = nowhere else { panic!("{nowhere:?}") };
    let verdict = decision.candidates[0].unwrap().verdict;
    assert_eq!(verdict, Verdict::Refused(Refusal::Busy(Rejected::Tokens)));
}

#[test]
fn a_prompt_goes_where_its_prefix_is() {
    let mut bench = Bench::new(4);
    bench.store(2, &prompt(0..50));
    let decision = bench.decide(&mut cost(), &prompt(0..60)).unwrap();
    assert_eq!(decision.backend, Some(BackendId(2)));
    assert_eq!((decision.reason, decision.overlap_blocks), (Reason::Prefix, 50));
    assert_eq!(decision.predicted_cached_tokens, 50 * BLOCK_TOKENS);
    assert_eq!(decision.predicted_uncached_tokens, 10 * BLOCK_TOKENS);
}

#[test]
fn a_placed_request_is_charged_and_given_back() {
    let mut bench = Bench::new(1);
    bench.store(0, &prompt(0..50));
    let placed = bench.pick(&mut cost(), &prompt(0..60)).unwrap();
    let charged = placed.reservation.uncached_tokens();
    assert_eq!((charged, placed.decision.reason), (10 * BLOCK_TOKENS, Reason::Only));
    drop(placed);
    let backend = bench.fleet.backend(BackendId(0));
    assert_eq!((backend.slots.in_flight(), backend.load.uncached_tokens()), ((0, 0), 0));
}

#[test]
fn a_conversation_comes_home_even_without_evidence() {
    let mut bench = Bench::new(8);
    bench.pin(1, 5);
    // The pin counts as a conversation held, so without it this backend would come last among equals.
    let decision = bench.decide(&mut cost(), &prompt(0..20).of(1)).unwrap();
    assert_eq!((decision.backend, decision.reason), (Some(BackendId(5)), Reason::Conversation));
}

#[test]
fn a_full_home_is_waited_for_and_then_given_up() {
    let mut bench = Bench::new(3);
    bench.limit(1);
    bench.pin(1, 2);
    bench.occupy(2, 5);
    let turn = prompt(0..20).of(1);
    let nowhere = bench.decide(&mut cost(), &turn.clone().waited(HOME_WAIT_MS - 1)).unwrap_err();
    assert!(matches!(&nowhere, Nowhere::HomeFull(d) if d.home == Some(BackendId(2))));
    let decision = bench.decide(&mut cost(), &turn.waited(HOME_WAIT_MS)).unwrap();
    assert_eq!(decision.reason, Reason::Spilled);
    assert_ne!(decision.backend, Some(BackendId(2)));
    let now = bench.now;
    assert_eq!(bench.fleet.affinity().get(key(1), now), decision.backend, "it lives there now");
}

#[test]
fn a_request_without_a_home_takes_the_first_room() {
    let mut bench = Bench::new(2);
    bench.limit(1);
    bench.store(0, &prompt(0..20));
    bench.occupy(0, 5);
    let decision = bench.decide(&mut cost(), &prompt(0..20)).unwrap();
    assert_eq!(decision.backend, Some(BackendId(1)));
}

#[test]
fn policies_that_keep_no_home_do_not_wait_for_it() {
    for name in ["round_robin", "random", "least_requests", "power_of_two"] {
        let mut bench = Bench::new(2);
        bench.limit(1);
        bench.pin(1, 0);
        bench.occupy(0, 5);
        let mut picker = Picker::new(PolicyKind::parse(name).unwrap());
        let decision = bench.decide(&mut picker, &prompt(0..20).of(1)).unwrap();
        assert_eq!(decision.backend, Some(BackendId(1)), "{name}");
    }
}

#[test]
fn a_home_that_cannot_serve_is_replaced_at_once() {
    let mut bench = Bench::new(3);
    bench.pin(1, 2);
    bench.fleet.backend(BackendId(2)).set_healthy(false);
    let decision = bench.decide(&mut cost(), &prompt(0..20).of(1)).unwrap();
    assert_eq!(decision.reason, Reason::Rehomed);
    bench.pin(2, 1);
    bench.pool.remove(BackendId(1));
    let decision = bench.decide(&mut cost(), &prompt(0..20).of(2)).unwrap();
    assert_eq!((decision.backend, decision.home), (Some(BackendId(0)), Some(BackendId(1))));
    let shown: Vec<_> = decision.candidates.iter().flatten().map(|c| (c.id.0, c.verdict)).collect();
    assert_eq!(shown[1], (1, Verdict::Refused(Refusal::NotInPool)));
}

#[test]
fn equals_are_told_apart_by_conversations_held_then_by_lot() {
    let mut bench = Bench::new(4);
    bench.pin(1, 0);
    bench.pin(2, 1);
    let mut counts = [0; 4];
    for _ in 0..2000 {
        let decision = bench.decide(&mut cost(), &prompt([])).unwrap();
        counts[decision.backend.unwrap().index()] += 1;
    }
    assert_eq!(counts[..2], [0, 0], "those that hold conversations come last");
    assert!(counts[2] > 900 && counts[3] > 900, "{counts:?}");
}

#[test]
fn conversations_that_share_a_prompt_do_not_all_settle_on_one_backend() {
    // Nothing is ever in flight between turns, and one short system prompt is common to all.
    let mut bench = Bench::new(4);
    let mut picker = cost();
    for conversation in 0..448 {
        let turn = prompt((0..30).chain([1000 + conversation])).of(conversation);
        let id = bench.decide(&mut picker, &turn).unwrap().backend.unwrap();
        bench.store(id.0, &turn);
        bench.now = Millis(bench.now.0 + 1000);
    }
    let held = bench.conversations();
    assert!(held.iter().all(|&n| (80..=145).contains(&n)), "{held:?}");
}

#[test]
fn a_short_shared_prefix_never_outweighs_load() {
    let mut bench = Bench::new(4);
    bench.store(1, &prompt(0..10));
    bench.occupy(1, 10_000);
    let decision = bench.decide(&mut cost(), &prompt(0..50)).unwrap();
    assert_ne!(decision.backend, Some(BackendId(1)));
    let others: Vec<_> = decision.candidates.iter().flatten().map(|c| c.id.0).collect();
    assert_eq!(others[3], 1, "the loaded one comes last");
}

#[test]
fn a_template_is_worth_a_copy_elsewhere_sooner_than_a_conversation() {
    // Half the fleet is prefilling, so recomputing all is charged 1.1 a token, but 1 a token within a template.
    let mut bench = Bench::new(4);
    bench.store(0, &prompt(0..100));
    for branch in 0..16 {
        bench.store(0, &prompt((200..300).chain([1000 + branch])));
    }
    bench.occupy(0, 740);
    bench.occupy(1, 9000);
    let own = bench.decide(&mut cost(), &prompt(0..101)).unwrap();
    assert_eq!(own.backend, Some(BackendId(0)), "100 blocks of its own are worth waiting for");
    let shared = bench.decide(&mut cost(), &prompt((200..300).chain([2000]))).unwrap();
    assert_ne!(shared.backend, Some(BackendId(0)), "100 template blocks are not");
}

#[test]
fn siblings_of_one_instant_stay_together_before_anything_is_published() {
    let mut bench = Bench::new(4);
    let mut picker = cost();
    let first = bench.decide(&mut picker, &prompt(0..100)).unwrap();
    for sibling in 0..5 {
        let decision = bench.decide(&mut picker, &prompt((0..97).chain([1000 + sibling]))).unwrap();
        assert_eq!(decision.backend, first.backend);
        assert!(decision.overlap_blocks >= 64);
    }
}

#[test]
fn a_dry_run_leaves_nothing_behind() {
    let mut bench = Bench::new(3);
    let mut picker = cost();
    let turn = prompt(0..20).of(1);
    let decision = bench.explain(&mut picker, &turn);
    assert!(decision.backend.is_some());
    assert_eq!(bench.conversations(), [0, 0, 0]);
    assert!(bench.pool.iter().all(|id| bench.fleet.backend(id).slots.in_flight() == (0, 0)));
    assert_eq!(bench.explain(&mut picker, &turn).deepest_blocks, 0);
    bench.limit(1);
    (0..3).for_each(|id| bench.occupy(id, 1));
    assert_eq!(bench.explain(&mut picker, &turn).backend, None);
}

#[test]
fn candidates_are_shown_best_first() {
    let mut bench = Bench::new(20);
    (0..20).for_each(|id| bench.occupy(id, 100 * u64::from(id % 13)));
    let decision = bench.decide(&mut cost(), &prompt(0..4)).unwrap();
    let costs: Vec<f64> = decision
        .candidates
        .iter()
        .flatten()
        .map(|c| match c.verdict {
            Verdict::Chosen(score) | Verdict::Scored(score) => score.cost,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!((costs.len(), decision.considered), (8, 20));
    assert!(costs.is_sorted(), "{costs:?}");
}

/// Prefers low ids, and takes the best candidates' last slots while they are being scored, as other shards might.
#[derive(Debug)]
struct Thief {
    fleet: &'static Fleet,
    steals: u16,
}

impl Policy for Thief {
    fn name(&self) -> &'static str {
        "thief"
    }

    fn score(&mut self, _view: &View<'_>, candidate: &LoadView) -> Score {
        if candidate.id.0 < self.steals {
            std::mem::forget(self.fleet.reserve(candidate.id, Charge::default()));
        }
        Score::sum(&["id"], &[f64::from(candidate.id.0)])
    }

    fn keeps_home(&self) -> bool {
        true
    }
}

fn robbed(steals: u16, conversation_home: Option<u16>) -> Result<Decision, Nowhere> {
    let fleet: &'static Fleet = Box::leak(Box::new(Fleet::new(FleetConfig::with_capacity(12))));
    let (_writer, handle) = index(IndexConfig::default());
    let pool: BackendSet = (0..12).map(BackendId).collect();
    for id in pool.iter() {
        fleet.backend(id).set_limits(Limits { requests_max: 1, tokens_max: 0 });
    }
    let mut turn = prompt(0..4);
    if let Some(home) = conversation_home {
        fleet.affinity().set(fleet, key(1), BackendId(home), Millis(0));
        turn = turn.of(1);
    }
    let mut picker = Picker::with_policy(Box::new(Thief { fleet, steals }));
    let excluded = BackendSet::default();
    let ask = ask(Millis(0), 1, &pool, &excluded, &turn);
    picker.pick(fleet, handle.reader().load(), &ask).map(|placed| placed.decision)
}

#[test]
fn a_lost_race_goes_to_the_next_best() {
    let decision = robbed(3, None).unwrap();
    assert_eq!(decision.backend, Some(BackendId(3)));
    let lost = decision.candidates.iter().flatten();
    assert_eq!(lost.filter(|c| matches!(c.verdict, Verdict::LostRace(_))).count(), 3);
}

#[test]
fn more_lost_races_than_a_decision_shows_still_find_the_room_there_is() {
    let decision = robbed(10, None).unwrap();
    assert_eq!(decision.backend, Some(BackendId(10)));
    let last = decision.candidates[7].unwrap();
    assert_eq!((last.id, matches!(last.verdict, Verdict::Chosen(_))), (BackendId(10), true));
}

#[test]
fn losing_every_race_is_busy() {
    assert!(matches!(robbed(12, None), Err(Nowhere::Busy(d)) if d.backend.is_none()));
}

#[test]
fn losing_the_race_for_the_home_is_waiting_for_it() {
    assert!(matches!(robbed(1, Some(0)), Err(Nowhere::HomeFull(_))));
}

#[test]
fn round_robin_visits_everybody_in_turn_and_survives_changes() {
    let mut bench = Bench::new(4);
    let mut picker = Picker::new(PolicyKind::RoundRobin);
    let mut next = |bench: &mut Bench| bench.decide(&mut picker, &prompt([])).unwrap().backend;
    let first = next(&mut bench).unwrap().0;
    for step in 1..9 {
        assert_eq!(next(&mut bench), Some(BackendId((first + step) % 4)));
    }
    let gone = BackendId((first + 1) % 4);
    bench.pool.remove(gone);
    assert_eq!(next(&mut bench), Some(BackendId((first + 2) % 4)));
    bench.pool.insert(gone);
    assert_eq!(next(&mut bench), Some(BackendId((first + 3) % 4)));
}

#[test]
fn random_and_power_of_two_reach_everybody() {
    for (name, fair) in [("random", true), ("power_of_two", true)] {
        let mut bench = Bench::new(4);
        let mut picker = Picker::new(PolicyKind::parse(name).unwrap());
        let mut counts = [0; 4];
        for _ in 0..4000 {
            counts[bench.decide(&mut picker, &prompt([])).unwrap().backend.unwrap().index()] += 1;
        }
        assert_eq!(counts.iter().all(|&n| n > 850), fair, "{name}: {counts:?}");
    }
}

#[test]
fn power_of_two_avoids_the_busiest() {
    let mut bench = Bench::new(4);
    bench.occupy(1, 1);
    let mut picker = Picker::new(PolicyKind::PowerOfTwo);
    for _ in 0..500 {
        assert_ne!(bench.decide(&mut picker, &prompt([])).unwrap().backend, Some(BackendId(1)));
    }
}

#[test]
fn least_requests_goes_where_fewest_are() {
    let mut bench = Bench::new(3);
    bench.occupy(0, 1);
    bench.occupy(2, 1);
    let mut picker = Picker::new(PolicyKind::LeastRequests);
    assert_eq!(bench.decide(&mut picker, &prompt([])).unwrap().backend, Some(BackendId(1)));
}

#[test]
fn session_goes_home_however_busy_and_else_where_fewest_are() {
    let mut bench = Bench::new(3);
    bench.pin(1, 0);
    bench.occupy(0, 1);
    bench.occupy(0, 1);
    bench.occupy(2, 1);
    let mut picker = Picker::new(PolicyKind::Session);
    let home = bench.decide(&mut picker, &prompt(0..4).of(1)).unwrap();
    assert_eq!((home.backend, home.reason), (Some(BackendId(0)), Reason::Conversation));
    let new = bench.decide(&mut picker, &prompt(0..4).of(2)).unwrap();
    assert_eq!((new.backend, new.reason), (Some(BackendId(1)), Reason::Load));
}

#[test]
fn prefix_weighs_what_is_held_against_queue_and_pressure() {
    let mut bench = Bench::new(2);
    bench.limit(10);
    bench.store(0, &prompt(0..8));
    let kind = PolicyKind::Prefix { w_hit: 0.4, w_queue: 0.3, w_pressure: 0.3 };
    let mut picker = Picker::new(kind);
    let whole = bench.decide(&mut picker, &prompt(0..8)).unwrap();
    assert_eq!(whole.backend, Some(BackendId(0)));
    bench.fleet.backend(BackendId(0)).set_kv_usage_permille(900);
    (0..5).for_each(|_| bench.occupy(0, 1));
    let decision = bench.decide(&mut picker, &prompt(0..8)).unwrap();
    assert_eq!(decision.backend, Some(BackendId(1)));
    let Some(Verdict::Scored(score)) = decision.candidates[1].map(|c| c.verdict) else { panic!() };
    assert!((score.cost - (-0.4 + 0.3 * 0.5 + 0.3 * 0.9)).abs() < 1e-9, "{score:?}");
}

#[test]
fn the_cost_is_the_sum_the_documentation_gives() {
    let mut bench = Bench::new(2);
    bench.store(0, &prompt(0..8));
    bench.occupy(0, 50);
    let decision = bench.decide(&mut cost(), &prompt(0..10)).unwrap();
    let score = |id: u16| decision.candidates.iter().flatten().find(|c| c.id.0 == id).unwrap();
    let terms = |id: u16| match score(id).verdict {
        Verdict::Chosen(score) | Verdict::Scored(score) => score,
        other => panic!("{other:?}"),
    };
    // Half the backends have prefill pending, so s / (1 - s) is 1, and this prompt is the mean as long as no request was
    // placed: a = 1 + 0.1 * 50 / 80 + 0.1 * 16 / 80 here, and 1 + 0.1 * 80 / 80 there.
    let near = |value: f64, expected: f64| (value - expected).abs() < 1e-9;
    let expected =
        [("pending", 50.0), ("own", 1.0825 * 16.0), ("template", 0.0), ("requests", 100.0)];
    for (term, value) in expected {
        let found = terms(0).terms.iter().any(|t| t.0 == term && near(t.1, value));
        assert!(found, "{term}: {:?}", terms(0));
    }
    assert!(near(terms(0).cost, 50.0 + 17.32 + 100.0), "{:?}", terms(0));
    assert!(near(terms(1).cost, 1.1 * 80.0), "{:?}", terms(1));
}
