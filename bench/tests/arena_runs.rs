//! Runs as such: whatever the router and whatever fails, every request ends once, and what is switched on has its effect.
//! The workload is made here, so that nothing has to be there to run these.

use std::sync::Arc;

use bench::arena::engine::EngineOptions;
use bench::arena::mersenne::Mersenne;
use bench::arena::results::Outcome;
use bench::arena::routers::product::{GIVE_WAY_MAX, ProductOptions, TURN_WAIT_MS};
use bench::arena::routers::{self, Entry, Kind};
use bench::arena::sim::{Outage, Sim};
use bench::arena::source::Source;
use bench::arena::workload::{BLOCK_TOKENS, Request};
use index::{Fleet, FleetConfig};

const SEED: u32 = 5;

/// Conversations that come back a few times each, two requests a second.
fn conversations(count: u64, turns: u64) -> Vec<Request> {
    let mut random = Mersenne::new(SEED);
    let mut requests = Vec::new();
    for turn in 0..turns {
        for session in 0..count {
            let blocks = 4 + session % 9 + 3 * turn;
            let own = |place: u64| if place < 2 { place } else { (session + 1) << 20 | place };
            requests.push(Request {
                at_s: ((turn * count + session) as f64 + random.unit()) * 0.5,
                prompt_tokens: blocks * BLOCK_TOKENS,
                output_tokens: 20 + session,
                blocks: (0..blocks).map(own).collect::<Arc<[u64]>>(),
                session,
            });
        }
    }
    requests.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    requests
}

struct Setup {
    engines: Vec<EngineOptions>,
    product: ProductOptions,
    replicas: usize,
    outages: Vec<Outage>,
}

impl Setup {
    fn new(engines: usize) -> Self {
        let options = EngineOptions { capacity: 300, ..EngineOptions::default() };
        Self {
            engines: vec![options; engines],
            product: ProductOptions::default(),
            replicas: 1,
            outages: Vec::new(),
        }
    }

    fn run(&self, kind: Kind, requests: &[Request]) -> Outcome {
        let config = FleetConfig::with_capacity(self.engines.len());
        let fleets: Vec<Fleet> = (0..self.replicas).map(|_| Fleet::new(config)).collect();
        let capacities: Vec<usize> = self.engines.iter().map(|engine| engine.capacity).collect();
        let router = kind.build(&capacities, &fleets, self.product).unwrap();
        let source = Source::open(requests, 1.0);
        let mut sim = Sim::new(&self.engines, router, source, SEED);
        self.outages.iter().for_each(|outage| sim.plan_outage(*outage));
        sim.run(None)
    }
}

fn real() -> Vec<Entry> {
    routers::all().into_iter().filter(|entry| entry.kind != Kind::Floor).collect()
}

fn cost() -> Kind {
    routers::named("cost").unwrap()[0].kind
}

#[test]
fn every_request_ends_once_whatever_the_router() {
    let requests = conversations(40, 6);
    for entry in real() {
        let outcome = Setup::new(4).run(entry.kind, &requests);
        assert_eq!(outcome.samples.len(), requests.len(), "{}", entry.name);
        let tokens: u64 = outcome.samples.iter().map(|sample| sample.computed.tokens).sum();
        let asked: u64 = requests.iter().map(|request| request.prompt_tokens).sum();
        assert!(tokens <= asked, "{}: no more is computed than asked for", entry.name);
    }
}

#[test]
fn engines_that_fail_lose_answers_begun_and_nothing_else() {
    let requests = conversations(40, 6);
    let mut setup = Setup::new(4);
    setup.outages = vec![
        Outage { engine: 1, at_s: 20.0, back_s: Some(40.0) },
        Outage { engine: 2, at_s: 0.0, back_s: Some(30.0) },
        Outage { engine: 3, at_s: 60.0, back_s: None },
    ];
    for entry in real() {
        let outcome = setup.run(entry.kind, &requests);
        assert_eq!(outcome.samples.len() + outcome.lost, requests.len(), "{}", entry.name);
        let during = |engine, from: f64, to: f64| {
            let here = outcome.samples.iter().filter(move |sample| sample.engine == engine);
            here.filter(move |sample| (from..to).contains(&sample.arrived_s)).count()
        };
        assert_eq!(during(1, 20.0, 40.0), 0, "{}: nothing goes where nobody is", entry.name);
        assert_eq!(during(3, 60.0, f64::MAX), 0, "{}", entry.name);
    }
}

/// When conversations begin, one after another.
const OPENINGS_S: f64 = 0.5;

