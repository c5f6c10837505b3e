//! Where requests put their measurements, and where reports and snapshots are read from.
//!
//! Several shards, each behind its own lock and held for one update, so that threads do not wait
//! for each other. A request takes the lock a few times in its life, never once per event.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::time::Instant;

use super::fault::{Fault, FaultKind};
use super::live::LiveStats;
use crate::report::{
    ByteCounts, ConnectionCounts, Latency, Percentiles, Report, Requests, TokenCounts, Tokens,
};

/// Shards of a recorder; a few more than the threads that record.
const SHARDS: usize = 4;

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

/// What happened to a connection, for the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionEvent {
    Opened,
    Reused,
    ClosedWhileIdle,
}

/// All measurements of a workload.
#[derive(Debug)]
pub(crate) struct Recorder {
    started: Instant,
    shards: [Mutex<Stats>; SHARDS],
}

impl Recorder {
    pub(crate) fn new(started: Instant) -> Recorder {
        Recorder { started, shards: std::array::from_fn(|_| Mutex::new(Stats::new())) }
    }

    /// Counts a request as begun. `number` is any number spread over requests.
    pub(crate) fn began(&self, number: u64, at: Instant) {
        let mut stats = self.shard(number);
        stats.sent += 1;
        stats.last_sent = stats.last_sent.max(at.saturating_duration_since(self.started));
    }

    /// Counts an arrival that was never sent.
    pub(crate) fn overrun(&self, number: u64) {
        let mut stats = self.shard(number);
        stats.sent += 1;
        stats.failed(&Fault::new(FaultKind::Overrun, "too many requests in flight"));
    }

    pub(crate) fn ended(&self, number: u64, outcome: &Outcome) {
        let at = self.started.elapsed();
        self.shard(number).ended(outcome, at);
    }

    /// Adds gaps between content events, in microseconds.
    pub(crate) fn gaps(&self, number: u64, gaps_micros: &[u32]) {
        let mut stats = self.shard(number);
        for &gap in gaps_micros {
            stats.inter_token.saturating_record(u64::from(gap));
        }
    }

    pub(crate) fn connection(&self, number: u64, event: ConnectionEvent) {
        let mut stats = self.shard(number);
        match event {
            ConnectionEvent::Opened => stats.connections.opened += 1,
            ConnectionEvent::Reused => stats.connections.reused += 1,
            ConnectionEvent::ClosedWhileIdle => stats.connections.closed_while_idle += 1,
        }
    }

    /// Requests begun and not ended.
    pub(crate) fn in_flight(&self) -> u64 {
        (0..SHARDS as u64).map(|n| self.shard(n)).map(|s| s.sent - s.done()).sum()
    }

    pub(crate) fn snapshot(&self) -> LiveStats {
        let mut live = LiveStats::default();
        let (mut ttft, mut tokens) = (histogram(), Tokens::default());
        for number in 0..SHARDS as u64 {
            let stats = self.shard(number);
            live.sent += stats.sent;
            live.done += stats.done();
            live.errors += stats.failed;
            live.cancelled += stats.cancelled_in_prefill + stats.cancelled_mid_stream;
            add(&mut ttft, &stats.ttft_first_turn);
            add(&mut ttft, &stats.ttft_followup);
            tokens.all.add(stats.tokens.all);
            tokens.followup.add(stats.tokens.followup);
            merge(&mut live.per_backend, &stats.backends);
        }
        live.elapsed_ms = self.started.elapsed().as_millis() as u64;
        live.in_flight = live.sent - live.done;
        live.hit_ratio = tokens.all.hit_ratio;
        live.hit_ratio_followup = tokens.followup.hit_ratio;
        live.tokens_reused = tokens.all.reused;
        live.tokens_recomputed = tokens.all.recomputed;
        live.tokens_output = tokens.all.output;
        let percentiles = Percentiles::of_micros(&ttft);
        live.ttft_p50_ms = percentiles.p50_ms;
        live.ttft_p99_ms = percentiles.p99_ms;
        live
    }

