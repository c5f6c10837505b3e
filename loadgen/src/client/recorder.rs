//! Where requests put their measurements, and where reports and snapshots are read from.
//!
//! Several shards, each behind its own lock and held for one update, so that threads do not wait
//! for each other. A request takes the lock a few times in its life, never once per event.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::fault::{Fault, FaultKind};
use super::live::LiveStats;
use super::tally::{Outcome, Tally, add, histogram, merge};
use crate::report::{Percentiles, Report, Tokens};

/// Shards of a recorder; a few more than the threads that record.
const SHARDS: usize = 4;

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
    shards: [Mutex<Tally>; SHARDS],
}

impl Recorder {
    pub(crate) fn new(started: Instant) -> Recorder {
        Recorder { started, shards: std::array::from_fn(|_| Mutex::new(Tally::new())) }
    }

    /// Counts a request as begun. `number` is any number spread over requests.
    pub(crate) fn began(&self, number: u64, at: Instant) {
        let mut tally = self.shard(number);
        tally.sent += 1;
        tally.last_sent = tally.last_sent.max(at.saturating_duration_since(self.started));
    }

    /// Counts an arrival that was never sent.
    pub(crate) fn overrun(&self, number: u64) {
        let mut tally = self.shard(number);
        tally.sent += 1;
        tally.failed(&Fault::new(FaultKind::Overrun, "too many requests in flight"));
    }

    pub(crate) fn ended(&self, number: u64, outcome: &Outcome) {
        let at = self.started.elapsed();
        self.shard(number).ended(outcome, at);
    }

    /// Adds gaps between content events, in microseconds.
    pub(crate) fn gaps(&self, number: u64, gaps_micros: &[u32]) {
        let mut tally = self.shard(number);
        for &gap in gaps_micros {
            tally.inter_token.saturating_record(u64::from(gap));
        }
    }

    /// Adds ages of events on arrival, in microseconds.
    pub(crate) fn delays(&self, number: u64, delays_micros: &[u32]) {
        let mut tally = self.shard(number);
        for &delay in delays_micros {
            tally.event_delay.saturating_record(u64::from(delay));
        }
    }

    pub(crate) fn connection(&self, number: u64, event: ConnectionEvent) {
        let mut tally = self.shard(number);
        match event {
            ConnectionEvent::Opened => tally.connections.opened += 1,
            ConnectionEvent::Reused => tally.connections.reused += 1,
            ConnectionEvent::ClosedWhileIdle => tally.connections.closed_while_idle += 1,
        }
    }

    /// Requests begun and not ended.
    pub(crate) fn in_flight(&self) -> u64 {
        (0..SHARDS as u64).map(|n| self.shard(n)).map(|tally| tally.sent - tally.done()).sum()
    }

    pub(crate) fn snapshot(&self) -> LiveStats {
        let mut live = LiveStats::default();
        let (mut ttft, mut tokens) = (histogram(), Tokens::default());
        for number in 0..SHARDS as u64 {
            let tally = self.shard(number);
            live.sent += tally.sent;
            live.done += tally.done();
            live.errors += tally.failed;
            live.cancelled += tally.cancelled_in_prefill + tally.cancelled_mid_stream;
            add(&mut ttft, &tally.ttft_first_turn);
            add(&mut ttft, &tally.ttft_followup);
            tokens.all.add(tally.tokens.all);
            tokens.followup.add(tally.tokens.followup);
            merge(&mut live.per_backend, &tally.backends);
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
        let mut sum = Tally::new();
        for number in 0..SHARDS as u64 {
            sum.add(&self.shard(number));
        }
        sum.into_report()
    }

    /// A poisoned lock still holds counters that are good enough to report.
    fn shard(&self, number: u64) -> MutexGuard<'_, Tally> {
        let shard = &self.shards[number as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tally::End;
    use super::*;
    use crate::report::{ByteCounts, TokenCounts};

    fn outcome(turn: u32, end: End) -> Outcome {
        Outcome {
            end,
            turn,
            status: Some(200),
            backend: Some("a".to_owned()),
            first_token: Some(Duration::from_millis(10 * (u64::from(turn) + 1))),
            total: Duration::from_millis(100),
            issue_lag: Duration::from_millis(4),
            connect: None,
            digest: 7,
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
        // The lag of this client is part of the one and not of the other.
        assert!((report.latency.ttft_from_send.p50_ms - 16.0).abs() < 0.1, "{report:?}");
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
        assert_eq!(report.replies_digest, "0000000000000007", "of whole replies alone");
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