/// Conversations of six turns that go on beginning; all prompts start with the same blocks.
fn ever_new(count: u64, shared: u64) -> Vec<Request> {
    let turn = |session: u64, turn: u64| {
        let blocks = shared + 3 + session % 7 + 2 * turn;
        let own = |place: u64| if place < shared { place } else { (session + 1) << 20 | place };
        Request {
            at_s: session as f64 * OPENINGS_S + turn as f64 * 7.31,
            prompt_tokens: blocks * BLOCK_TOKENS,
            output_tokens: 100,
            blocks: (0..blocks).map(own).collect::<Arc<[u64]>>(),
            session,
        }
    };
    let turns = |session| (0..6).map(move |number| turn(session, number));
    let mut requests: Vec<Request> = (0..count).flat_map(turns).collect();
    requests.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    requests
}

/// Under load everybody else holds what prompts begin with and the conversations that go on; still whoever comes back with
/// nothing is the least busy.
#[test]
fn one_of_four_engines_that_comes_back_cold_gets_at_least_a_tenth_of_new_conversations() {
    let mut setup = Setup::new(4);
    setup.outages = vec![Outage { engine: 2, at_s: 60.0, back_s: Some(90.0) }];
    for shared in [3, 30] {
        let requests = ever_new(400, shared);
        for policy in ["cost", "prefix", "session", "consistent_hash", "ewma"] {
            let outcome = setup.run(routers::named(policy).unwrap()[0].kind, &requests);
            let opens = |at_s: f64| (0..400).any(|session| session as f64 * OPENINGS_S == at_s);
            let mut new = [0_u32; 4];
            let back = outcome.samples.iter().filter(|s| (90.0..150.0).contains(&s.arrived_s));
            back.filter(|s| opens(s.arrived_s)).for_each(|sample| new[sample.engine] += 1);
            assert!(new[2] * 10 >= new.iter().sum(), "{policy}, {shared} shared: {new:?}");
        }
    }
}

#[test]
fn a_fleet_that_is_down_as_a_whole_keeps_everybody_waiting() {
    let requests = conversations(20, 2);
    let mut setup = Setup::new(2);
    let outage = |engine| Outage { engine, at_s: 0.0, back_s: Some(1000.0) };
    setup.outages = vec![outage(0), outage(1)];
    for entry in real() {
        let outcome = setup.run(entry.kind, &requests);
        assert_eq!(outcome.samples.len(), requests.len(), "{}", entry.name);
        assert!(outcome.samples.iter().all(|sample| sample.ttft_s > 900.0), "{}", entry.name);
    }
}

#[test]
fn requests_held_by_the_router_all_end_and_never_exceed_a_backends_room() {
    let requests = conversations(40, 6);
    let mut setup = Setup::new(2);
    setup.product.hold_requests = Some(1);
    let outcome = setup.run(cost(), &requests);
    assert_eq!(outcome.samples.len(), requests.len());
    let mut busy: Vec<Vec<(f64, f64)>> = vec![Vec::new(); 2];
    for (sample, request) in outcome.samples.iter().zip(in_order_of_end(&outcome, &requests)) {
        let first_s = sample.arrived_s + sample.ttft_s;
        let start_s = first_s - sample.computed.tokens as f64 / 8000.0;
        busy[sample.engine].push((start_s, first_s + request.output_tokens as f64 / 40.0));
    }
    for spans in &mut busy {
        spans.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(spans.windows(2).all(|pair| pair[1].0 >= pair[0].1 - 1e-6), "one at a time");
    }
}

/// The requests of an outcome's samples; they are told apart by when they came.
fn in_order_of_end<'r>(outcome: &Outcome, requests: &'r [Request]) -> Vec<&'r Request> {
    let find = |at_s: f64| requests.iter().find(|request| request.at_s == at_s).unwrap();
    outcome.samples.iter().map(|sample| find(sample.arrived_s)).collect()
}

#[test]
fn proxies_that_share_nothing_find_less_cached() {
    let requests = conversations(60, 8);
    let session = routers::named("session").unwrap()[0].kind;
    let mut setup = Setup::new(8);
    let together = setup.run(session, &requests);
    setup.replicas = 4;
    let apart = setup.run(session, &requests);
    assert_eq!(apart.samples.len(), requests.len());
    assert!(apart.hit_blocks < together.hit_blocks);
}

#[test]
fn a_batch_that_slows_decoding_keeps_slots_longer_but_loses_nobody() {
    let requests = conversations(60, 4);
    let mut setup = Setup::new(2);
    setup.engines.iter_mut().for_each(|engine| engine.slots = 4);
    let steady = setup.run(cost(), &requests);
    for engine in &mut setup.engines {
        (engine.chunk_tokens, engine.batch_slowdown) = (2048.0, 0.5);
    }
    let slowed = setup.run(cost(), &requests);
    assert_eq!(slowed.samples.len(), requests.len());
    let mean = |outcome: &Outcome| outcome.row("", "", 0, "").ttft_mean;
    assert!(mean(&slowed) > mean(&steady));
}

