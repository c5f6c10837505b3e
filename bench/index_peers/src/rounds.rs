//! Rounds: in each, every index is given every load, one after the other, so that a busy moment of the machine meets all of
//! them. Medians over rounds are what is reported.

use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::agreement::agreement;
use crate::args::Args;
use crate::contenders::{
    Compressed, Contender, Dynamo, Nothing, Positional, Shearwater, Smg, filled,
};
use crate::cores::Cores;
use crate::facts::facts;
use crate::memory::resident_bytes;
use crate::output::{complain, print};
use crate::plan::{Plan, Shape};
use crate::results::{Agreement, Cell, Figures, Row, tenths};
use crate::table;
use crate::trace::Arrival;
use crate::trial::{Load, Outcome, enough, run};

/// Requests of the first, short trial, which tells how long the others are to be.
const PROBED: usize = 20_000;
/// Rates tried at most in one search.
const RATES: usize = 8;
/// The search ends when the highest rate kept up with and the lowest not are this close.
const CLOSE: f64 = 1.05;
/// A rate was kept up with if it was in any of so many trials: the machine has other things to do at times.
const CHANCES: usize = 2;
/// Indexes that are filled to learn what one takes.
const GROWN: u64 = 2;
/// The common rate, as a part of the slowest index's own.
const COMMON: f64 = 0.9;

/// An index, whatever its types.
#[derive(Clone, Copy)]
struct Entry {
    name: &'static str,
    calls: &'static str,
    run: fn(&Plan, &Cores, usize, Load) -> Outcome,
    agreement: fn(&Plan) -> Agreement,
    /// Bytes the process grew by.
    growth: fn(&Plan) -> u64,
}

fn entry<C: Contender>() -> Entry {
    let growth = |plan: &Plan| {
        // The first finds room in what planning left behind.
        let first = filled::<C>(plan);
        let before = resident_bytes();
        let more: Vec<C> = (0..GROWN).map(|_| filled::<C>(plan)).collect();
        let after = resident_bytes();
        drop((first, more));
        after.saturating_sub(before) / GROWN
    };
    Entry { name: C::NAME, calls: C::CALLS, run: run::<C>, agreement: agreement::<C>, growth }
}

fn entries(args: &Args) -> Vec<Entry> {
    let all = [
        entry::<Shearwater>(),
        entry::<Dynamo<Compressed>>(),
        entry::<Dynamo<Positional>>(),
        entry::<Smg>(),
        entry::<Nothing>(),
    ];
    let wanted =
        |entry: &Entry| args.only.as_ref().is_none_or(|only| entry.name.contains(only.as_str()));
    all.into_iter().filter(wanted).collect()
}

/// Results on disk.
#[derive(Debug, Default, Deserialize, Serialize)]
struct Report {
    facts: Value,
    cells: Vec<Cell>,
}

/// Measures everything, prints tables, and writes the results.
pub(crate) fn compare(args: &Args, arrivals: &[Arrival]) -> Result<(), String> {
    // Before any thread is bound to a core, or they would say that there is one.
    let facts = facts();
    let cores = Cores::of_process()?;
    let entries = entries(args);
    for &backends in &args.backends {
        let plan = Plan::new(arrivals, args.shape(backends));
        let mut cell = Cell::new(&plan, args.fronts, args.rounds);
        let rounds: Vec<Round> =
            (0..args.rounds).map(|_| Round::play(args, &plan, &cores, &entries)).collect();
        for (at, entry) in entries.iter().enumerate() {
            cell.rows.push(row(args, &plan, entry, &rounds, at)?);
        }
        table::lines(&cell).iter().for_each(|line| print(line));
        if let Some(path) = &args.json {
            record(path, &facts, cell)?;
        }
    }
    Ok(())
}

fn row(
    args: &Args,
    plan: &Plan,
    entry: &Entry,
    rounds: &[Round],
    at: usize,
) -> Result<Row, String> {
    let medians = |of: fn(&Five) -> Figures| {
        Figures::medians(&rounds.iter().map(|round| of(&round.0[at])).collect::<Vec<_>>())
    };
    let bytes = memory_in_a_process_of_its_own(args, plan.shape, entry.name)?;
    Ok(Row {
        index: entry.name.to_owned(),
        calls: entry.calls.to_owned(),
        agreement: (entry.agreement)(plan),
        bytes_per_block: tenths(bytes as f64 / plan.resident.max(1) as f64),
        updates: medians(|five| five.updates),
        alone: medians(|five| five.alone),
        flat_out: medians(|five| five.flat_out),
        keep_up: medians(|five| five.keep_up),
        common: medians(|five| five.common),
    })
}

