//! Open loops and replays: the offered rate, whatever the answers do.

use std::sync::Arc;
use std::time::Duration;

use loadgen::client::{Arrivals, Load, Options, TraceOptions, Until, Workload};
use tokio::sync::{Barrier, mpsc};

use crate::server::{Seen, Sender, Server, answer_chat, run};

fn open(url: &str, rate_per_s: f64, requests: u64) -> Options {
    let mut options = Options::new(url);
    options.load =
        Load::Open { rate_per_s, arrivals: Arrivals::Constant, conversations: 4, turns: 1 };
    options.until = Until { requests: Some(requests), duration: None };
    options
}

#[tokio::test]
async fn late_answers_do_not_lower_the_offered_rate() {
    // Nothing is answered before the last request has come: a client that waited for any answer
    // would never send it.
    let all_here = Arc::new(Barrier::new(60));
    let server = Server::start(move |seen, reply: Sender| {
        let all_here = all_here.clone();
        async move {
            all_here.wait().await;
            answer_chat(seen, reply).await;
        }
    })
    .await;
    let report = run(open(&server.url, 200.0, 60)).await;
    assert_eq!((report.requests.sent, report.requests.complete), (60, 60), "{report:?}");
    // A busy machine may lower the rate a little; nothing raises it.
    assert!(report.requests.sent_per_s <= 200.0, "{report:?}");
    // The first one waited for all others.
    assert!(report.latency.ttft.max_ms >= 290.0, "{report:?}");
}

#[tokio::test]
async fn a_stalled_server_is_charged_from_the_intended_send_time() {
    let server = Server::start(|seen, reply: Sender| async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        answer_chat(seen, reply).await;
    })
    .await;
    let mut options = open(&server.url, 100.0, 5);
    options.connections.max = Some(1);
    let report = run(options).await;
    // One at a time: the fifth is due at 40 ms and has its answer at 250 ms or later.
    assert!(report.latency.ttft.max_ms >= 205.0, "{report:?}");
    assert!(report.latency.connect.max_ms >= 150.0, "it waited for a connection: {report:?}");
}

#[tokio::test]
async fn conversations_of_an_open_loop_go_on_when_they_are_idle() {
    let (going_on, mut followups) = mpsc::unbounded_channel();
    let server = Server::start(move |seen: Seen, reply: Sender| {
        let going_on = going_on.clone();
        async move {
            let length = seen.body["messages"].as_array().expect("array").len();
            let _ = (length > 2).then(|| going_on.send(length));
            answer_chat(seen, reply).await;
        }
    })
    .await;
    let mut options = open(&server.url, 100.0, 1_000_000);
    options.load =
        Load::Open { rate_per_s: 100.0, arrivals: Arrivals::Poisson, conversations: 2, turns: 5 };
    let handle = Workload::start(options).expect("valid");
    // How many arrivals find nobody idle depends on how soon a busy machine answers.
    let mut answered = 0;
    for _ in 0..8 {
        let length = followups.recv().await.expect("conversations go on");
        assert!(length.is_multiple_of(2) && length <= 10, "{length} messages in five turns");
        // Its third turn or a later one, so the one before, which was none to open with, has its answer.
        answered += u64::from(length > 4);
    }
    handle.stop();
    handle.ended().await;
    let report = handle.report();
    assert!(report.latency.ttft_followup.count >= answered, "{answered} answered: {report:?}");
    assert_eq!(report.requests.failed, 0, "{report:?}");
}

#[tokio::test]
async fn the_duration_ends_the_load_and_late_replies_are_waited_for() {
    let server = Server::start(|seen, reply: Sender| async move {
        tokio::time::sleep(Duration::from_millis(150)).await;
        answer_chat(seen, reply).await;
    })
    .await;
    let mut options = open(&server.url, 100.0, 1_000_000);
    options.until = Until { requests: None, duration: Some(Duration::from_millis(100)) };
    let report = run(options).await;
    assert_eq!(report.requests.sent, 10, "{report:?}");
    assert_eq!(report.requests.complete, 10, "{report:?}");
}

#[tokio::test]
async fn arrivals_beyond_the_bound_in_flight_are_overrun_not_sent() {
    let server = Server::start(|_, reply: Sender| async move { reply.abandoned().await }).await;
    let mut options = open(&server.url, 500.0, 20);
    options.in_flight_max = 5;
    options.drain = Duration::from_millis(50);
    let report = run(options).await;
    assert_eq!(report.requests.sent, 20, "{report:?}");
    assert_eq!(report.errors["overrun"], 15, "{report:?}");
    assert_eq!(report.requests.unfinished, 5, "{report:?}");
}

#[tokio::test]
async fn a_trace_is_replayed_with_its_lengths_and_shared_prefixes() {
    let file = std::env::temp_dir().join(format!("shearwater-replay-{}", std::process::id()));
    let lines = [
        r#"{"timestamp":0,"input_length":600,"output_length":3,"hash_ids":[7,8]}"#,
        r#"{"timestamp":100,"input_length":700,"output_length":4,"hash_ids":[7,9]}"#,
        r#"{"timestamp":200,"input_length":20,"output_length":5,"hash_ids":[10]}"#,
    ];
    std::fs::write(&file, lines.join("\n")).expect("a temporary file");
    let server = Server::start(answer_chat).await;
    let mut options = Options::new(&server.url);
    options.load = Load::Trace(TraceOptions {
        file: file.clone(),
        speed: 2.0,
        block_tokens: 512,
        token_bytes: 4,
    });
    let report = run(options).await;
    std::fs::remove_file(&file).expect("still there");
    assert_eq!(report.requests.complete, 3, "{report:?}");
    assert!(report.elapsed_s >= 0.1, "200 ms at double speed: {report:?}");
    let seen = server.seen();
    let text = |n: usize| seen[n].body["messages"][0]["content"].as_str().expect("text").to_owned();
    let shared = text(0).bytes().zip(text(1).bytes()).take_while(|(a, b)| a == b).count();
    assert!((512 * 4..512 * 4 + 32).contains(&shared), "{shared} bytes shared");
    assert_eq!([0, 1, 2].map(|n| text(n).len()), [2_400, 2_800, 80]);
    assert_eq!([0, 1, 2].map(|n| seen[n].body["max_tokens"].as_u64()), [3, 4, 5].map(Some));
}

#[tokio::test]
async fn a_workload_can_be_watched_and_stopped() {
    let (arrived, mut arrivals) = mpsc::unbounded_channel();
    let (left, mut leavings) = mpsc::unbounded_channel();
    let server = Server::start(move |_, reply: Sender| {
        let (arrived, left) = (arrived.clone(), left.clone());
        async move {
            let _ = arrived.send(());
            reply.abandoned().await;
            let _ = left.send(());
        }
    })
    .await;
    let handle = Workload::start(open(&server.url, 100.0, 1_000_000)).expect("valid");
    for _ in 0..3 {
        arrivals.recv().await.expect("requests come");
    }
    let live = handle.snapshot();
    assert!(live.in_flight >= 3 && live.done == 0 && !handle.is_ended(), "{live:?}");
    handle.stop();
    handle.ended().await;
    let report = handle.report();
    assert_eq!(report.requests.unfinished, report.requests.sent, "{report:?}");
    assert_eq!(report.requests.failed, 0);
    for _ in 0..3 {
        leavings.recv().await.expect("requests in flight are hung up on");
    }
}
