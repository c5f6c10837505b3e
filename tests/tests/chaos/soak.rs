//! The soak: full load with all the faults for minutes, and what the proxy holds meanwhile. Memory and descriptors must be
//! flat, and nothing may be held once it is over. `tests/soak` runs it; it is no part of an ordinary test run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::clients::converse;
use super::figures::{Figures, Levels, table};
use super::output::say;
use super::runs::{WHOLE, seed};
use super::schedule::{Fault, OFTEN_WELL_MS, schedule};
use super::talks::Talk;
use super::world::{ENGINES, World, levels_of};

/// Conversations at once: more than all slots together, so that some always wait.
const CLIENTS: u64 = 48;
const MINUTES: f64 = 20.0;
const SAMPLED_EVERY: Duration = Duration::from_secs(5);

/// How much the second half of a run may add to a level: a share of it, and a rest for what comes in pages and pools.
const GROWTH_SHARE: f64 = 0.05;
const GROWTH_BYTES: f64 = 2.0 * 1_048_576.0;
const GROWTH_DESCRIPTORS: f64 = 16.0;

/// The levels at one moment of the run.
#[derive(Debug)]
struct Sample {
    second: f64,
    levels: Levels,
}

/// How a level moved in the second half of a run.
#[derive(Debug, PartialEq)]
struct Trend {
    mean: f64,
    /// What the slope of the least squares comes to over the half.
    growth: f64,
}

impl Trend {
    /// Of the later half of these points: seconds and levels.
    fn of(points: &[(f64, f64)]) -> Trend {
        let half = &points[points.len() / 2..];
        let count = half.len().max(1) as f64;
        let sum = |part: &dyn Fn(&(f64, f64)) -> f64| half.iter().map(part).sum::<f64>();
        let (x, y) = (sum(&|point| point.0) / count, sum(&|point| point.1) / count);
        let spread = sum(&|point| (point.0 - x).powi(2));
        let slope = sum(&|point| (point.0 - x) * (point.1 - y)) / spread.max(f64::MIN_POSITIVE);
        let length =
            half.last().map_or(0.0, |point| point.0) - half.first().map_or(0.0, |point| point.0);
        Trend { mean: y, growth: slope * length }
    }

    fn is_flat(&self, rest: f64) -> bool {
        self.growth <= GROWTH_SHARE * self.mean + rest
    }
}

/// Clients that go on, one conversation after the other, until they are stopped.
async fn load(world: &World, seed: u64, stopped: &Arc<AtomicBool>) -> JoinSet<Figures> {
    let (addr, next) = (world.proxy.listen, Arc::new(AtomicU64::new(0)));
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (next, stopped) = (Arc::clone(&next), Arc::clone(stopped));
        clients.spawn(async move {
            let mut figures = Figures::default();
            // Both stand alone: a conversation more is no matter, and each number is handed out once.
            while !stopped.load(Ordering::Relaxed) {
                let talk = Talk::of(seed, next.fetch_add(1, Ordering::Relaxed));
                figures.add(converse(addr, talk, Arc::clone(&stopped)).await);
            }
            figures
        });
    }
    clients
}

/// Reads the proxy's levels every few seconds, for so long.
async fn samples(world_admin: std::net::SocketAddr, length: Duration) -> Vec<Sample> {
    let (began, mut all) = (Instant::now(), Vec::new());
    say("   second  RSS MiB  descr.  in flight  waiting  requests");
    while began.elapsed() < length {
        sleep(SAMPLED_EVERY.min(length / 20)).await;
        let (second, levels) = (began.elapsed().as_secs_f64(), levels_of(world_admin).await);
        let Levels { descriptors, in_flight, waiting, requests, resident_bytes, .. } = levels;
        let mib = resident_bytes as f64 / 1_048_576.0;
        say(&format!(
            "{second:>9.0}{mib:>9.1}{descriptors:>8}{in_flight:>11}{waiting:>9}{requests:>10}"
        ));
        all.push(Sample { second, levels });
    }
    all
}

