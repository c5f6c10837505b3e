//! Sums of what requests measured: how one request went, added to counters and histograms.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::fault::Fault;
use crate::report::{
    ByteCounts, ConnectionCounts, Latency, Percentiles, Report, Requests, TokenCounts, Tokens,
};

/// Longest time a histogram tells apart: one hour, in microseconds. Longer ones count as an hour.
const TIME_MAX_MICROS: u64 = 3_600_000_000;

/// How one request went, from begin to end.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) end: End,
    /// Turn of the conversation, from 0.
    pub(crate) turn: u32,
    pub(crate) status: Option<u16>,
    pub(crate) backend: Option<String>,
    /// Times from the intended send time.
    pub(crate) first_token: Option<Duration>,
    pub(crate) total: Duration,
    pub(crate) issue_lag: Duration,
    pub(crate) connect: Option<Duration>,
    /// Of the reply's text, chained to the request's body.
    pub(crate) digest: u64,
    pub(crate) tokens: Option<TokenCounts>,
    pub(crate) bytes: ByteCounts,
}

/// The way a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Complete,
    CancelledInPrefill,
    CancelledMidStream,
    Failed(Fault),
}

/// The sums of one shard.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) sent: u64,
    pub(super) complete: u64,
    pub(super) failed: u64,
    pub(super) cancelled_in_prefill: u64,
    pub(super) cancelled_mid_stream: u64,
    /// From the start to the last begin, and to the last end.
    pub(super) last_sent: Duration,
    pub(super) last_end: Duration,
    pub(super) ttft_first_turn: Histogram<u64>,
    pub(super) ttft_followup: Histogram<u64>,
    pub(super) ttft_from_send: Histogram<u64>,
    pub(super) inter_token: Histogram<u64>,
    pub(super) event_delay: Histogram<u64>,
    pub(super) total: Histogram<u64>,
    pub(super) issue_lag: Histogram<u64>,
    pub(super) connect: Histogram<u64>,
    pub(super) tokens: Tokens,
    pub(super) errors: BTreeMap<String, u64>,
    pub(super) error_examples: BTreeMap<String, String>,
    pub(super) statuses: BTreeMap<u16, u64>,
    pub(super) backends: BTreeMap<String, u64>,
    pub(super) connections: ConnectionCounts,
    pub(super) bytes: ByteCounts,
    /// Sum of the digests of whole replies: the order in which they end does not matter.
    pub(super) digest: u64,
}

impl Tally {
    pub(super) fn new() -> Tally {
        Tally {
            sent: 0,
            complete: 0,
            failed: 0,
            cancelled_in_prefill: 0,
            cancelled_mid_stream: 0,
            last_sent: Duration::ZERO,
            last_end: Duration::ZERO,
            ttft_first_turn: histogram(),
            ttft_followup: histogram(),
            ttft_from_send: histogram(),
            inter_token: histogram(),
            event_delay: histogram(),
            total: histogram(),
            issue_lag: histogram(),
            connect: histogram(),
            tokens: Tokens::default(),
            errors: BTreeMap::new(),
            error_examples: BTreeMap::new(),
            statuses: BTreeMap::new(),
            backends: BTreeMap::new(),
            connections: ConnectionCounts::default(),
            bytes: ByteCounts::default(),
            digest: 0,
        }
    }

    pub(super) fn done(&self) -> u64 {
        self.complete + self.failed + self.cancelled_in_prefill + self.cancelled_mid_stream
    }

    pub(super) fn failed(&mut self, fault: &Fault) {
        self.failed += 1;
        let name = fault.kind.name();
        *self.errors.entry(name.to_owned()).or_default() += 1;
        self.error_examples.entry(name.to_owned()).or_insert_with(|| fault.detail.clone());
    }

    pub(super) fn ended(&mut self, outcome: &Outcome, at: Duration) {
        match &outcome.end {
            End::Complete => {
                self.complete += 1;
                self.digest = self.digest.wrapping_add(outcome.digest);
                record(&mut self.total, outcome.total);
            }
            End::CancelledInPrefill => self.cancelled_in_prefill += 1,
            End::CancelledMidStream => self.cancelled_mid_stream += 1,
            End::Failed(fault) => self.failed(fault),
        }
        self.last_end = self.last_end.max(at);
        record(&mut self.issue_lag, outcome.issue_lag);
        if let Some(connect) = outcome.connect {
            record(&mut self.connect, connect);
        }
        if let Some(first_token) = outcome.first_token {
            let first_turn = outcome.turn == 0;
            let ttft = if first_turn { &mut self.ttft_first_turn } else { &mut self.ttft_followup };
            record(ttft, first_token);
            record(&mut self.ttft_from_send, first_token.saturating_sub(outcome.issue_lag));
        }
        self.bytes.sent += outcome.bytes.sent;
        self.bytes.received += outcome.bytes.received;
        self.reply_seen(outcome);
    }

