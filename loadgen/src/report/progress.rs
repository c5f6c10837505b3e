//! The figures of a moment, in one line.

use crate::client::LiveStats;

/// Progress since the start, with rates over the time since `earlier`.
pub fn progress_line(earlier: &LiveStats, now: &LiveStats) -> String {
    let elapsed_ms = now.elapsed_ms.saturating_sub(earlier.elapsed_ms).max(1);
    let per_s = |now: u64, before: u64| now.saturating_sub(before) as f64 * 1e3 / elapsed_ms as f64;
    format!(
        "{:>5.0} s  sent {} ({:.0}/s)  done {} ({:.0}/s)  in flight {}  errors {}  \
         ttft p50 {:.1} p99 {:.1} ms  reused {:.1} %",
        now.elapsed_ms as f64 / 1e3,
        now.sent,
        per_s(now.sent, earlier.sent),
        now.done,
        per_s(now.done, earlier.done),
        now.in_flight,
        now.errors,
        now.ttft_p50_ms,
        now.ttft_p99_ms,
        now.hit_ratio * 100.0,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_taken_over_the_last_interval() {
        let earlier = LiveStats { elapsed_ms: 4_000, sent: 100, done: 90, ..LiveStats::default() };
        let now = LiveStats {
            elapsed_ms: 6_000,
            sent: 150,
            done: 120,
            in_flight: 30,
            errors: 2,
            hit_ratio: 0.875,
            ..LiveStats::default()
        };
        let line = progress_line(&earlier, &now);
        assert!(line.contains("sent 150 (25/s)  done 120 (15/s)  in flight 30"), "{line}");
        assert!(line.contains("errors 2") && line.contains("reused 87.5 %"), "{line}");
    }
}
