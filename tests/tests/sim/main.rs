//! A whole fleet, simulated from a seed: the product's decision core and waiting room before modelled engines, with
//! clients that leave, engines that die and operators that change their minds. After every event the world must be what
//! a far simpler shadow says.
//!
//! `SHEARWATER_SEED=n cargo test -p tests --test sim` runs one seed, the one a failure printed.

mod actions;
mod engines;
mod learning;
mod placing;
mod shadow;
mod traffic;
mod world;

use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use index::{Millis, PolicyKind};
use proxy::wait::{WaitRoom, Waits};
use shadow::{Checked, Violation};
use world::{Counts, Plant, Scenario, World, fleet};

/// Seeds that every run goes through, and seeds that are new each time.
const SEEDS_FIXED: u64 = 16;
const SEEDS_FRESH: usize = 4;

const STEPS: u32 = 600;

/// What one run came to.
#[derive(Debug, PartialEq, Eq)]
struct Ran {
    trace: u64,
    counts: Counts,
}

fn run(scenario: Scenario) -> Checked<Ran> {
    let fleet = fleet(&scenario);
    let mut world = World::new(scenario, &fleet);
    world.run()?;
    Ok(Ran { trace: world.trace.hash(), counts: world.counts })
}

/// The scenario of a seed: which policy, how many backends.
fn scenario(seed: u64) -> Scenario {
    let mut rng = fastrand::Rng::with_seed(!seed);
    // The default policy is half of all runs.
    let policies = PolicyKind::ALL;
    let policy =
        if rng.bool() { PolicyKind::DEFAULT } else { policies[rng.usize(..policies.len())] };
    Scenario {
        seed,
        policy,
        backends: rng.u16(2..8),
        shards: rng.usize(1..4),
        conversations_max: [20, 40, 80][rng.usize(0..3)],
        steps: STEPS,
        faults: true,
        plant: None,
    }
}

fn seeds() -> Vec<u64> {
    if let Ok(seed) = std::env::var("SHEARWATER_SEED") {
        let seed = seed.parse().unwrap_or_else(|e| panic!("SHEARWATER_SEED={seed}: {e}"));
        return vec![seed];
    }
    let fresh = (0..SEEDS_FRESH).map(|_| fastrand::u64(..) >> 32);
    (1..=SEEDS_FIXED).chain(fresh).collect()
}

#[test]
fn no_seed_breaks_a_rule() {
    let mut sum = Counts::default();
    let seeds = seeds();
    for &seed in &seeds {
        let scenario = scenario(seed);
        let ran = run(scenario.clone()).unwrap_or_else(|broken| {
            panic!("SHEARWATER_SEED={seed} breaks {broken}\n{scenario:?}")
        });
        let counts = ran.counts;
        sum.finished += counts.finished;
        sum.cancelled += counts.cancelled;
        sum.retried += counts.retried;
        sum.waited += counts.waited;
        sum.turns += counts.turns;
        sum.ways += counts.ways;
        sum.busy += counts.busy;
        sum.kills += counts.kills;
        sum.corrections += counts.corrections;
    }
    if seeds.len() == 1 {
        return;
    }
    // A simulation in which nothing happens finds nothing.
    let rare = [
        sum.finished,
        sum.cancelled,
        sum.retried,
        sum.waited,
        sum.turns,
        sum.ways,
        sum.busy,
        sum.kills,
        sum.corrections,
    ];
    assert!(rare.iter().all(|count| *count > 0), "{sum:?}");
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in [3, 5] {
        let first = run(scenario(seed));
        assert_eq!(first, run(scenario(seed)), "seed {seed}");
        assert!(first.is_ok_and(|ran| ran.counts.finished > 0), "seed {seed}");
    }
    assert_ne!(run(scenario(3)).map(|ran| ran.trace), run(scenario(4)).map(|ran| ran.trace));
}

/// Runs seeds with a planted violation until one finds it.
fn found(plant: Plant) -> Violation {
    let broken = |seed| run(Scenario { plant: Some(plant), ..scenario(seed) }).err();
    (1..=SEEDS_FIXED).find_map(broken).unwrap_or_else(|| panic!("{plant:?} is never found"))
}

#[test]
fn every_planted_violation_is_found() {
    let rows = [
        (Plant::LeakedReservation, "reservations"),
        (Plant::EndlessPrefill, "pending"),
        (Plant::ForgottenClear, "evidence"),
        (Plant::IgnoredSwitch, "decision"),
        (Plant::LostWaiter, "starvation"),
        (Plant::IgnoredBudget, "bounds"),
        (Plant::ForeignPool, "decision"),
        (Plant::LooseLimits, "limits"),
        (Plant::LostNotes, "stored"),
    ];
    for (plant, rule) in rows {
        let violation = found(plant);
        assert_eq!(violation.rule, rule, "{plant:?}: {violation}");
    }
}

/// Share of prompt tokens that engines had cached, in a fleet where nothing goes wrong.
fn hit_ratio(policy: PolicyKind) -> f64 {
    let (mut prompt, mut cached) = (0, 0);
    for seed in 1..=3 {
        let calm = Scenario { backends: 6, conversations_max: 40, faults: false, ..scenario(seed) };
        let ran = run(Scenario { policy, ..calm })
            .unwrap_or_else(|broken| panic!("seed {seed} breaks {broken}"));
        prompt += ran.counts.prompt_tokens;
        cached += ran.counts.cached_tokens;
    }
    cached as f64 / prompt as f64
}

#[test]
fn the_default_policy_finds_what_is_cached_and_round_robin_does_not() {
    let cost = hit_ratio(PolicyKind::DEFAULT);
    let round_robin = hit_ratio(PolicyKind::RoundRobin);
    assert!(cost > 0.7, "cost {cost}");
    assert!(cost > round_robin + 0.15, "cost {cost}, round robin {round_robin}");
}

/// Notes its name when it is woken.
struct Named(&'static str, Arc<Mutex<Vec<&'static str>>>);

impl Wake for Named {
    fn wake(self: Arc<Self>) {
        self.1.lock().expect("nobody panics holding it").push(self.0);
    }
}

#[test]
fn those_called_in_one_pulse_look_in_the_order_of_their_rank() {
    let (room, woken) = (Rc::new(WaitRoom::default()), Arc::default());
    let work = [("giant", 90_000), ("small", 700), ("middle", 9_000), ("tiny", 7)];
    let tickets = work.map(|(name, tokens)| {
        let waits = Waits { uncached_tokens: tokens, tokens, tenant: None };
        (name, room.enter(waits, Millis(0)))
    });
    for (name, ticket) in &tickets {
        let waker = Waker::from(Arc::new(Named(name, Arc::clone(&woken))));
        assert!(pin!(ticket.called()).poll(&mut Context::from_waker(&waker)).is_pending());
    }
    room.pulse(Millis(1));
    // Whoever looks first takes the room there is.
    let order = woken.lock().expect("nobody panics holding it").clone();
    assert_eq!(order, ["tiny", "small", "middle", "giant"]);
}
