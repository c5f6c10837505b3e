//! The workloads as read are the ones the reference counted: blocks, and blocks reused by one cache that all share.

use bench::arena::memory::reuse;
use bench::arena::workload::{Request, Workload};

mod traces;
use traces::trace;

fn requests(name: &str) -> Option<Vec<Request>> {
    match Workload::read(&trace(name)?, 1).unwrap() {
        Workload::Open(requests) => Some(requests),
        Workload::Closed(_) => panic!("{name} is an open loop"),
    }
}

/// Blocks in all, then blocks reused by an infinite cache and by ones of 1,000, 4,000 and 16,000 blocks.
fn counts(requests: &[Request]) -> [usize; 5] {
    let prompts = || requests.iter().map(|request| &request.blocks[..]);
    let reused = |capacity| reuse(prompts(), capacity).0;
    let total = reuse(prompts(), None).1;
    [total, reused(None), reused(Some(1_000)), reused(Some(4_000)), reused(Some(16_000))]
}

#[test]
fn the_conversation_trace_reuses_exactly_what_the_reference_counted() {
    let Some(requests) = requests("mooncake_conversation.jsonl.gz") else { return };
    assert_eq!(requests.len(), 12_031);
    assert_eq!(counts(&requests), [288_500, 105_710, 12_847, 24_964, 75_791]);
}

#[test]
fn the_synthetic_trace_reuses_exactly_what_the_reference_counted() {
    let Some(requests) = requests("mooncake_synthetic.jsonl.gz") else { return };
    assert_eq!(counts(&requests), [121_877, 77_953, 10_252, 28_577, 64_581]);
}

#[test]
fn the_tool_and_agent_trace_reuses_exactly_what_the_reference_counted() {
    let Some(requests) = requests("mooncake_arxiv_first1000.jsonl.gz") else { return };
    assert_eq!(counts(&requests), [19_686, 7_479, 5_565, 6_112, 7_479]);
}

#[test]
fn sessions_are_derived_as_the_reference_derives_them() {
    for (name, sessions) in [
        ("mooncake_conversation.jsonl.gz", 8_218),
        ("mooncake_synthetic.jsonl.gz", 3_306),
        ("mooncake_arxiv_first1000.jsonl.gz", 922),
    ] {
        let Some(requests) = requests(name) else { return };
        let derived = requests.iter().map(|request| request.session).max().unwrap() + 1;
        assert_eq!(derived, sessions, "{name}");
    }
}

#[test]
fn the_session_trace_is_read_whole() {
    let Some(path) = trace("cc_sessions.growth.jsonl.gz") else { return };
    let Workload::Closed(read) = Workload::read(&path, 1).unwrap() else {
        panic!("sessions are a closed loop")
    };
    let turns = || read.sessions.iter().flatten();
    assert_eq!((read.sessions.len(), turns().count()), (692, 46_218));
    assert_eq!(turns().map(|turn| turn.prompt_tokens).sum::<u64>() / 1_000_000, 5_467);
    assert_eq!(turns().map(|turn| turn.blocks.len()).sum::<usize>(), 10_655_473);
}

#[test]
fn azures_lengths_are_read_with_their_arrivals() {
    for (name, count) in [("code", 8_819), ("conv", 19_366)] {
        let Some(requests) = requests(&format!("azure_llm_2023_{name}.csv.gz")) else { return };
        assert_eq!(requests.len(), count);
        assert!(requests.is_sorted_by(|a, b| a.at_s <= b.at_s));
    }
}
