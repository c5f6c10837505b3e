//! One self-contained page: policies side by side on each workload, and weights to move. A browser cannot run the
//! simulator here, so the page carries a grid of its results over those weights and its sliders choose among them; it
//! says so. It loads nothing from anywhere.

mod grid;

use index::PolicyKind;
use serde::Serialize;

use super::ArenaError;
use super::args::Args;
use super::cells::{Cell, Scale};
use super::results::{Outcome, Row, quantile};
use super::routers::{CONFIGURED, Kind};

/// Points of a time-to-first-token distribution.
const QUANTILES: usize = 120;
/// Stretches of simulated time.
const STRETCHES: usize = 60;

/// One run, as the page shows it.
#[derive(Debug, Serialize)]
struct Figures {
    #[serde(flatten)]
    row: Row,
    /// Times to first token at evenly spaced shares, in seconds.
    ttft: Vec<f64>,
    /// Tokens computed although somebody had computed them before, by stretch of time.
    again: Vec<u64>,
    /// The same, by engine, most first.
    again_by_engine: Vec<u64>,
    /// Prefill seconds by engine, most first.
    worked_s: Vec<f64>,
    /// What the chosen scores were made of, on average.
    terms: Vec<(&'static str, f64)>,
    /// Length of a stretch, in seconds.
    stretch_s: f64,
}

/// One workload at one size.
#[derive(Debug, Serialize)]
struct Board {
    trace: String,
    backends: usize,
    capacity: usize,
    setting: String,
    runs: Vec<Figures>,
    grid: Vec<grid::Point>,
}

/// Makes the page of these cells, running the grid.
pub(super) fn page(
    args: &Args,
    scales: &[Scale],
    cells: &[Cell<'_>],
) -> Result<String, ArenaError> {
    let configured = cells.iter().find_map(|cell| match cell.entry.kind {
        Kind::Product(policy) if cell.entry.name == CONFIGURED => Some(policy),
        _ => None,
    });
    let board = |scale| board(args, scale, cells, configured);
    let boards: Vec<Board> = scales.iter().map(board).collect();
    let data = serde_json::to_string(&boards).map_err(ArenaError::Json)?;
    // No text of a trace's name may end the script it stands in.
    let data = data.replace('<', "\\u003c");
    let facts = crate::facts().to_string().replace('<', "\\u003c");
    Ok(include_str!("page.html")
        .replace("/*STYLE*/", include_str!("page.css"))
        .replace("/*CHARTS*/", include_str!("charts.js"))
        .replace("/*PAGE*/", include_str!("page.js"))
        .replace("/*FACTS*/", &facts)
        .replace("/*DATA*/", &data))
}

fn board(args: &Args, scale: &Scale, cells: &[Cell<'_>], configured: Option<PolicyKind>) -> Board {
    let here = cells.iter().filter(|cell| std::ptr::eq(cell.scale, scale));
    let runs = here.map(|cell| figures(args, scale, &cell.entry.name, &cell.outcome));
    Board {
        trace: scale.trace.clone(),
        backends: scale.backends,
        capacity: args.capacity,
        setting: scale.setting.clone(),
        runs: runs.collect(),
        grid: grid::points(args, scale, configured),
    }
}

fn figures(args: &Args, scale: &Scale, policy: &str, outcome: &Outcome) -> Figures {
    let ttft = outcome.ttft_sorted();
    let shares = (0..=QUANTILES).map(|at| at as f64 / QUANTILES as f64);
    let end_s = outcome.samples.iter().map(|sample| sample.arrived_s).fold(0.0, f64::max);
    let stretch_s = (end_s / STRETCHES as f64).max(f64::MIN_POSITIVE);
    let mut again = vec![0; STRETCHES];
    let mut again_by_engine = vec![0; outcome.worked_s.len()];
    for sample in &outcome.samples {
        let stretch = ((sample.arrived_s / stretch_s) as usize).min(STRETCHES - 1);
        again[stretch] += sample.computed.again;
        again_by_engine[sample.engine] += sample.computed.again;
    }
    again_by_engine.sort_unstable_by(|a, b| b.cmp(a));
    let mut worked_s: Vec<f64> = outcome.worked_s.iter().copied().map(short).collect();
    worked_s.sort_by(|a, b| b.total_cmp(a));
    Figures {
        row: outcome.row(&scale.trace, policy, args.capacity, &scale.setting),
        ttft: shares.map(|share| short(quantile(&ttft, share))).collect(),
        again,
        again_by_engine,
        worked_s,
        terms: outcome.terms.iter().map(|(name, value)| (*name, short(*value))).collect(),
        stretch_s: short(stretch_s),
    }
}

/// To thousandths: a page need not carry more.
fn short(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
