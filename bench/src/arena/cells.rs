//! Cells: a workload, a fleet's size and a router, each run once. Cells are independent, so several run at a time; the
//! results come in the order asked for, whatever ended first.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use index::{Fleet, FleetConfig};

use super::ArenaError;
use super::args::Args;
use super::engine::EngineOptions;
use super::results::Outcome;
use super::routers::product::{GIVE_WAY_MAX, ProductOptions, TURN_WAIT_MS};
use super::routers::{Entry, Kind, bounded};
use super::sim::Sim;
use super::source::{ClosedOptions, Source};
use super::workload::{Request, Workload, copies, extent, stem};

/// Conversations remembered in a run; more than any workload has at once.
const AFFINITY_ENTRIES: usize = 1 << 17;
/// The proxy's default: half an hour.
const AFFINITY_IDLE_MS: u64 = 30 * 60 * 1000;

/// A workload at one size of fleet.
#[derive(Clone, Debug)]
pub struct Scale {
    /// What its rows are called.
    pub trace: String,
    /// Engines.
    pub backends: usize,
    /// What is replayed.
    pub workload: Workload,
    /// What else was set.
    pub setting: String,
}

/// Reads the workloads and makes them fit every size of fleet.
pub fn scales(args: &Args) -> Result<Vec<Scale>, ArenaError> {
    let mut scales = Vec::new();
    for path in &args.trace {
        let workload = Workload::read(path, args.seed)?;
        for &backends in &args.backends {
            scales.push(scale(args, path, &workload, backends)?);
        }
    }
    Ok(scales)
}

fn scale(
    args: &Args,
    path: &Path,
    workload: &Workload,
    backends: usize,
) -> Result<Scale, ArenaError> {
    if backends == 0 || backends > usize::from(u16::MAX) {
        return Err(ArenaError::Option(format!("--backends {backends}: 1 to 65535 make sense")));
    }
    let (workload, setting) = match workload {
        Workload::Open(requests) => {
            let count = args.backends_per_copy.map_or(args.copies, |each| {
                (backends as f64 / each.max(1) as f64).round() as usize
            });
            let load = match args.compression {
                Some(compression) => format!("x={compression}"),
                None => format!("rho={}", args.rho),
            };
            let setting = format!("{load} copies={}", count.max(1));
            (Workload::Open(copies(requests, count)), setting)
        }
        closed @ Workload::Closed(_) => {
            let setting = format!("K={} until={}", args.sessions_per_backend, args.until);
            (closed.clone(), setting)
        }
    };
    let setting = format!("{setting} sched={} seed={}{}", args.sched, args.seed, others(args));
    Ok(Scale { trace: stem(path), backends, workload, setting })
}

/// What else differs from the defaults, in short.
fn others(args: &Args) -> String {
    let mut text = String::new();
    let mut say = |name: &str, differs: bool, value: String| {
        if differs {
            text = format!("{text} {name}={value}");
        }
    };
    say("hold", args.hold_requests.is_some(), args.hold_requests.unwrap_or(0).to_string());
    say("turn_wait_ms", args.turn_wait_ms != TURN_WAIT_MS, args.turn_wait_ms.to_string());
    let defaults = EngineOptions::default();
    let ways = args.give_way_max;
    say("give_way_max", ways != GIVE_WAY_MAX, ways.to_string());
    say("step", args.step_tokens != defaults.step_tokens, args.step_tokens.to_string());
    say("home_wait_ms", args.home_wait_ms > 0, args.home_wait_ms.to_string());
    say("chunk", args.chunk_tokens > 0.0, args.chunk_tokens.to_string());
    say("slowdown", args.batch_slowdown > 0.0, args.batch_slowdown.to_string());
    say("speeds", !args.speeds.is_empty(), format!("{:?}", args.speeds));
    say("sizes", !args.sizes.is_empty(), format!("{:?}", args.sizes));
    say("outages", !args.outage.is_empty(), args.outage.len().to_string());
    say("replicas", args.replicas > 1, args.replicas.to_string());
    say("shards", args.shards > 1, args.shards.to_string());
    say("assumed", args.assumed_capacity != 1.0, args.assumed_capacity.to_string());
    say("publish", args.publish_delay > 0.0, args.publish_delay.to_string());
    say("reports", args.no_reports, "no".to_owned());
    say("conversations", args.no_conversations, "no".to_owned());
    text
}