    fn reply_seen(&mut self, outcome: &Outcome) {
        if let Some(status) = outcome.status {
            *self.statuses.entry(status).or_default() += 1;
        }
        if let Some(backend) = &outcome.backend {
            match self.backends.get_mut(backend) {
                Some(count) => *count += 1,
                None => drop(self.backends.insert(backend.clone(), 1)),
            }
        }
        if let Some(tokens) = outcome.tokens {
            self.tokens.all.add(tokens);
            if outcome.turn > 0 {
                self.tokens.followup.add(tokens);
            }
        }
    }

    pub(super) fn add(&mut self, other: &Tally) {
        self.sent += other.sent;
        self.complete += other.complete;
        self.failed += other.failed;
        self.cancelled_in_prefill += other.cancelled_in_prefill;
        self.cancelled_mid_stream += other.cancelled_mid_stream;
        self.last_sent = self.last_sent.max(other.last_sent);
        self.last_end = self.last_end.max(other.last_end);
        add(&mut self.ttft_first_turn, &other.ttft_first_turn);
        add(&mut self.ttft_followup, &other.ttft_followup);
        add(&mut self.ttft_from_send, &other.ttft_from_send);
        add(&mut self.inter_token, &other.inter_token);
        add(&mut self.event_delay, &other.event_delay);
        self.digest = self.digest.wrapping_add(other.digest);
        add(&mut self.total, &other.total);
        add(&mut self.issue_lag, &other.issue_lag);
        add(&mut self.connect, &other.connect);
        self.tokens.all.add(other.tokens.all);
        self.tokens.followup.add(other.tokens.followup);
        merge(&mut self.errors, &other.errors);
        merge(&mut self.statuses, &other.statuses);
        merge(&mut self.backends, &other.backends);
        for (kind, example) in &other.error_examples {
            self.error_examples.entry(kind.clone()).or_insert_with(|| example.clone());
        }
        self.connections.opened += other.connections.opened;
        self.connections.reused += other.connections.reused;
        self.connections.closed_while_idle += other.connections.closed_while_idle;
        self.bytes.sent += other.bytes.sent;
        self.bytes.received += other.bytes.received;
    }

    pub(super) fn into_report(self) -> Report {
        let mut ttft = self.ttft_first_turn.clone();
        add(&mut ttft, &self.ttft_followup);
        Report {
            elapsed_s: self.last_end.as_secs_f64(),
            requests: self.requests(),
            latency: Latency {
                ttft: Percentiles::of_micros(&ttft),
                ttft_first_turn: Percentiles::of_micros(&self.ttft_first_turn),
                ttft_followup: Percentiles::of_micros(&self.ttft_followup),
                ttft_from_send: Percentiles::of_micros(&self.ttft_from_send),
                inter_token: Percentiles::of_micros(&self.inter_token),
                event_delay: Percentiles::of_micros(&self.event_delay),
                total: Percentiles::of_micros(&self.total),
                issue_lag: Percentiles::of_micros(&self.issue_lag),
                connect: Percentiles::of_micros(&self.connect),
            },
            tokens: self.tokens,
            errors: self.errors,
            error_examples: self.error_examples,
            statuses: self.statuses,
            backends: self.backends,
            connections: self.connections,
            bytes: self.bytes,
            replies_digest: format!("{:016x}", self.digest),
        }
    }

    fn requests(&self) -> Requests {
        let per_s = |count: u64, time: Duration| {
            if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
        };
        Requests {
            sent: self.sent,
            complete: self.complete,
            failed: self.failed,
            cancelled_in_prefill: self.cancelled_in_prefill,
            cancelled_mid_stream: self.cancelled_mid_stream,
            unfinished: self.sent - self.done(),
            // The first request begins at the start, so the rate is that of the gaps after it.
            sent_per_s: per_s(self.sent.saturating_sub(1), self.last_sent),
            complete_per_s: per_s(self.complete, self.last_end),
        }
    }
}

pub(super) fn histogram() -> Histogram<u64> {
    // Bounds and digits are constants that hdrhistogram accepts; the fallback is only for the type.
    Histogram::new_with_bounds(1, TIME_MAX_MICROS, 3)
        .unwrap_or_else(|_| unreachable!("constant bounds are valid"))
}

fn record(histogram: &mut Histogram<u64>, time: Duration) {
    histogram.saturating_record(time.as_micros() as u64);
}

/// Both histograms have the same bounds, so every value fits.
pub(super) fn add(sum: &mut Histogram<u64>, other: &Histogram<u64>) {
    let _ = sum.add(other);
}

pub(super) fn merge<K: Ord + Clone>(sum: &mut BTreeMap<K, u64>, other: &BTreeMap<K, u64>) {
    for (key, count) in other {
        *sum.entry(key.clone()).or_default() += count;
    }
}
