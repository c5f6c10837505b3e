//! The linear score: what is held, less how busy it is. A candidate's cost is the negated score, so that lower is better
//! here too. It never looks at prefill work.

use crate::{LoadView, Policy, Score, View};

/// `w_hit * hit - w_queue * queue - w_pressure * pressure`, each between 0 and 1.
#[derive(Debug)]
pub(super) struct Prefix {
    w_hit: f64,
    w_queue: f64,
    w_pressure: f64,
}

/// Requests that count as a full queue where the backend's own limit is unknown.
const QUEUE_FULL: f64 = 64.0;

impl Prefix {
    pub(super) fn new(w_hit: f64, w_queue: f64, w_pressure: f64) -> Self {
        Self { w_hit, w_queue, w_pressure }
    }
}

impl Policy for Prefix {
    fn name(&self) -> &'static str {
        "prefix"
    }

    fn score(&mut self, view: &View<'_>, candidate: &LoadView) -> Score {
        let terms = [
            -self.w_hit * hit(view, candidate),
            self.w_queue * queue(candidate),
            self.w_pressure * pressure(candidate),
        ];
        Score::sum(&["hit", "queue", "pressure"], &terms)
    }

    fn keeps_home(&self) -> bool {
        true
    }

    fn reads_evidence(&self) -> bool {
        true
    }
}

/// Share of the prompt's blocks held.
fn hit(view: &View<'_>, candidate: &LoadView) -> f64 {
    f64::from(candidate.overlap_blocks) / view.ask.blocks.len().max(1) as f64
}

/// Requests running or waiting there, against what it can run at once.
fn queue(candidate: &LoadView) -> f64 {
    let most = match candidate.requests_max {
        0 => QUEUE_FULL,
        max => f64::from(max),
    };
    f64::from(candidate.in_flight.max(candidate.queue_depth)) / most
}

/// Share of the KV pool in use: as reported, or as reserved where that is more.
fn pressure(candidate: &LoadView) -> f64 {
    let reserved = match candidate.tokens_max {
        0 => 0.0,
        max => candidate.tokens_in_flight as f64 / max as f64,
    };
    reserved.max(f64::from(candidate.kv_usage_permille) / 1000.0).min(1.0)
}
