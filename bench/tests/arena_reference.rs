//! The arena against the reference simulator: the same model fed the same numbers gives the same figures. Policies that
//! draw lots draw the same ones, so rows agree to the last digit the reference printed; only the ring hashes differently.

#![expect(clippy::approx_constant, reason = "0.318 is a hit ratio")]

use bench::arena::args::Args;
use bench::arena::cells;
use bench::arena::routers;
use clap::Parser;

mod traces;
use traces::trace;

/// Policy, hit, median, 99th percentile and mean time to first token, imbalance.
type Expected = (&'static str, f64, f64, f64, f64, f64);

/// Half a unit of the last digit printed, and a little for binary fractions.
const HALF: f64 = 0.5 + 1e-6;

fn run(name: &str, options: &[&str], policy: &str) -> Option<Vec<[f64; 6]>> {
    let path = trace(name)?;
    let path = path.to_str().unwrap();
    let line = ["arena", "--trace", path, "--policy", policy];
    let line = line.iter().chain(options);
    let args = Args::parse_from(line);
    let (entries, scales) = (routers::named(policy).unwrap(), cells::scales(&args).unwrap());
    let cells = cells::run_all(&args, &scales, &entries, |_| ());
    let rows = cells.iter().map(|cell| {
        let row = cell.outcome.row("", "", args.capacity, "");
        let done = row.done as f64;
        [row.hit, row.ttft_p50, row.ttft_p99, row.ttft_mean, row.imbalance, done]
    });
    Some(rows.collect())
}

fn agrees(name: &str, options: &[&str], expected: &[Expected]) {
    for &(policy, hit, p50, p99, mean, imbalance) in expected {
        let Some(rows) = run(name, options, policy) else { return };
        let units = [0.001, 0.01, 0.1, 0.01, 0.01];
        for ((got, want), unit) in rows[0].iter().zip([hit, p50, p99, mean, imbalance]).zip(units) {
            assert!((got - want).abs() <= HALF * unit, "{policy} {options:?}: {got} is not {want}");
        }
    }
}

#[test]
fn peers_and_bounds_on_the_conversation_trace_are_the_references() {
    agrees(
        "mooncake_conversation.jsonl.gz",
        &["--backends", "8"],
        &[
            ("round_robin", 0.098, 8.63, 42.7, 11.68, 1.04),
            ("least-tokens", 0.097, 2.19, 13.7, 3.03, 1.01),
            ("sglang-cli", 0.325, 2.14, 18.5, 3.59, 1.06),
            ("sglang-lib", 0.313, 1.93, 16.5, 3.31, 1.07),
            ("llm-d", 0.329, 1.11, 12.8, 1.98, 1.04),
            ("llm-d-all", 0.318, 1.14, 13.2, 1.97, 1.05),
            ("dynamo-1", 0.190, 2.11, 11.5, 2.71, 1.04),
            ("dynamo-2", 0.210, 1.59, 10.8, 2.21, 1.04),
            ("mirror-4", 0.299, 0.79, 10.3, 1.42, 1.03),
            ("reference", 0.308, 0.76, 10.4, 1.42, 1.05),
            ("oracle-4", 0.296, 0.80, 10.1, 1.44, 1.03),
        ],
    );
}

#[test]
fn short_memory_changes_peers_as_it_did_in_the_reference() {
    agrees(
        "mooncake_conversation.jsonl.gz",
        &["--backends", "8", "--capacity", "1000"],
        &[
            ("sglang-lib", 0.169, 3.55, 23.8, 5.14, 1.03),
            ("llm-d", 0.172, 1.89, 15.0, 2.91, 1.03),
            ("reference", 0.160, 1.47, 11.3, 2.12, 1.02),
        ],
    );
}

#[test]
fn copies_of_the_tool_and_agent_trace_are_the_references() {
    agrees(
        "mooncake_arxiv_first1000.jsonl.gz",
        &["--backends", "32", "--backends-per-copy", "8"],
        &[
            ("sglang-cli", 0.374, 1.74, 14.9, 2.72, 1.42),
            ("llm-d", 0.380, 0.92, 11.4, 1.88, 1.33),
            ("dynamo-1", 0.320, 1.01, 10.5, 1.55, 1.18),
            ("reference", 0.368, 0.14, 9.4, 0.82, 1.29),
        ],
    );
}

#[test]
fn the_floor_is_the_references() {
    let Some(rows) = run("mooncake_synthetic.jsonl.gz", &[], "floor") else { return };
    let [hit, p50, p99, mean, ..] = rows[0];
    let shown = format!("{hit:.3} {p50:.2} {p99:.1} {mean:.2}");
    assert_eq!(shown, "0.640 0.05 6.2 0.69");
}

#[test]
fn sessions_in_a_closed_loop_end_as_many_requests_as_in_the_reference() {
    let options = ["--backends", "8"];
    for (policy, mean, done) in
        [("sglang-cli", 5.03, 4_827.0), ("llm-d-all", 4.43, 4_888.0), ("dynamo-1", 46.40, 2_335.0)]
    {
        let Some(rows) = run("cc_sessions.growth.jsonl.gz", &options, policy) else { return };
        assert!((rows[0][3] - mean).abs() <= HALF * 0.01, "{policy}: {:?}", rows[0]);
        assert_eq!(rows[0][5], done, "{policy}");
    }
}

#[test]
fn the_least_work_first_order_is_the_references() {
    let options = ["--backends", "8", "--sessions-per-backend", "24", "--sched", "500"];
    let Some(rows) = run("cc_sessions.growth.jsonl.gz", &options, "sglang-cli") else { return };
    assert_eq!(rows[0][5], 6_194.0);
}

#[test]
fn a_ring_with_bounded_load_is_near_the_references() {
    // Its points come from another hash, so it agrees to the noise of where they fall only.
    let options = ["--backends", "128"];
    let Some(rows) = run("mooncake_conversation.jsonl.gz", &options, "chash-8-bl1.25") else {
        return;
    };
    assert!((rows[0][0] / 0.215 - 1.0).abs() < 0.05, "{:?}", rows[0]);
    assert!((rows[0][3] / 4.03 - 1.0).abs() < 0.10, "{:?}", rows[0]);
}

#[test]
fn the_same_run_twice_gives_the_same_numbers() {
    let options = ["--backends", "8", "--seed", "3"];
    let twice: Vec<_> =
        (0..2).map(|_| run("mooncake_arxiv_first1000.jsonl.gz", &options, "cost,random")).collect();
    assert_eq!(twice[0], twice[1]);
}