    pub(crate) fn report(&self) -> Report {
        let mut sum = Stats::new();
        for number in 0..SHARDS as u64 {
            sum.add(&self.shard(number));
        }
        sum.into_report()
    }

    /// A poisoned lock still holds counters that are good enough to report.
    fn shard(&self, number: u64) -> MutexGuard<'_, Stats> {
        let shard = &self.shards[number as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sums of one shard.
#[derive(Debug)]
struct Stats {
    sent: u64,
    complete: u64,
    failed: u64,
    cancelled_in_prefill: u64,
    cancelled_mid_stream: u64,
    /// From the start to the last begin, and to the last end.
    last_sent: Duration,
    last_end: Duration,
    ttft_first_turn: Histogram<u64>,
    ttft_followup: Histogram<u64>,
    inter_token: Histogram<u64>,
    total: Histogram<u64>,
    issue_lag: Histogram<u64>,
    connect: Histogram<u64>,
    tokens: Tokens,
    errors: BTreeMap<String, u64>,
    error_examples: BTreeMap<String, String>,
    statuses: BTreeMap<u16, u64>,
    backends: BTreeMap<String, u64>,
    connections: ConnectionCounts,
    bytes: ByteCounts,
}

impl Stats {
    fn new() -> Stats {
        Stats {
            sent: 0,
            complete: 0,
            failed: 0,
            cancelled_in_prefill: 0,
            cancelled_mid_stream: 0,
            last_sent: Duration::ZERO,
            last_end: Duration::ZERO,
            ttft_first_turn: histogram(),
            ttft_followup: histogram(),
            inter_token: histogram(),
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
        }
    }

    fn done(&self) -> u64 {
        self.complete + self.failed + self.cancelled_in_prefill + self.cancelled_mid_stream
    }

    fn failed(&mut self, fault: &Fault) {
        self.failed += 1;
        let name = fault.kind.name();
        *self.errors.entry(name.to_owned()).or_default() += 1;
        self.error_examples.entry(name.to_owned()).or_insert_with(|| fault.detail.clone());
    }

    fn ended(&mut self, outcome: &Outcome, at: Duration) {
        match &outcome.end {
            End::Complete => {
                self.complete += 1;
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

    fn add(&mut self, other: &Stats) {
        self.sent += other.sent;
        self.complete += other.complete;
        self.failed += other.failed;
        self.cancelled_in_prefill += other.cancelled_in_prefill;
        self.cancelled_mid_stream += other.cancelled_mid_stream;
        self.last_sent = self.last_sent.max(other.last_sent);
        self.last_end = self.last_end.max(other.last_end);
        add(&mut self.ttft_first_turn, &other.ttft_first_turn);
        add(&mut self.ttft_followup, &other.ttft_followup);
        add(&mut self.inter_token, &other.inter_token);
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

    fn into_report(self) -> Report {
        let mut ttft = self.ttft_first_turn.clone();
        add(&mut ttft, &self.ttft_followup);
        Report {
            elapsed_s: self.last_end.as_secs_f64(),
            requests: self.requests(),
            latency: Latency {
                ttft: Percentiles::of_micros(&ttft),
                ttft_first_turn: Percentiles::of_micros(&self.ttft_first_turn),
                ttft_followup: Percentiles::of_micros(&self.ttft_followup),
                inter_token: Percentiles::of_micros(&self.inter_token),
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
            sent_per_s: per_s(self.sent, self.last_sent),
            complete_per_s: per_s(self.complete, self.last_end),
        }
    }
}

fn histogram() -> Histogram<u64> {
    // Bounds and digits are constants that hdrhistogram accepts; the fallback is only for the type.
    Histogram::new_with_bounds(1, TIME_MAX_MICROS, 3)
        .unwrap_or_else(|_| unreachable!("constant bounds are valid"))
}

fn record(histogram: &mut Histogram<u64>, time: Duration) {
    histogram.saturating_record(time.as_micros() as u64);
}

/// Both histograms have the same bounds, so every value fits.
fn add(sum: &mut Histogram<u64>, other: &Histogram<u64>) {
    let _ = sum.add(other);
}

fn merge<K: Ord + Clone>(sum: &mut BTreeMap<K, u64>, other: &BTreeMap<K, u64>) {
    for (key, count) in other {
        *sum.entry(key.clone()).or_default() += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(turn: u32, end: End) -> Outcome {
        Outcome {
            end,
            turn,
            status: Some(200),
            backend: Some("a".to_owned()),
            first_token: Some(Duration::from_millis(10 * (u64::from(turn) + 1))),
            total: Duration::from_millis(100),
            issue_lag: Duration::ZERO,
            connect: None,
            tokens: Some(TokenCounts {
                replies_reporting: 1,
                reused: u64::from(turn) * 50,
                recomputed: 50,
                output: 4,
                hit_ratio: 0.0,
            }),
            bytes: ByteCounts { sent: 1, received: 2 },
        }
    }

    fn recorded(ends: &[(u32, End)]) -> Recorder {
        let recorder = Recorder::new(Instant::now());
        for (number, (turn, end)) in ends.iter().enumerate() {
            recorder.began(number as u64, Instant::now());
            recorder.ended(number as u64, &outcome(*turn, end.clone()));
        }
        recorder
    }

    #[test]
    fn follow_up_turns_are_counted_apart_and_in_all() {
        let report =
            recorded(&[(0, End::Complete), (1, End::Complete), (1, End::Complete)]).report();
        assert_eq!(report.tokens.all.reused, 100);
        assert_eq!(report.tokens.all.recomputed, 150);
        assert_eq!(report.tokens.followup.recomputed, 100);
        assert!((report.tokens.followup.hit_ratio - 0.5).abs() < 1e-9);
        assert_eq!(report.latency.ttft.count, 3);
        assert_eq!(report.latency.ttft_first_turn.count, 1);
        assert!((report.latency.ttft_followup.p50_ms - 20.0).abs() < 0.1);
    }

    #[test]
    fn every_request_is_counted_under_one_end() {
        let failed = End::Failed(Fault::new(FaultKind::CutShort, "closed"));
        let recorder = recorded(&[
            (0, End::Complete),
            (0, End::CancelledInPrefill),
            (0, End::CancelledMidStream),
            (0, failed.clone()),
            (0, failed),
        ]);
        recorder.began(9, Instant::now());
        recorder.overrun(10);
        let report = recorder.report();
        let counts = &report.requests;
        assert_eq!((counts.sent, counts.complete, counts.failed), (7, 1, 3));
        assert_eq!((counts.cancelled_in_prefill, counts.cancelled_mid_stream), (1, 1));
        assert_eq!(counts.unfinished, 1);
        assert_eq!(report.errors["cut_short"], 2);
        assert_eq!(report.errors["overrun"], 1);
        assert_eq!(report.error_examples["cut_short"], "closed");
        assert_eq!(report.latency.total.count, 1, "only whole replies have a total time");
    }

    #[test]
    fn a_snapshot_agrees_with_the_report() {
        let recorder = recorded(&[(0, End::Complete), (1, End::Complete)]);
        recorder.began(3, Instant::now());
        let (live, report) = (recorder.snapshot(), recorder.report());
        assert_eq!((live.sent, live.done, live.in_flight, live.errors), (3, 2, 1, 0));
        assert_eq!(recorder.in_flight(), 1);
        assert_eq!(live.per_backend["a"], 2);
        assert_eq!(live.ttft_p50_ms, report.latency.ttft.p50_ms);
        assert!((live.hit_ratio - 50.0 / 150.0).abs() < 1e-9);
    }
}
