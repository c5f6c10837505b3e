//! What was measured, as it stands in the results: one cell a size of fleet, one row an index in it, medians over rounds.

use serde::{Deserialize, Serialize};

use crate::plan::Plan;
use crate::spread::Spread;
use crate::trial::Outcome;

/// A fleet's size and load, with what each index did.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Cell {
    pub(crate) backends: usize,
    pub(crate) block_tokens: u32,
    /// Blocks each backend holds.
    pub(crate) capacity_blocks: usize,
    pub(crate) resident_blocks: usize,
    pub(crate) distinct_blocks: usize,
    /// Blocks of a prompt, on average.
    pub(crate) prompt_blocks: f64,
    /// Blocks stored and evicted for a request, on average.
    pub(crate) updated_blocks: f64,
    pub(crate) fronts: usize,
    pub(crate) rounds: usize,
    pub(crate) rows: Vec<Row>,
}

impl Cell {
    pub(crate) fn new(plan: &Plan, fronts: usize, rounds: usize) -> Self {
        let measured = plan.measured();
        let count = measured.len().max(1) as f64;
        let blocks: usize = measured.iter().map(|request| request.blocks.len()).sum();
        Self {
            backends: plan.shape.backends,
            block_tokens: plan.shape.block_tokens(),
            capacity_blocks: plan.shape.blocks_max(),
            resident_blocks: plan.resident,
            distinct_blocks: plan.distinct,
            prompt_blocks: tenths(blocks as f64 / count),
            updated_blocks: tenths(Plan::block_updates(measured) as f64 / count),
            fronts,
            rounds,
            rows: Vec::new(),
        }
    }

    /// Whether two cells are of the same size.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let key =
            |cell: &Self| (cell.backends, cell.block_tokens, cell.capacity_blocks, cell.fronts);
        key(self) == key(other)
    }
}

/// One index.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Row {
    pub(crate) index: String,
    /// The operations used.
    pub(crate) calls: String,
    pub(crate) agreement: Agreement,
    /// Process memory it takes to hold what the fleet holds, bytes a resident block.
    pub(crate) bytes_per_block: f64,
    /// Updates alone.
    pub(crate) updates: Figures,
    /// Lookups alone, nothing being updated.
    pub(crate) alone: Figures,
    /// Lookups and updates as fast as they go.
    pub(crate) flat_out: Figures,
    /// At the highest rate it kept up with.
    pub(crate) keep_up: Figures,
    /// At nine tenths of the highest rate that all kept up with.
    pub(crate) common: Figures,
}

/// How an index's answers compare with the truth.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Agreement {
    pub(crate) prompts: u64,
    /// Pairs of a prompt and a backend that holds some of it.
    pub(crate) overlaps: u64,
    /// Blocks of these.
    pub(crate) blocks: u64,
    /// Pairs answered otherwise.
    pub(crate) differing: u64,
    pub(crate) missing_blocks: u64,
    pub(crate) surplus_blocks: u64,
}

/// Percentiles of times, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Percentiles {
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) p999: u64,
}

impl Percentiles {
    fn of(spread: &mut Spread) -> Self {
        let [p50, p99, p999] = [500, 990, 999].map(|permille| spread.permille(permille));
        Self { p50, p99, p999 }
    }

    fn medians(all: &[Self]) -> Self {
        let of = |part: fn(&Self) -> u64| median(all.iter().map(part).collect());
        Self { p50: of(|p| p.p50), p99: of(|p| p.p99), p999: of(|p| p.p999) }
    }
}

/// What one trial came to, or the medians of several.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Figures {
    /// Requests a second that were due; 0 without deadlines.
    pub(crate) offered: f64,
    /// Requests a second that were done, updates included.
    pub(crate) requests: f64,
    /// Blocks stored and evicted a second.
    pub(crate) block_updates: f64,
    /// The index's own call.
    pub(crate) lookup: Percentiles,
    /// Due, and the thread still busy with what came before.
    pub(crate) wait: Percentiles,
    /// Due, the thread free, and started late.
    pub(crate) lag: Percentiles,
    /// Handing a request's updates over.
    pub(crate) hand_over: Percentiles,
    /// How often a looking thread lost its core to another process.
    pub(crate) preempted: u64,
}

impl Figures {
    pub(crate) fn of(mut outcome: Outcome) -> Self {
        let times = &mut outcome.times;
        let [lookup, wait, lag, hand_over] =
            [&mut times.service, &mut times.wait, &mut times.lag, &mut times.hand_over]
                .map(Percentiles::of);
        Self {
            offered: outcome.offered.round(),
            requests: outcome.achieved().round(),
            block_updates: (outcome.block_updates as f64 / outcome.seconds).round(),
            lookup,
            wait,
            lag,
            hand_over,
            preempted: outcome.times.preempted,
        }
    }

    /// Each figure's median over rounds.
    pub(crate) fn medians(all: &[Self]) -> Self {
        let of =
            |part: fn(&Self) -> f64| median(all.iter().map(|f| part(f) as u64).collect()) as f64;
        let times = |part: fn(&Self) -> Percentiles| {
            Percentiles::medians(&all.iter().map(part).collect::<Vec<_>>())
        };
        Self {
            offered: of(|f| f.offered),
            requests: of(|f| f.requests),
            block_updates: of(|f| f.block_updates),
            lookup: times(|f| f.lookup),
            wait: times(|f| f.wait),
            lag: times(|f| f.lag),
            hand_over: times(|f| f.hand_over),
            preempted: median(all.iter().map(|f| f.preempted).collect()),
        }
    }
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

pub(crate) fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
