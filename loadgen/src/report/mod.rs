//! What a run measured: the figures, as data.
//!
//! Serialises to the JSON of `--json`; [`table`] turns the same values into text. Nothing here
//! measures or prints.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;

pub mod output;
pub mod progress;
pub mod table;

/// One run, complete.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// From the first intended send to the end of the last reply, in seconds.
    pub elapsed_s: f64,
    /// How many requests, and how they ended.
    pub requests: Requests,
    /// Times, in milliseconds.
    pub latency: Latency,
    /// Prompt tokens reused and computed, as the engines reported them.
    pub tokens: Tokens,
    /// Failed requests by kind; the sum is `requests.failed`.
    pub errors: BTreeMap<String, u64>,
    /// The first detail seen of each kind of error.
    pub error_examples: BTreeMap<String, String>,
    /// Replies by HTTP status.
    pub statuses: BTreeMap<u16, u64>,
    /// Replies by the value of `x-shearwater-backend`; absent headers are not counted.
    pub backends: BTreeMap<String, u64>,
    /// What happened to connections.
    pub connections: ConnectionCounts,
    /// Bytes of request and reply bodies.
    pub bytes: ByteCounts,
    /// Sum of hashes of the whole replies' text, each chained to its request's body. Two runs with the same seed before simulated
    /// engines agree in it if and only if every request and every reply arrived as it was sent, in the right hands.
    pub replies_digest: String,
}

/// How requests ended. `sent = complete + failed + cancelled + unfinished`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Requests {
    /// Requests begun, and arrivals that were overrun.
    pub sent: u64,
    /// Replies that were whole and ended as their dialect says.
    pub complete: u64,
    /// Requests counted under `errors`.
    pub failed: u64,
    /// Requests the client hung up on by plan, before the first token.
    pub cancelled_in_prefill: u64,
    /// Requests the client hung up on by plan, after the first token.
    pub cancelled_mid_stream: u64,
    /// Requests still running when the run was stopped.
    pub unfinished: u64,
    /// Requests begun per second, from the start to the last begin.
    pub sent_per_s: f64,
    /// Whole replies per second of the run.
    pub complete_per_s: f64,
}

/// Distributions of times.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// First content event, from the intended send time; streams only.
    pub ttft: Percentiles,
    /// The same for the first turn of a conversation.
    pub ttft_first_turn: Percentiles,
    /// The same for later turns.
    pub ttft_followup: Percentiles,
    /// First content event, from the begin of work on the request: `ttft` without `issue_lag`. Good
    /// for comparing servers that are not loaded; under load it hides what `ttft` shows.
    pub ttft_from_send: Percentiles,
    /// Between one content event and the next.
    pub inter_token: Percentiles,
    /// From the moment a simulated engine wrote an event to the moment it was read here; only engines that stamp their events
    /// have it, and only on the same machine.
    pub event_delay: Percentiles,
    /// Whole replies, from the intended send time.
    pub total: Percentiles,
    /// How late this client was: from the intended send time to the begin of work on the request.
    pub issue_lag: Percentiles,
    /// Waiting for a free connection, and opening one where needed.
    pub connect: Percentiles,
}

/// A distribution in milliseconds, read from a histogram of three significant digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// Values recorded; all other fields are 0 without any.
    pub count: u64,
    /// Arithmetic mean.
    pub mean_ms: f64,
    /// Median.
    pub p50_ms: f64,
    /// 90th percentile.
    pub p90_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// 99.9th percentile.
    pub p99_9_ms: f64,
    /// Largest value.
    pub max_ms: f64,
}

impl Percentiles {
    /// Reads a histogram of microseconds.
    pub fn of_micros(histogram: &Histogram<u64>) -> Percentiles {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        if histogram.is_empty() {
            return Percentiles::default();
        }
        Percentiles {
            count: histogram.len(),
            mean_ms: histogram.mean() / 1e3,
            p50_ms: at(0.5),
            p90_ms: at(0.9),
            p99_ms: at(0.99),
            p99_9_ms: at(0.999),
            max_ms: histogram.max() as f64 / 1e3,
        }
    }
}

/// Token counts of all requests and of follow-up turns alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Tokens {
    /// All requests.
    pub all: TokenCounts,
    /// Second and later turns of conversations.
    pub followup: TokenCounts,
}

/// Prompt and reply tokens, summed over the replies that reported them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TokenCounts {
    /// Replies with a usable token count.
    pub replies_reporting: u64,
    /// Prompt tokens found in the engine's cache.
    pub reused: u64,
    /// Prompt tokens computed.
    pub recomputed: u64,
    /// Reply tokens.
    pub output: u64,
    /// `reused / (reused + recomputed)`, 0 without prompt tokens.
    pub hit_ratio: f64,
}

impl TokenCounts {
    /// Adds another sum to this one.
    pub fn add(&mut self, other: TokenCounts) {
        self.replies_reporting += other.replies_reporting;
        self.reused += other.reused;
        self.recomputed += other.recomputed;
        self.output += other.output;
        let prompt = self.reused + self.recomputed;
        self.hit_ratio = if prompt == 0 { 0.0 } else { self.reused as f64 / prompt as f64 };
    }
}

/// What happened to connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ConnectionCounts {
    /// Connections opened.
    pub opened: u64,
    /// Requests sent on a connection that had carried one before.
    pub reused: u64,
    /// Connections the server had closed while they were idle, seen before use: no error.
    pub closed_while_idle: u64,
}

/// Bytes of bodies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ByteCounts {
    /// Of requests.
    pub sent: u64,
    /// Of replies.
    pub received: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_read_in_milliseconds() {
        let mut histogram = Histogram::new(3).expect("three digits");
        (1..=1000).for_each(|n| histogram.record(n * 1000).expect("auto resize"));
        let read = Percentiles::of_micros(&histogram);
        assert_eq!(read.count, 1000);
        for (value, expected) in
            [(read.p50_ms, 500.0), (read.p90_ms, 900.0), (read.p99_9_ms, 999.0)]
        {
            assert!((value - expected).abs() < expected * 0.002, "{value} for {expected}");
        }
        assert!((read.mean_ms - 500.5).abs() < 1.0);
    }

    #[test]
    fn an_empty_histogram_reads_as_zeros() {
        let histogram = Histogram::new(3).expect("three digits");
        assert_eq!(Percentiles::of_micros(&histogram), Percentiles::default());
    }

    #[test]
    fn the_hit_ratio_is_taken_over_the_sums_not_over_the_ratios() {
        let mut sum = TokenCounts::default();
        sum.add(TokenCounts { reused: 90, recomputed: 10, ..TokenCounts::default() });
        sum.add(TokenCounts { reused: 0, recomputed: 900, ..TokenCounts::default() });
        assert!((sum.hit_ratio - 0.09).abs() < 1e-9);
    }
}
