//! What the default policy has to reach, with one setting: mean time to first token and requests done, by workload, size
//! and load, on the public traces the bars were measured on. No bar is fitted to what was reached.

use super::results::Row;
use super::routers::CONFIGURED;

/// A bar.
#[derive(Clone, Copy, Debug)]
struct Bar {
    trace: &'static str,
    backends: usize,
    capacity: usize,
    /// The setting of its rows, all but the seed.
    setting: &'static str,
    /// Mean time to first token at most this, in seconds.
    mean: Option<f64>,
    /// Requests done at least this.
    done: Option<usize>,
}

/// Policies bars hold for: the default and a configured one.
const HELD_TO_BARS: [&str; 2] = ["cost", CONFIGURED];

const fn chat(
    trace: &'static str,
    backends: usize,
    capacity: usize,
    setting: &'static str,
    mean: f64,
) -> Bar {
    Bar { trace, backends, capacity, setting, mean: Some(mean), done: None }
}

const fn agents(backends: usize, setting: &'static str, mean: f64, done: usize) -> Bar {
    let mean = if mean > 0.0 { Some(mean) } else { None };
    Bar { trace: "cc_sessions", backends, capacity: 4000, setting, mean, done: Some(done) }
}

const BARS: [Bar; 18] = [
    chat("mooncake_conversation", 8, 4000, "rho=1 copies=1 sched=0 ", 1.38),
    chat("mooncake_conversation", 32, 4000, "rho=1 copies=1 sched=0 ", 1.10),
    chat("mooncake_conversation", 128, 4000, "rho=1 copies=1 sched=0 ", 1.08),
    chat("mooncake_conversation", 8, 1000, "rho=1 copies=1 sched=0 ", 2.05),
    chat("mooncake_conversation", 32, 1000, "rho=1 copies=1 sched=0 ", 1.16),
    chat("mooncake_conversation", 128, 1000, "rho=1 copies=1 sched=0 ", 1.08),
    chat("mooncake_conversation", 32, 4000, "rho=1.4 copies=1 sched=0 ", 1.70),
    chat("mooncake_synthetic", 8, 4000, "rho=1 copies=1 sched=0 ", 0.84),
    chat("mooncake_synthetic", 32, 4000, "rho=1 copies=1 sched=0 ", 0.78),
    chat("mooncake_synthetic", 128, 4000, "rho=1 copies=1 sched=0 ", 0.80),
    chat("mooncake_arxiv_first1000", 8, 4000, "rho=1 copies=1 sched=0 ", 0.90),
    chat("mooncake_arxiv_first1000", 32, 4000, "rho=1 copies=4 sched=0 ", 0.81),
    chat("mooncake_arxiv_first1000", 128, 4000, "rho=1 copies=16 sched=0 ", 0.82),
    // Larger fleets are run for a shorter time, as the reference did.
    agents(8, "K=16 until=1800 sched=0 ", 3.2, 5_000),
    agents(32, "K=16 until=1200 sched=0 ", 2.6, 12_800),
    agents(128, "K=16 until=600 sched=0 ", 2.8, 24_400),
    // Served in the router's own order; and first come, first served, where the best peer did this many.
    agents(8, "K=24 until=1800 sched=500 ", 0.0, 6_300),
    agents(8, "K=24 until=1800 sched=0 ", 0.0, 4_710),
];

/// Peers as they are shipped; other settings of theirs are shown beside them but are nobody's default.
const SHIPPED: [&str; 4] = ["sglang-cli", "sglang-lib", "llm-d", "dynamo-1"];

/// A line for each row that has a bar, with the best peer of the same cell.
pub fn compared(rows: &[Row]) -> Vec<String> {
    let held = rows.iter().filter(|row| HELD_TO_BARS.contains(&row.policy.as_str()));
    let line = |row: &Row| Some(compare(row, bar(row)?) + &best_peer(row, rows));
    held.filter_map(line).collect()
}

/// The shipped peer that did best where this row was made: by what ended in a closed loop, by mean otherwise.
fn best_peer(row: &Row, rows: &[Row]) -> String {
    let same = |peer: &&Row| {
        let cell = |row: &Row| (row.trace.clone(), row.backends, row.capacity, row.setting.clone());
        SHIPPED.contains(&peer.policy.as_str()) && cell(peer) == cell(row)
    };
    let closed = row.setting.starts_with("K=");
    let worth = |peer: &&Row| if closed { peer.done as f64 } else { -peer.ttft_mean };
    let best = rows.iter().filter(same).max_by(|a, b| worth(a).total_cmp(&worth(b)));
    best.map_or_else(String::new, |best| {
        let Row { policy, ttft_mean, done, .. } = best;
        format!("; best shipped peer {policy}: mean {ttft_mean:.2} s, done {done}")
    })
}

fn bar(row: &Row) -> Option<Bar> {
    BARS.into_iter().find(|bar| {
        bar.trace == row.trace
            && bar.backends == row.backends
            && bar.capacity == row.capacity
            && is_setting(&row.setting, bar.setting)
    })
}

/// Whether a row's setting is the bar's with some seed, and nothing else was changed.
fn is_setting(setting: &str, bar: &str) -> bool {
    setting.strip_prefix(bar).is_some_and(|rest| rest.starts_with("seed=") && !rest.contains(' '))
}

fn compare(row: &Row, bar: Bar) -> String {
    let verdict = |kept: bool| if kept { "kept" } else { "MISSED" };
    let mean = bar.mean.map_or_else(String::new, |most| {
        let kept = verdict(rounded(row.ttft_mean) <= most);
        format!(" mean {:.2} s, bar {most:.2}: {kept}", row.ttft_mean)
    });
    let done = bar.done.map_or_else(String::new, |least| {
        format!(" done {}, bar {least}: {}", row.done, verdict(row.done >= least))
    });
    let Row { trace, backends, capacity, policy, setting, .. } = row;
    format!("bar: {trace} N={backends} C={capacity} {setting}: {policy}{mean}{done}")
}

/// To the two places bars are given in.
fn rounded(seconds: f64) -> f64 {
    (seconds * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_holds_for_its_own_setting_with_any_seed_and_for_no_other() {
        let bar = "K=16 until=1800 sched=0 ";
        assert!(is_setting("K=16 until=1800 sched=0 seed=7", bar));
        assert!(!is_setting("K=16 until=1800 sched=0 seed=7 replicas=4", bar));
        assert!(!is_setting("K=16 until=1800 sched=500 seed=7", bar));
    }
}
