//! A note in, what it must lead to out: evidence in the index, a line in the log, numbers in the
//! metrics, a decision that can be explained. No prompt text is anywhere.

use index::{BackendId, BackendSet, ConversationKey, Millis, Overlaps, PolicyKind, SequenceHash};
use serde_json::Value;

use super::evidence;
use crate::api::Api;
use crate::clock::{self, Micros};
use crate::fixture::{Side, config, eventually};
use crate::published::Published;
use crate::record::{End, Note, Record, Times};
use crate::usage::Usage;

/// Two backends nobody answers for; learning needs none.
const FLEET: &str = "[[backend]]\nname = \"a\"\nurl = \"http://127.0.0.1:9\"\n\
    [[backend]]\nname = \"b\"\nurl = \"http://127.0.0.1:10\"\n";

fn blocks(count: u64) -> Vec<SequenceHash> {
    (1..=count).map(|number| SequenceHash(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect()
}

fn depth(shared: &Published, prompt: &[SequenceHash], backend: u16) -> u32 {
    let mut overlaps = Overlaps::new();
    shared.index.reader().load().overlaps(prompt, &mut overlaps);
    overlaps.depth(BackendId(backend))
}

fn decision(shared: &'static Published, prompt: &[SequenceHash]) -> index::Decision {
    let pool: BackendSet = [BackendId(0)].into_iter().collect();
    let ask = index::Ask {
        blocks: prompt,
        block_tokens: 32.0,
        prompt_tokens: 1_280,
        output_tokens: 16,
        conversation: None,
        pool: &pool,
        excluded: &BackendSet::default(),
        waited_ms: 0,
        home_wait_ms: 0,
        turn_wait_ms: 0,
        give_way_max: 0,
        streams: false,
        now: Millis(clock::now().millis().0 + 1_000),
        random: 1,
    };
    let kind = PolicyKind::LeastRequests;
    index::Picker::new(kind).explain(&shared.fleet, shared.index.reader().load(), &ask)
}

/// A request of 40 blocks of 128 bytes, 1,280 tokens, served well by backend 0.
fn record(shared: &'static Published, usage: Option<Usage>) -> Record {
    let head = clock::now();
    let at = |ms: u64| Some(Micros(head.0 + ms * 1_000));
    let times = Times {
        head,
        body: at(1),
        placed: at(2),
        connected: at(3),
        sent: at(4),
        reply_head: at(50),
        first_byte: at(60),
        end: Micros(head.0 + 100_000),
    };
    let what = (Api::ChatCompletions, "POST", "/v1/chat/completions".into());
    Record {
        model: Some("m \"quoted\"".into()),
        backend: Some(BackendId(0)),
        status: 200,
        end: End::Complete,
        attempts: 1,
        times,
        request_bytes: 6_000,
        reply_bytes: 900,
        streamed: true,
        events: 9,
        canonical_bytes: 5_120,
        prompt_tokens_estimate: 1_280,
        usage,
        decision: Some(Box::new(decision(shared, &blocks(40)))),
        conversation: Some(ConversationKey(0x1234_5678_9abc_def0)),
        blocks: blocks(40),
        ..Record::of_head(0xabc, 0, what, head)
    }
}

fn usage(cached: u64) -> Option<Usage> {
    Some(Usage { prompt_tokens: 1_280, cached_tokens: Some(cached), output_tokens: 7 })
}

fn routed(shared: &Published, backend: u16, prompt: Vec<SequenceHash>) {
    shared.note(Note::Routed { backend: BackendId(backend), blocks: prompt, at: clock::now() });
}

fn quiet() -> Side {
    let text = FLEET.replace("url", "enabled = false\nurl");
    let mut config = config(&text);
    config.routing.block_bytes = 128;
    Side::start(config)
}

#[test]
fn a_routed_request_is_in_the_next_snapshot() {
    let side = quiet();
    routed(side.shared, 1, blocks(40));
    eventually("the index shows it", || (depth(side.shared, &blocks(40), 1) == 40).then_some(()));
    assert_eq!(depth(side.shared, &blocks(40), 0), 0);
    side.stop();
}

#[test]
fn a_report_short_of_the_prediction_corrects_the_evidence_of_siblings_too() {
    let side = quiet();
    let mut sibling = blocks(35);
    sibling.extend((0..5).map(|number| SequenceHash(number + 77)));
    routed(side.shared, 0, blocks(40));
    routed(side.shared, 0, sibling.clone());
    eventually("both are known", || (depth(side.shared, &sibling, 0) == 40).then_some(()));
    eventually("and the shared part", || (depth(side.shared, &blocks(40), 0) == 40).then_some(()));
    let mut record = record(side.shared, usage(320));
    if let Some(decision) = &mut record.decision {
        decision.overlap_blocks = 40;
    }
    side.shared.note(Note::Ended(Box::new(record)));
    // The engine had 10 blocks of 40: the sibling's evidence beyond the shared part is gone, while the
    // request's own prompt has been computed meanwhile.
    eventually("the sibling is corrected", || {
        (depth(side.shared, &sibling, 0) == 35).then_some(())
    });
    assert_eq!(depth(side.shared, &blocks(40), 0), 40);
    let metrics = side.get("/metrics").1;
    assert!(metrics.contains("shearwater_evictions_seen_total{backend=\"a\"} 1"), "{metrics}");
    side.stop();
}

#[test]
fn a_request_that_was_never_computed_leaves_no_evidence() {
    let side = quiet();
    routed(side.shared, 0, blocks(40));
    let mut failed = Record { end: End::OwnAnswer, status: 503, ..record(side.shared, None) };
    failed.times.first_byte = None;
    failed.decision = None;
    side.shared.note(Note::Ended(Box::new(failed)));
    routed(side.shared, 1, blocks(1));
    eventually("all notes are in", || (depth(side.shared, &blocks(40), 1) == 1).then_some(()));
    assert_eq!(depth(side.shared, &blocks(40), 0), 0);
    side.stop();
}

#[test]
fn a_restart_clears_one_backend_only() {
    let side = quiet();
    routed(side.shared, 0, blocks(40));
    routed(side.shared, 1, blocks(40));
    eventually("both are known", || (depth(side.shared, &blocks(40), 1) == 40).then_some(()));
    side.learn.insight().order_cleared(BackendId(0));
    eventually("one is cleared", || (depth(side.shared, &blocks(40), 0) == 0).then_some(()));
    assert_eq!(depth(side.shared, &blocks(40), 1), 40);
    side.stop();
}

#[test]
fn bytes_per_token_and_budgets_follow_what_engines_report() {
    let side = quiet();
    let usage = Some(Usage { prompt_tokens: 2_560, cached_tokens: None, output_tokens: 1 });
    for _ in 0..60 {
        side.shared.note(Note::Ended(Box::new(record(side.shared, usage))));
    }
    let ratio = || side.shared.routes.load().all.learned.bytes_per_token();
    eventually("the ratio is learned", || ((ratio() - 2.0).abs() < 0.05).then_some(()));
    let reading = crate::control::reading::Reading {
        kv_tokens: Some(64_000),
        ..crate::control::reading::Reading::default()
    };
    let budget = eventually("the budget follows", || {
        // Again and again, as an engine is asked: control, when it begins, says that nothing is known.
        side.learn.insight().backends[0].set_cache(&reading);
        side.report().pointer("/evidence/blocks_max")?.as_u64().filter(|blocks| *blocks < 2_000)
    });
    // 64,000 tokens of 2 bytes in blocks of 128 bytes are 1,000, and a quarter more.
    assert!((1_200..=1_300).contains(&budget), "{budget}");
    side.stop();
}

#[test]
fn notes_queued_before_the_stop_are_still_taken_in() {
    let side = quiet();
    for number in 0..5_000_u64 {
        routed(side.shared, 1, vec![SequenceHash(number)]);
    }
    let Side { shared, learn, control } = side;
    learn.join();
    assert!(shared.notes.is_empty());
    assert_eq!(depth(shared, &[SequenceHash(4_999)], 1), 1);
    control.join();
}

fn log_lines(format: &str, records: impl Fn(&'static Published) -> Vec<Record>) -> Vec<String> {
    let name = format!("shearwater-{}-{format}-{}.log", std::process::id(), clock::now().0);
    let path = std::env::temp_dir().join(name);
    let mut config = config(&FLEET.replace("url", "enabled = false\nurl"));
    config.log.access = config::AccessLog::File(path.clone());
    config.log.format =
        if format == "json" { config::LogFormat::Json } else { config::LogFormat::Text };
    let side = Side::start(config);
    for record in records(side.shared) {
        side.shared.note(Note::Ended(Box::new(record)));
    }
    side.stop();
    let written = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    written.lines().map(str::to_owned).collect()
}

#[test]
fn a_json_line_says_who_served_it_when_and_how_well_it_was_predicted() {
    let lines = log_lines("json", |shared| vec![record(shared, usage(960))]);
    let line: Value = serde_json::from_str(lines.first().unwrap()).unwrap();
    assert_eq!(line["request_id"], "req_0000000000000abc");
    assert_eq!((&line["backend"], &line["status"]), (&"a".into(), &200.into()));
    assert_eq!((&line["end"], &line["api"]), (&"complete".into(), &"chat_completions".into()));
    assert_eq!((&line["body_ms"], &line["first_byte_ms"]), (&1.0.into(), &60.0.into()));
    assert_eq!((&line["end_ms"], &line["model"]), (&100.0.into(), &"m \"quoted\"".into()));
    assert_eq!((&line["prompt_tokens"], &line["cached_tokens"]), (&1_280.into(), &960.into()));
    assert_eq!(line["conversation"], "12345678");
    assert!(line["time"].as_str().is_some_and(|time| time.ends_with('Z')));
    assert_eq!(lines.len(), 1);
}

#[test]
fn a_text_line_quotes_what_needs_it_and_leaves_out_what_was_not_reached() {
    let lines = log_lines("text", |shared| {
        let mut refused = record(shared, None);
        refused.times =
            Times { head: refused.times.head, end: refused.times.end, ..Times::default() };
        refused.backend = None;
        vec![refused]
    });
    let line = lines.first().unwrap();
    assert!(line.contains(" model=\"m \\\"quoted\\\"\" "), "{line}");
    assert!(
        line.contains(" path=/v1/chat/completions ") && line.contains(" status=200 "),
        "{line}"
    );
    assert!(!line.contains("first_byte_ms") && !line.contains("backend="), "{line}");
}

#[test]
fn a_log_that_cannot_be_opened_stops_the_start() {
    let mut config = config(FLEET);
    config.log.access = config::AccessLog::File("/nonexistent/folder/log".into());
    let (shared, writer) = crate::fixture::shared(config);
    assert!(super::start(shared, writer).is_err());
}

#[test]
fn a_moved_log_is_opened_anew() {
    let folder = std::env::temp_dir();
    let path = folder.join(format!("shearwater-{}-{}.log", std::process::id(), clock::now().0));
    let moved = path.with_extension("moved");
    let mut config = config(&FLEET.replace("url", "enabled = false\nurl"));
    config.log.access = config::AccessLog::File(path.clone());
    let side = Side::start(config);
    std::fs::rename(&path, &moved).unwrap();
    side.learn.insight().log.order_reopen();
    side.shared.note(Note::Ended(Box::new(record(side.shared, None))));
    side.stop();
    let lines = std::fs::read_to_string(&path).unwrap();
    assert_eq!(lines.lines().count(), 1);
    for file in [path, moved] {
        std::fs::remove_file(file).unwrap();
    }
}

#[test]
fn decisions_are_explained_newest_first_with_what_was_reported() {
    let side = quiet();
    for number in 1..=3 {
        let ended = Record { request_id: number, ..record(side.shared, usage(960)) };
        side.shared.note(Note::Ended(Box::new(ended)));
    }
    let shown = eventually("three decisions", || {
        let shown = side.json("/admin/decisions?n=2");
        let newest = shown.pointer("/decisions/0/request_id")?.as_str()? == "req_0000000000000003";
        newest.then_some(shown)
    });
    assert_eq!(shown["decisions"].as_array().map(Vec::len), Some(2));
    let newest = &shown["decisions"][0];
    assert_eq!(newest["cached_tokens"]["reported"], 960);
    assert_eq!(newest["decision"]["considered"], 1);
    assert_eq!(newest["decision"]["candidates"][0]["backend"], "a");
    side.stop();
}

#[test]
fn metrics_count_requests_tokens_and_phases() {
    let side = quiet();
    let lost =
        Record { end: End::ClientGone, status: 0, backend: None, ..record(side.shared, None) };
    side.shared.note(Note::Ended(Box::new(record(side.shared, usage(960)))));
    side.shared.note(Note::Ended(Box::new(lost)));
    let text = eventually("both are counted", || {
        let text = side.get("/metrics").1;
        text.contains("end=\"client_gone\"").then_some(text)
    });
    for line in [
        "shearwater_requests_total{api=\"chat_completions\",status=\"200\",end=\"complete\",backend=\"a\"} 1",
        "shearwater_requests_total{api=\"chat_completions\",status=\"0\",end=\"client_gone\",backend=\"\"} 1",
        "shearwater_cached_tokens_reported_total{backend=\"a\"} 960",
        "shearwater_cached_tokens_of_total{backend=\"a\"} 1280",
        "shearwater_cache_hit_ratio 0.75",
        "shearwater_decision_seconds_count 2",
        "shearwater_time_to_first_byte_seconds_count{backend=\"a\"} 1",
        "shearwater_phase_seconds_count{phase=\"reply_head\"} 2",
    ] {
        assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
    }
    side.stop();
}

#[test]
fn a_reply_its_engine_aborted_teaches_nothing() {
    let (shared, _writer) = crate::fixture::shared(config(FLEET));
    let scale = evidence::Scale { page_tokens: 1, block_bytes: 128, bytes_per_token_milli: 4_000 };
    let whole = record(shared, usage(960));
    assert_ne!(evidence::lesson(&whole, scale), evidence::Lesson::Nothing);
    let aborted = Record { end: End::EngineAborted, ..whole };
    assert_eq!(evidence::lesson(&aborted, scale), evidence::Lesson::Nothing);
    assert!(!evidence::succeeded(&aborted));
    assert_eq!(evidence::cached(&aborted, scale), None);
}

#[test]
fn one_that_gave_way_tells_what_was_missing_and_not_what_was_cached() {
    let (shared, _writer) = crate::fixture::shared(config(FLEET));
    let scale = evidence::Scale { page_tokens: 1, block_bytes: 128, bytes_per_token_milli: 4_000 };
    let whole = record(shared, usage(320));
    let (least, most) = evidence::cached(&whole, scale).expect("it was reported");
    assert!(least > 0);
    let gave_way = Record { gave_way: 1, ..whole };
    assert_eq!(evidence::cached(&gave_way, scale), Some((0, most)));
    assert_eq!(evidence::lesson(&gave_way, scale), evidence::Lesson::Confirmed);
}
