//! What threads cost one another at the counters they share: two of them, each on a core of its own, take places and give
//! them back, as requests do, on backends of their own and on one.
//!
//! First on a copy of the counters, in which the packed word's lost races can be counted and the layout chosen: a padded
//! line each, as the fleet has it, one line each without room between, one line for both, one backend for both. Then on
//! the fleet itself, without marks and with them: those of 64 backends share a line. `--json FILE` keeps the rows with the
//! machine's facts; compare within a run.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bench::{Bench, Stopwatch};
use index::{BackendId, Charge, Fleet, FleetConfig};

/// Requests of a thread in a round: few, so that both threads run all of it where other work waits for the cores, too.
const REQUESTS: u64 = 20_000;
/// Cases take turns.
const ROUNDS: usize = 101;

const TOKENS: u64 = 1_000;
const UNCACHED: u64 = 100;
/// As in the fleet's word: requests above 44 bits of tokens.
const ONE_REQUEST: u64 = 1 << 44;

/// The counters that every request changes, as a backend has them.
#[derive(Default)]
struct Counters {
    held: AtomicU64,
    uncached: AtomicU64,
}

impl Counters {
    /// Takes a place and gives it back. Returns how many races it lost.
    fn request(&self) -> u64 {
        let mut lost = 0;
        let mut held = self.held.load(Ordering::Relaxed);
        let order = Ordering::Relaxed;
        while let Err(newer) =
            self.held.compare_exchange_weak(held, held + ONE_REQUEST + TOKENS, order, order)
        {
            held = newer;
            lost += 1;
        }
        self.uncached.fetch_add(UNCACHED, order);
        self.uncached.fetch_sub(UNCACHED, order);
        self.held.fetch_sub(ONE_REQUEST + TOKENS, order);
        lost
    }
}

/// As the fleet has them: the line beside is left free, because processors fetch lines in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Padded(Counters);

#[derive(Default)]
#[repr(align(64))]
struct Lined(Counters);

/// Both within one line.
#[derive(Default)]
#[repr(align(128))]
struct Together([Counters; 2]);

impl Together {
    /// A closure that named the field would take it out of its line.
    fn of(&self, backend: usize) -> &Counters {
        &self.0[backend]
    }
}

/// What one thread does so many times; the sum of lost races comes back.
type Work = Box<dyn Fn(usize, u64) -> u64 + Sync>;

struct Case {
    name: &'static str,
    threads: usize,
    work: Work,
}

impl Case {
    fn new(
        name: &'static str,
        threads: usize,
        request: impl Fn(usize) -> u64 + Sync + 'static,
    ) -> Self {
        let work = move |thread: usize, times: u64| (0..times).map(|_| request(thread)).sum();
        Self { name, threads, work: Box::new(work) }
    }

    /// One round: nanoseconds a request, the mean of its threads, and races lost by all.
    fn round(&self, requests: u64) -> (f64, u64) {
        let ready = AtomicUsize::new(0);
        let one = |thread: usize| {
            core_affinity::set_for_current(core_affinity::CoreId { id: thread });
            ready.fetch_add(1, Ordering::AcqRel);
            // Awake, so that both are on their cores when they begin.
            while ready.load(Ordering::Acquire) < self.threads {
                std::hint::spin_loop();
            }
            let watch = Stopwatch::start();
            let lost = (self.work)(thread, requests);
            (watch.ns(), lost)
        };
        let ends: Vec<(u64, u64)> = std::thread::scope(|scope| {
            let running: Vec<_> =
                (0..self.threads).map(|thread| scope.spawn(move || one(thread))).collect();
            running.into_iter().map(|thread| thread.join().expect("it ends")).collect()
        });
        let ns: u64 = ends.iter().map(|(ns, _)| ns).sum();
        let lost = ends.iter().map(|(_, lost)| lost).sum();
        (ns as f64 / (requests * ends.len() as u64) as f64, lost)
    }
}

fn copies() -> Vec<Case> {
    let (alone, one) = (Padded::default(), Padded::default());
    let padded: [Padded; 2] = Default::default();
    let lined: [Lined; 2] = Default::default();
    let together = Together::default();
    vec![
        Case::new("copy: one thread", 1, move |_| alone.0.request()),
        Case::new("copy: two backends, padded", 2, move |it| padded[it].0.request()),
        Case::new("copy: two backends, neighbouring lines", 2, move |it| lined[it].0.request()),
        Case::new("copy: two backends in one line", 2, move |it| together.of(it).request()),
        Case::new("copy: one backend", 2, move |_| one.0.request()),
    ]
}

fn fleets() -> Vec<Case> {
    let case = |name, threads, backends: usize, ids: [u16; 2]| {
        let fleet = Fleet::new(FleetConfig::with_capacity(backends));
        Case::new(name, threads, move |thread| {
            let charge = Charge { tokens: TOKENS, uncached_tokens: UNCACHED };
            let held = fleet.reserve(BackendId(ids[thread]), charge);
            u64::from(std::hint::black_box(held).is_err())
        })
    };
    vec![
        case("fleet of 2: one thread", 1, 2, [0, 0]),
        case("fleet of 2: two backends", 2, 2, [0, 1]),
        case("fleet of 2: one backend", 2, 2, [0, 0]),
        case("fleet of 200: one thread", 1, 200, [0, 0]),
        case("fleet of 200: marks in two lines", 2, 200, [0, 64]),
        case("fleet of 200: marks in one line", 2, 200, [0, 1]),
        case("fleet of 200: one backend", 2, 200, [0, 0]),
    ]
}

fn main() {
    let bench = Bench::from_args();
    let (requests, rounds) = if bench.is_smoke() { (1_000, 1) } else { (REQUESTS, ROUNDS) };
    let cases: Vec<Case> =
        copies().into_iter().chain(fleets()).filter(|case| bench.wants(case.name)).collect();
    let mut ns: Vec<Vec<f64>> = vec![Vec::new(); cases.len()];
    let mut lost = vec![0; cases.len()];
    for _ in 0..rounds {
        for (at, case) in cases.iter().enumerate() {
            let (each, races) = case.round(requests);
            ns[at].push(each);
            lost[at] += races;
        }
    }
    for ((case, ns), lost) in cases.iter().zip(&mut ns).zip(lost) {
        tell(&bench, case, ns, lost as f64 / (requests * (rounds * case.threads) as u64) as f64);
    }
    bench.finish();
}

fn tell(bench: &Bench, case: &Case, ns: &mut [f64], lost: f64) {
    ns.sort_unstable_by(f64::total_cmp);
    let (median, fastest) = (ns[ns.len() / 2], ns[0]);
    let counted = case.name.starts_with("copy");
    let races = if counted { format!("{lost:7.4} lost races") } else { String::new() };
    bench.line(&format!(
        "{:44} {median:7.1} ns a request, fastest {fastest:7.1} {races}",
        case.name
    ));
    bench.row(serde_json::json!({
        "case": case.name,
        "threads": case.threads,
        "ns_a_request": { "median": round(median), "fastest": round(fastest) },
        "lost_races_a_request": counted.then_some((lost * 10_000.0).round() / 10_000.0),
    }));
}

fn round(ns: f64) -> f64 {
    (ns * 10.0).round() / 10.0
}