/// Everything that was measured, for other programs.
fn report(
    seed: u64,
    all: &[Sample],
    memory: &Trend,
    descriptors: &Trend,
    figures: &Figures,
    after: &Levels,
) -> Value {
    let sample = |one: &Sample| {
        let Levels { resident_bytes, descriptors, in_flight, waiting, requests, .. } = one.levels;
        json!({ "second": one.second, "resident_bytes": resident_bytes, "descriptors": descriptors,
            "in_flight": in_flight, "waiting": waiting, "requests": requests })
    };
    let trend = |trend: &Trend| json!({ "mean": trend.mean, "growth_second_half": trend.growth });
    json!({
        "seed": seed,
        "samples": all.iter().map(sample).collect::<Vec<_>>(),
        "resident_bytes": trend(memory),
        "descriptors": trend(descriptors),
        "sent": figures.sent, "whole": figures.whole, "errors": figures.errors(), "gone": figures.gone,
        "lost": figures.violations.len(),
        "after": { "resident_bytes": after.resident_bytes, "descriptors": after.descriptors, "in_flight": after.in_flight,
            "tokens": after.tokens, "waiting": after.waiting, "in_engines": after.in_engines, "panics": after.panics },
    })
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes of full load: tests/soak runs it"]
async fn memory_and_descriptors_stay_flat_and_nothing_is_held_at_the_end() {
    let minutes =
        std::env::var("SOAK_MINUTES").map_or(MINUTES, |text| text.parse().expect("minutes"));
    let (seed, length) = (seed(), Duration::from_secs_f64(60.0 * minutes));
    let mut world = World::start(WHOLE).await;
    let before = world.levels().await;
    let stopped = Arc::new(AtomicBool::new(false));
    let mut clients = load(&world, seed, &stopped).await;
    let sampling = tokio::spawn(samples(world.proxy.admin, length));
    world.play(&schedule(seed, ENGINES, length, &Fault::ALL, OFTEN_WELL_MS)).await;
    let all = sampling.await.expect("samples");
    stopped.store(true, Ordering::Relaxed);
    let mut figures = Figures::default();
    while let Some(of_client) = clients.join_next().await {
        figures.merge(of_client.expect("a client does not panic"));
    }
    let after = world.levels_at_rest(before.descriptors).await;
    let points = |level: fn(&Levels) -> u64| -> Vec<(f64, f64)> {
        all.iter().map(|one| (one.second, level(&one.levels) as f64)).collect()
    };
    let memory = Trend::of(&points(|levels| levels.resident_bytes));
    let descriptors = Trend::of(&points(|levels| levels.descriptors));
    say(&table(&[("soak", &figures, &after)]));
    say(&format!(
        "second half: RSS {memory:.0?}, descriptors {descriptors:.1?}\nbefore {before:?}\nafter  {after:?}"
    ));
    if let Some(path) = std::env::var_os("SOAK_JSON") {
        let report = report(seed, &all, &memory, &descriptors, &figures, &after);
        std::fs::write(path, format!("{report:#}\n")).expect("the report is written");
    }
    assert!(memory.is_flat(GROWTH_BYTES), "{memory:?}");
    assert!(descriptors.is_flat(GROWTH_DESCRIPTORS), "{descriptors:?}");
    assert!(after.at_rest(before.descriptors) && after.panics == 0, "{after:?}");
    assert_eq!(figures.violations, [""; 0]);
}

#[test]
fn a_leak_is_told_from_a_level_that_goes_up_and_down() {
    let points = |level: fn(f64) -> f64| -> Vec<(f64, f64)> {
        (0..200).map(|at| (f64::from(at), level(f64::from(at)))).collect()
    };
    let waves = Trend::of(&points(|at| 50e6 + 3e6 * (at / 5.0).sin()));
    assert!(waves.is_flat(0.0), "{waves:?}");
    let begins = Trend::of(&points(|at| 50e6 * (1.0 - (-at / 10.0).exp())));
    assert!(begins.is_flat(0.0), "{begins:?}");
    let leaks = Trend::of(&points(|at| 50e6 + 100e3 * at));
    assert!(!leaks.is_flat(GROWTH_BYTES), "{leaks:?}");
    assert!((leaks.growth - 9.9e6).abs() < 1e3, "{leaks:?}");
}