#[test]
fn slower_and_smaller_engines_get_their_own_size() {
    let requests = conversations(40, 4);
    let mut setup = Setup::new(2);
    (setup.engines[1].prefill_rate, setup.engines[1].capacity) = (800.0, 30);
    let outcome = setup.run(cost(), &requests);
    assert_eq!(outcome.samples.len(), requests.len());
    let on = |engine| outcome.samples.iter().filter(move |sample| sample.engine == engine).count();
    assert!(on(0) > on(1), "the work that is pending shows who is slow");
}

/// A request of a conversation that shares nothing with others.
fn request(session: u64, at_s: f64, blocks: u64) -> Request {
    Request {
        at_s,
        prompt_tokens: blocks * BLOCK_TOKENS,
        output_tokens: 20,
        blocks: (0..blocks).map(|place| (session + 1) << 20 | place).collect::<Arc<[u64]>>(),
        session,
    }
}

/// One that shows how fast the engine is, then three long ones at once and a short one behind them.
fn long_ones_and_a_short_one() -> Vec<Request> {
    vec![
        request(0, 0.0, 32),
        request(1, 10.0, 32),
        request(2, 10.1, 32),
        request(3, 10.2, 32),
        request(4, 10.3, 1),
    ]
}

#[test]
fn turns_are_waited_for_as_long_and_way_is_given_as_often_as_by_the_proxys_default() {
    let proxy = config::Config::from_backends(&["http://127.0.0.1:8000"], &[], None).unwrap();
    assert_eq!(proxy.routing.turn_wait_ms, TURN_WAIT_MS);
    assert_eq!(proxy.routing.give_way_max, GIVE_WAY_MAX);
}

#[test]
fn who_is_short_does_not_stand_behind_long_ones_that_wait_for_their_turn() {
    let requests = long_ones_and_a_short_one();
    let longest_s = 32.0 * BLOCK_TOKENS as f64 / EngineOptions::default().prefill_rate;
    let short_s = |setup: &Setup| {
        let outcome = setup.run(cost(), &requests);
        assert_eq!(outcome.samples.len(), requests.len());
        let short = outcome.samples.iter().find(|sample| sample.arrived_s == 10.3);
        short.expect("the short one").ttft_s
    };
    let mut setup = Setup::new(1);
    assert!(short_s(&setup) < longest_s, "{}", short_s(&setup));
    setup.product.turn_wait_ms = 0;
    assert!(short_s(&setup) > 2.0 * longest_s, "{}", short_s(&setup));
}

/// One that shows how fast the engine is and comes back, while a long one is prefilled there.
fn a_long_one_and_one_that_comes_home() -> Vec<Request> {
    vec![request(0, 0.0, 32), request(1, 10.0, 64), request(0, 11.0, 33)]
}

#[test]
fn a_long_one_gives_way_to_one_that_comes_home_and_loses_at_most_a_step_by_it() {
    let requests = a_long_one_and_one_that_comes_home();
    let of = |setup: &Setup, arrived_s: f64| {
        let outcome = setup.run(cost(), &requests);
        let blocks = requests.iter().map(|request| request.blocks.len() as u64).sum::<u64>();
        assert_eq!((outcome.samples.len(), outcome.blocks), (requests.len(), blocks));
        *outcome.samples.iter().find(|sample| sample.arrived_s == arrived_s).expect("it ended")
    };
    let mut setup = Setup::new(1);
    let rate = setup.engines[0].prefill_rate;
    let (long, home) = (of(&setup, 10.0), of(&setup, 11.0));
    assert!(home.ttft_s < 0.1, "{home:?}");
    let prompt = 64 * BLOCK_TOKENS;
    let step = setup.engines[0].step_tokens;
    let lost = long.computed.tokens - prompt;
    assert!(lost == long.computed.again && lost < step, "{long:?}");
    let alone_s = (prompt + lost) as f64 / rate;
    assert!((long.ttft_s - alone_s - home.ttft_s).abs() < 1e-3, "{long:?} {alone_s}");
    setup.engines[0].step_tokens = 0;
    let lost = of(&setup, 10.0).computed.tokens - prompt;
    assert_eq!(lost, 8_000, "where nothing is kept, a second's work");
    setup.product.give_way_max = 0;
    assert!(of(&setup, 11.0).ttft_s > 3.0, "{:?}", of(&setup, 11.0));
    assert_eq!(of(&setup, 10.0).computed.tokens, prompt);
}

#[test]
fn the_defaults_of_a_configuration_are_those_the_arena_runs_policies_with() {
    for policy in index::PolicyKind::ALL {
        let text = format!(
            "[[backend]]\nurl = \"http://127.0.0.1:1\"\n[routing]\npolicy = \"{}\"\n",
            policy.name()
        );
        let config = config::Config::parse("default.toml", &text).unwrap();
        assert_eq!(proxy::start::policy_of(&config), policy);
    }
}