/// What one index did in one round.
#[derive(Clone, Copy, Debug, Default)]
struct Five {
    updates: Figures,
    alone: Figures,
    flat_out: Figures,
    keep_up: Figures,
    common: Figures,
}

/// What all did in one round.
struct Round(Vec<Five>);

impl Round {
    fn play(args: &Args, plan: &Plan, cores: &Cores, entries: &[Entry]) -> Self {
        let mut fives = Vec::new();
        for entry in entries {
            let run = |load| (entry.run)(plan, cores, args.fronts, load);
            let long = enough(run(Load::FlatOut(PROBED)).achieved());
            let updates = Figures::of(run(Load::Updates(long)));
            let alone = Figures::of(run(Load::Lookups(long)));
            let flat_out = Figures::of(run(Load::FlatOut(long)));
            let keep_up = Figures::of(search(flat_out.requests, run));
            let (name, backends) = (entry.name, plan.shape.backends);
            complain(&format!("{name} {backends}: keeps up with {} a second", keep_up.offered));
            fives.push(Five { updates, alone, flat_out, keep_up, common: Figures::default() });
        }
        let slowest = fives.iter().map(|five| five.keep_up.offered).fold(f64::MAX, f64::min);
        for (five, entry) in fives.iter_mut().zip(entries) {
            let outcome = (entry.run)(plan, cores, args.fronts, Load::Rate(slowest * COMMON));
            five.common = Figures::of(outcome);
        }
        Self(fives)
    }
}

/// The highest rate kept up with, and what happened at it.
fn search(guess: f64, run: impl Fn(Load) -> Outcome) -> Outcome {
    let (mut best, mut failed) = (Outcome::default(), f64::MAX);
    let mut rate = guess;
    for _ in 0..RATES {
        let chances = (0..CHANCES).map(|_| run(Load::Rate(rate)));
        match chances.into_iter().find(Outcome::kept_up) {
            Some(outcome) => best = outcome,
            None => failed = rate,
        }
        rate = match (best.offered, failed) {
            (0.0, failed) => failed * 0.85,
            (kept, f64::MAX) => kept * 1.15,
            (kept, failed) if failed / kept < CLOSE => break,
            (kept, failed) => (kept * failed).sqrt(),
        };
    }
    best
}

fn memory_in_a_process_of_its_own(args: &Args, shape: Shape, name: &str) -> Result<u64, String> {
    let told = |why: std::io::Error| format!("measuring memory: {why}");
    let mut child = Command::new(std::env::current_exe().map_err(told)?);
    child.arg("--trace").arg(args.trace_path().unwrap_or_default());
    let numbers = [
        ("--backends", shape.backends),
        ("--capacity", shape.capacity),
        ("--split", shape.split),
        ("--requests", 0),
    ];
    numbers.iter().for_each(|(flag, number)| _ = child.args([flag, number.to_string().as_str()]));
    let output = child
        // What planning frees is to be gone before anything is measured.
        .env("MIMALLOC_PURGE_DELAY", "0")
        .args(["--memory-of", name])
        .output()
        .map_err(told)?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().map_err(|_| format!("measuring memory of {name}: {text}"))
}

/// What the process started for it does.
pub(crate) fn print_memory(args: &Args, arrivals: &[Arrival], name: &str) -> Result<(), String> {
    let entry = entries(args).into_iter().find(|entry| entry.name == name);
    let entry = entry.ok_or_else(|| format!("no index `{name}`"))?;
    let backends = *args.backends.first().ok_or("no size of fleet")?;
    print(&(entry.growth)(&Plan::new(arrivals, args.shape(backends))).to_string());
    Ok(())
}

/// Adds a cell to the results, in place of one of its size.
fn record(path: &Path, facts: &Value, cell: Cell) -> Result<(), String> {
    let told = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let mut report: Report = serde_json::from_str(&text).unwrap_or_default();
    report.facts = facts.clone();
    report.cells.retain(|old| !old.is_like(&cell));
    report.cells.push(cell);
    report.cells.sort_by_key(|cell| (std::cmp::Reverse(cell.block_tokens), cell.backends));
    let text = serde_json::to_string_pretty(&report).map_err(|why| told(&why))?;
    std::fs::write(path, text + "\n").map_err(|why| told(&why))
}