/// Runs a router at a scale. `None` where it has no meaning: the floor of a closed loop.
pub fn run(args: &Args, scale: &Scale, kind: Kind) -> Option<Outcome> {
    let n = scale.backends;
    let engines = engines(args, n);
    if let (Kind::Floor, Workload::Open(requests)) = (kind, &scale.workload) {
        return Some(bounded::floor(requests, compression(args, requests, &engines), &engines));
    }
    let fleet = FleetConfig {
        capacity: n,
        affinity_entries: AFFINITY_ENTRIES,
        affinity_idle_ms: AFFINITY_IDLE_MS,
    };
    let fleets: Vec<Fleet> = (0..args.replicas.max(1)).map(|_| Fleet::new(fleet)).collect();
    let capacities: Vec<usize> = engines.iter().map(|engine| engine.capacity).collect();
    let router = kind.build(&capacities, &fleets, product_options(args))?;
    let (source, until_s) = match &scale.workload {
        Workload::Open(requests) => {
            (Source::open(requests, compression(args, requests, &engines)), None)
        }
        Workload::Closed(sessions) => {
            let options = ClosedOptions {
                sessions: args.sessions_per_backend * n,
                ramp_s: args.ramp,
                think_s_max: args.think_max,
                order_seed: args.order_seed,
            };
            (Source::closed(sessions, options), Some(args.until))
        }
    };
    let mut sim = Sim::new(&engines, router, source, args.seed);
    args.outage.iter().for_each(|outage| sim.plan_outage(*outage));
    Some(sim.run(until_s))
}

/// A cell that ran.
#[derive(Debug)]
pub struct Cell<'s> {
    /// Where.
    pub scale: &'s Scale,
    /// What.
    pub entry: &'s Entry,
    /// How it went.
    pub outcome: Outcome,
}

/// What ended so far, in place, and how far it was reported.
#[derive(Debug, Default)]
struct Ended<'s> {
    cells: Vec<Option<Option<Cell<'s>>>>,
    reported: usize,
}

impl<'s> Ended<'s> {
    /// Takes a cell in, or that it has no meaning, and reports what is next in order.
    fn take(&mut self, place: usize, cell: Option<Cell<'s>>, report: &impl Fn(&Cell<'_>)) {
        self.cells[place] = Some(cell);
        while let Some(Some(cell)) = self.cells.get(self.reported) {
            self.reported += 1;
            cell.iter().for_each(report);
        }
    }
}

/// Runs every router at every scale, a few at a time, and reports each in order: of scales, then of routers.
pub fn run_all<'s>(
    args: &Args,
    scales: &'s [Scale],
    entries: &'s [Entry],
    report: impl Fn(&Cell<'_>) + Sync,
) -> Vec<Cell<'s>> {
    let cells: Vec<(&Scale, &Entry)> =
        scales.iter().flat_map(|scale| entries.iter().map(move |entry| (scale, entry))).collect();
    let next = AtomicUsize::new(0);
    let slots = cells.iter().map(|_| None).collect();
    let ended = Mutex::new(Ended { cells: slots, reported: 0 });
    let take_cells = || {
        loop {
            // Relaxed: the counter hands out numbers and publishes nothing.
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(&(scale, entry)) = cells.get(place) else { return };
            let outcome = run(args, scale, entry.kind);
            let cell = outcome.map(|outcome| Cell { scale, entry, outcome });
            ended.lock().unwrap_or_else(PoisonError::into_inner).take(place, cell, &report);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..args.jobs.max(1) {
            scope.spawn(take_cells);
        }
    });
    let ended = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
    ended.cells.into_iter().flatten().flatten().collect()
}

/// Recorded seconds a simulated one, so that the load is as asked.
fn compression(args: &Args, requests: &[Request], engines: &[EngineOptions]) -> f64 {
    let (span_s, tokens) = extent(requests);
    let rate: f64 = engines.iter().map(|engine| engine.prefill_rate).sum();
    args.compression.unwrap_or(args.rho * span_s * rate / tokens as f64)
}

/// The engines: alike, or as the lists of factors say, over and over.
fn engines(args: &Args, backends: usize) -> Vec<EngineOptions> {
    let factor = |factors: &[f64], at: usize| match factors.len() {
        0 => 1.0,
        len => factors[at % len],
    };
    let engine = |at: usize| {
        let (speed, size) = (factor(&args.speeds, at), factor(&args.sizes, at));
        EngineOptions {
            capacity: ((args.capacity as f64 * size) as usize).max(1),
            prefill_rate: args.prefill_rate * speed,
            decode_rate: args.decode_rate * speed,
            slots: args.slots,
            ageing_tokens: args.sched,
            chunk_tokens: args.chunk_tokens,
            batch_slowdown: args.batch_slowdown,
            step_tokens: args.step_tokens,
        }
    };
    (0..backends).map(engine).collect()
}

fn product_options(args: &Args) -> ProductOptions {
    ProductOptions {
        shards: args.shards,
        publish_s: args.publish_delay,
        assumed_capacity: args.assumed_capacity,
        reports: !args.no_reports,
        conversations: !args.no_conversations,
        hold_requests: args.hold_requests,
        home_wait_ms: args.home_wait_ms,
        turn_wait_ms: args.turn_wait_ms,
        give_way_max: args.give_way_max,
        ageing_tokens: args.hold_ageing,
    }
}
