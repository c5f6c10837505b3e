//! The runs themselves: a thousand conversations while everything that can fail does, with the whole proxy and with the
//! plainest one it can be, and a fleet that is only ever busy.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::clients::converse;
use super::figures::{Figures, Levels, table};
use super::output::say;
use super::schedule::{Fault, HARDLY_WELL_MS, schedule};
use super::talks::Talk;
use super::world::{ENGINES, World};

const TALKS: u64 = 1_000;
const LENGTH: Duration = Duration::from_secs(20);

/// Everything on, with timers short enough for engines that hang to be given up within the run.
pub(crate) const WHOLE: &str = "[routing]\nhome_wait_ms = 300\nqueue_wait_ms = 8000\n\
    [timeouts]\nconnect_ms = 1000\nfirst_byte_ms = 1200\nstream_idle_ms = 1200\nwrite_stall_ms = 2500\n\
    [health]\ninterval_ms = 100\ntimeout_ms = 500\nscrape_interval_ms = 100\n";

/// In turn, without waiting for room and without taking a backend out by its health; the rest cannot be switched off.
const PLAIN: &str = "[routing]\npolicy = \"round_robin\"\nhome_wait_ms = 0\nqueue_wait_ms = 0\nqueue_max = 0\n\
    [timeouts]\nconnect_ms = 1000\nfirst_byte_ms = 1200\nstream_idle_ms = 1200\nwrite_stall_ms = 2500\n\
    [health]\ninterval_ms = 100\ntimeout_ms = 500\nscrape_interval_ms = 100\nfailures_to_down = 1000\n";

/// Engines that are only busy: no timer that takes a long wait for a failure.
const PATIENT: &str = "[routing]\nhome_wait_ms = 300\nqueue_wait_ms = 8000\n\
    [health]\ninterval_ms = 100\nscrape_interval_ms = 100\n";

/// Runs load both cores: side by side their figures would say nothing.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// The seed of a check: what fails with it fails because of what was changed.
const USUAL_SEED: u64 = 101;

/// `SHEARWATER_SEED`: a number, or `random` for a new one; printed whichever it is.
pub(crate) fn seed() -> u64 {
    let seed = match std::env::var("SHEARWATER_SEED").as_deref() {
        Err(_) => USUAL_SEED,
        Ok("random") => fastrand::u64(..) >> 32,
        Ok(text) => text.parse().unwrap_or_else(|e| panic!("SHEARWATER_SEED={text}: {e}")),
    };
    say(&format!("SHEARWATER_SEED={seed}"));
    seed
}

/// A run: so many conversations, begun evenly over its length, while the schedule is played.
async fn run(
    seed: u64,
    settings: &str,
    ways: &[Fault],
    talks: u64,
    length: Duration,
) -> (Figures, Levels) {
    let mut world = World::start(settings).await;
    let before = world.levels().await;
    let steps = schedule(seed, ENGINES, length, ways, HARDLY_WELL_MS);
    let (addr, never) = (world.proxy.listen, Arc::new(AtomicBool::new(false)));
    let mut clients = JoinSet::new();
    for number in 0..talks {
        let begins = length.mul_f64(number as f64 / talks as f64);
        let never = Arc::clone(&never);
        clients.spawn(async move {
            tokio::time::sleep(begins).await;
            converse(addr, Talk::of(seed, number), never).await
        });
    }
    world.play(&steps).await;
    let mut figures = Figures::default();
    while let Some(ended) = clients.join_next().await {
        figures.add(ended.expect("a client does not panic"));
    }
    let after = world.levels_at_rest(before.descriptors).await;
    assert!(
        after.at_rest(before.descriptors),
        "SHEARWATER_SEED={seed}: {before:?} became {after:?}"
    );
    (figures, after)
}

/// No request was lost, and each was counted once.
#[track_caller]
fn nothing_is_lost(seed: u64, figures: &Figures, after: &Levels) {
    let Figures { violations, sent, gone, .. } = figures;
    let mut kinds = BTreeMap::new();
    for seen in violations {
        // Each begins with the rule; the first of a rule stands for all.
        let rule = seen.split(':').next().unwrap_or_default();
        kinds.entry(rule).or_insert((0, seen)).0 += 1;
    }
    assert!(kinds.is_empty(), "SHEARWATER_SEED={seed}: requests are lost: {kinds:#?}");
    assert_eq!(after.panics, 0, "SHEARWATER_SEED={seed}");
    // Who leaves at once may be gone before the request was read.
    let counted = sent - gone..=*sent;
    assert!(
        counted.contains(&after.requests),
        "SHEARWATER_SEED={seed}: {} of {counted:?}",
        after.requests
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_ends_whole_or_in_an_error_of_its_dialect_or_without_its_client() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let seed = seed();
    let (ours, after) = run(seed, WHOLE, &Fault::ALL, TALKS, LENGTH).await;
    let (plain, after_plain) = run(seed, PLAIN, &Fault::ALL, TALKS, LENGTH).await;
    let runs = [("whole proxy", &ours, &after), ("round_robin", &plain, &after_plain)];
    say(&table(&runs));
    nothing_is_lost(seed, &ours, &after);
    nothing_is_lost(seed, &plain, &after_plain);
    // The faults are the schedule's; how many meet a refused key or a cut stream is chance, but seldom half of it.
    assert!(ours.whole >= plain.whole, "SHEARWATER_SEED={seed}");
    // A run in which nothing happens finds nothing. Whether anybody hears "busy" is chance: who waits for room seldom does.
    let rare = [ours.errors(), ours.gone, plain.errors(), after.retries, after.stalled_clients];
    assert!(rare.iter().all(|count| *count > 0), "SHEARWATER_SEED={seed}: {rare:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_that_is_only_ever_busy_opens_no_breaker() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let seed = seed();
    let (busy, after) = run(seed, PATIENT, &Fault::BUSY, TALKS / 4, LENGTH / 4).await;
    say(&table(&[("only busy", &busy, &after)]));
    nothing_is_lost(seed, &busy, &after);
    assert!(after.busy_answers > 0, "SHEARWATER_SEED={seed}: nobody was busy");
    assert_eq!(after.breaker_opened, 0, "SHEARWATER_SEED={seed}");
    assert_eq!(busy.broken, 0, "SHEARWATER_SEED={seed}: busy is told before a reply begins");
}
