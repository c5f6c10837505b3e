//! The figures of a run while it is going on.

use std::collections::BTreeMap;

use serde::Serialize;

/// Counters since the start of a workload. Differences of two snapshots give rates.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LiveStats {
    /// Time since the start, in milliseconds.
    pub elapsed_ms: u64,
    /// Requests begun.
    pub sent: u64,
    /// Requests begun and not yet ended.
    pub in_flight: u64,
    /// Requests ended, in whatever way.
    pub done: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Requests the client hung up on by plan.
    pub cancelled: u64,
    /// Reused share of all prompt tokens reported, 0 to 1.
    pub hit_ratio: f64,
    /// The same for second and later turns.
    pub hit_ratio_followup: f64,
    /// Prompt tokens found in the engines' caches.
    pub tokens_reused: u64,
    /// Prompt tokens computed.
    pub tokens_recomputed: u64,
    /// Reply tokens reported.
    pub tokens_output: u64,
    /// Median time to the first token, in milliseconds from the intended send time.
    pub ttft_p50_ms: f64,
    /// 99th percentile of the same.
    pub ttft_p99_ms: f64,
    /// Replies by the value of `x-shearwater-backend`.
    pub per_backend: BTreeMap<String, u64>,
}
