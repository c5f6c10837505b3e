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
use super::routers::product::ProductOptions;
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
    let mut setting = format!("{setting} sched={} seed={}", args.sched, args.seed);
    if let Some(requests) = args.hold_requests {
        setting = format!("{setting} hold={requests}");
    }
    Ok(Scale { trace: stem(path), backends, workload, setting })
}

/// Runs a router at a scale. `None` where it has no meaning: the floor of a closed loop.
pub fn run(args: &Args, scale: &Scale, kind: Kind) -> Option<Outcome> {
    let engine = engine_options(args);
    let n = scale.backends;
    if let (Kind::Floor, Workload::Open(requests)) = (kind, &scale.workload) {
        return Some(bounded::floor(requests, compression(args, requests, n), n, engine));
    }
    let fleet = Fleet::new(FleetConfig {
        capacity: n,
        affinity_entries: AFFINITY_ENTRIES,
        affinity_idle_ms: AFFINITY_IDLE_MS,
    });
    let router = kind.build(n, args.capacity, &fleet, product_options(args))?;
    let (source, until_s) = match &scale.workload {
        Workload::Open(requests) => (Source::open(requests, compression(args, requests, n)), None),
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
    Some(Sim::new(n, engine, router, source, args.seed).run(until_s))
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

/// Runs every router at every scale, a few at a time. In order of scales, then routers; a cell is reported when it ends.
pub fn run_all<'s>(
    args: &Args,
    scales: &'s [Scale],
    entries: &'s [Entry],
    report: impl Fn(&Cell<'_>) + Sync,
) -> Vec<Cell<'s>> {
    let cells: Vec<(&Scale, &Entry)> =
        scales.iter().flat_map(|scale| entries.iter().map(move |entry| (scale, entry))).collect();
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(cells.len()));
    let take_cells = || {
        loop {
            // Relaxed: the counter hands out numbers and publishes nothing.
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(&(scale, entry)) = cells.get(place) else { return };
            let Some(outcome) = run(args, scale, entry.kind) else { continue };
            let cell = Cell { scale, entry, outcome };
            report(&cell);
            done.lock().unwrap_or_else(PoisonError::into_inner).push((place, cell));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..args.jobs.max(1) {
            scope.spawn(take_cells);
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, cell)| cell).collect()
}

/// Recorded seconds a simulated one, so that the load is as asked.
fn compression(args: &Args, requests: &[Request], backends: usize) -> f64 {
    let (span_s, tokens) = extent(requests);
    let prefill = span_s * backends as f64 * args.prefill_rate;
    args.compression.unwrap_or(args.rho * prefill / tokens as f64)
}

fn engine_options(args: &Args) -> EngineOptions {
    EngineOptions {
        capacity: args.capacity,
        prefill_rate: args.prefill_rate,
        decode_rate: args.decode_rate,
        slots: args.slots,
        ageing_tokens: args.sched,
        chunk_tokens: args.chunk_tokens,
        batch_slowdown: args.batch_slowdown,
    }
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
        ..ProductOptions::default()
    }
}
