//! Latencies as Prometheus histograms, with vLLM's bucket bounds.

use super::super::model::{Event, EventKind, Micros};

/// Bounds of vLLM's `time_to_first_token_seconds`.
pub(crate) const TTFT_BOUNDS: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
/// Bounds of its `inter_token_latency_seconds`.
pub(crate) const ITL_BOUNDS: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];
/// Bounds of its `e2e_request_latency_seconds`.
pub(crate) const E2E_BOUNDS: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];

/// One histogram.
#[derive(Debug, Clone)]
pub(crate) struct Histogram {
    pub(crate) bounds: &'static [f64],
    /// Observations up to each bound, not cumulated; the last counts those above all.
    counts: Vec<u64>,
    pub(crate) sum: f64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    fn observe(&mut self, value_us: Micros) {
        let value = value_us as f64 / 1e6;
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket] += 1;
        self.sum += value;
    }

    /// Observations up to each bound, then all of them.
    pub(crate) fn cumulated(&self) -> Vec<u64> {
        let add = |total: &mut u64, count: &u64| {
            *total += count;
            Some(*total)
        };
        self.counts.iter().scan(0, add).collect()
    }

    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// The latencies an engine keeps.
#[derive(Debug, Clone)]
pub(crate) struct Latencies {
    pub(crate) ttft: Histogram,
    pub(crate) itl: Histogram,
    pub(crate) e2e: Histogram,
    pub(crate) queue: Histogram,
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            ttft: Histogram::new(TTFT_BOUNDS),
            itl: Histogram::new(ITL_BOUNDS),
            e2e: Histogram::new(E2E_BOUNDS),
            queue: Histogram::new(E2E_BOUNDS),
        }
    }
}

impl Latencies {
    /// Takes what this event says about a request submitted then, whose last token came then.
    pub(crate) fn observe(&mut self, event: &Event, submitted: Micros, last_token: Micros) {
        let since = event.at.saturating_sub(submitted);
        match event.kind {
            EventKind::Started { .. } => self.queue.observe(since),
            EventKind::Token { produced: 1 } => self.ttft.observe(since),
            EventKind::Token { .. } => self.itl.observe(event.at.saturating_sub(last_token)),
            EventKind::Finished => self.e2e.observe(since),
            EventKind::PrefillDone { .. } | EventKind::Overflowed => {}
        }
    }
}
