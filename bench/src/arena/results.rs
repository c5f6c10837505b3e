//! What a run came to: each request's sample, and the figures made of them. It prints nothing.

use serde::Serialize;

/// One request's end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// When it came, in seconds.
    pub arrived_s: f64,
    /// From then to the end of its prefill.
    pub ttft_s: f64,
    /// Where.
    pub engine: usize,
    /// Tokens prefilled for it.
    pub computed: Computed,
}

/// Tokens prefilled, and why they were not cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Computed {
    /// All of them.
    pub tokens: u64,
    /// Those that had been computed somewhere before.
    pub again: u64,
    /// Of these, those that had been computed on this very engine, which forgot them; the rest were another's.
    pub evicted: u64,
}

/// A run, raw.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Requests that ended, in that order.
    pub samples: Vec<Sample>,
    /// Blocks found cached.
    pub hit_blocks: u64,
    /// Blocks asked for.
    pub blocks: u64,
    /// Seconds of prefill of each engine.
    pub worked_s: Vec<f64>,
    /// What the chosen engines' scores were made of, on average.
    pub terms: Vec<(&'static str, f64)>,
    /// Answers cut off by failing engines.
    pub lost: usize,
}

/// One line of the results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Which workload.
    pub trace: String,
    /// Which router.
    pub policy: String,
    /// Engines.
    pub backends: usize,
    /// Blocks an engine's cache holds.
    pub capacity: usize,
    /// Blocks found cached, of all.
    pub hit: f64,
    /// Time to first token, mean, in seconds.
    pub ttft_mean: f64,
    /// Its median.
    pub ttft_p50: f64,
    /// Its 99th percentile.
    pub ttft_p99: f64,
    /// Tokens computed again because the engine had forgotten them, of all tokens prefilled.
    pub again_evicted: f64,
    /// Tokens computed again because they had been computed on other engines only, of all tokens prefilled.
    pub again_moved: f64,
    /// Most prefill work of an engine, against the mean: 1 is perfect.
    pub imbalance: f64,
    /// Requests that ended.
    pub done: usize,
    /// Mean time to first token of the requests that came in the second half of the run, in seconds: without the time a
    /// cold fleet takes to fill, and a router to learn.
    pub late_ttft_mean: f64,
    /// How many of those ended.
    pub late_done: usize,
    /// Answers cut off by failing engines; those not begun were placed anew.
    pub lost: usize,
    /// What else was set: load, copies, sessions, queue order, seed.
    pub setting: String,
}

impl Outcome {
    /// The figures.
    pub fn row(&self, trace: &str, policy: &str, capacity: usize, setting: &str) -> Row {
        let (ttft, late) = (self.ttft_sorted(), self.late_ttft());
        let worked: f64 = self.worked_s.iter().sum();
        let computed = self.computed();
        let most = self.worked_s.iter().copied().fold(0.0, f64::max);
        Row {
            trace: trace.to_owned(),
            policy: policy.to_owned(),
            backends: self.worked_s.len(),
            capacity,
            hit: self.hit_blocks as f64 / self.blocks.max(1) as f64,
            ttft_mean: ttft.iter().sum::<f64>() / ttft.len().max(1) as f64,
            ttft_p50: quantile(&ttft, 0.5),
            ttft_p99: quantile(&ttft, 0.99),
            again_evicted: computed.evicted as f64 / computed.tokens.max(1) as f64,
            again_moved: (computed.again - computed.evicted) as f64 / computed.tokens.max(1) as f64,
            imbalance: most * self.worked_s.len() as f64 / worked.max(1e-9),
            done: self.samples.len(),
            late_ttft_mean: late.iter().sum::<f64>() / late.len().max(1) as f64,
            late_done: late.len(),
            lost: self.lost,
            setting: setting.to_owned(),
        }
    }

    /// What all requests that ended had computed for them.
    fn computed(&self) -> Computed {
        let add = |sum: Computed, sample: &Sample| Computed {
            tokens: sum.tokens + sample.computed.tokens,
            again: sum.again + sample.computed.again,
            evicted: sum.evicted + sample.computed.evicted,
        };
        self.samples.iter().fold(Computed::default(), add)
    }

    /// Times to first token of what came in the second half of the time in which requests came.
    fn late_ttft(&self) -> Vec<f64> {
        let end_s = self.samples.iter().map(|sample| sample.arrived_s).fold(0.0, f64::max);
        let late = self.samples.iter().filter(|sample| sample.arrived_s >= end_s / 2.0);
        late.map(|sample| sample.ttft_s).collect()
    }

    /// All times to first token, in order.
    pub fn ttft_sorted(&self) -> Vec<f64> {
        let mut ttft: Vec<f64> = self.samples.iter().map(|sample| sample.ttft_s).collect();
        ttft.sort_by(f64::total_cmp);
        ttft
    }
}

/// The value below which this share of sorted values lies, interpolated between neighbours.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let place = share * last as f64;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    sorted[below] + (sorted[above.min(last)] - sorted[below]) * place.fract()
}
