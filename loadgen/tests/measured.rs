//! What clients measure with the engines' help: the age of each event, and whether every byte of text arrived.

mod engine_support;

use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::process::{Command, Stdio};
use std::time::Duration;

use engine_support::{options, start};
use loadgen::client::{Arrivals, Load, Options, Until, Workload};
use loadgen::engine::{EngineOptions, Persona, ReplyLength};
use loadgen::report::Report;

fn stamped(persona: Persona) -> EngineOptions {
    let mut options = options(persona);
    options.stamp_events = true;
    options.reply = ReplyLength::fixed(20);
    options.params.decode_tps = 200.0;
    options
}

async fn run(url: &str, seed: u64) -> Report {
    let mut options = Options::new(url);
    options.seed = seed;
    run_as(options).await
}

async fn run_as(mut options: Options) -> Report {
    options.model = "sim".to_owned();
    let arrivals = Arrivals::Constant;
    options.load = Load::Open { rate_per_s: 200.0, arrivals, conversations: 10, turns: 1 };
    options.until = Until { requests: Some(10), duration: None };
    let handle = Workload::start(options).expect("valid options");
    handle.ended().await;
    let report = handle.report();
    assert_eq!(report.requests.complete, 10, "{report:?}");
    report
}

#[tokio::test]
async fn every_event_has_an_age_when_the_engine_stamps_them() {
    let engine = start(stamped(Persona::Vllm));
    let report = run(&engine.url(), 1).await;
    // Beside the tokens: the role, the usage and the end of each stream.
    assert!(report.latency.event_delay.count >= 10 * 20, "{report:?}");
    assert!(report.latency.event_delay.p50_ms < 1_000.0, "{report:?}");
    let plain = start(options(Persona::Vllm));
    assert_eq!(run(&plain.url(), 1).await.latency.event_delay.count, 0);
}

#[tokio::test]
async fn only_events_written_within_the_time_asked_for_have_an_age() {
    let engine = start(stamped(Persona::Vllm));
    let count = async |within: Range<Duration>| {
        let options = Options { ages_within: within, ..Options::new(engine.url()) };
        run_as(options).await.latency.event_delay.count
    };
    let far = Duration::from_secs(3_600);
    let (all, none) = (count(Duration::ZERO..far).await, count(far..Duration::MAX).await);
    assert!(all >= 10 * 20 && none == 0, "{all}, {none}");
}

#[tokio::test]
async fn runs_of_one_seed_agree_in_their_digest_and_others_do_not() {
    let (one, other) = (start(stamped(Persona::Vllm)), start(stamped(Persona::Sglang)));
    let first = run(&one.url(), 1).await;
    let second = run(&other.url(), 1).await;
    assert_eq!(first.replies_digest, second.replies_digest, "the text is the prompt's alone");
    let different = run(&one.url(), 2).await;
    assert_ne!(first.replies_digest, different.replies_digest);
}

#[test]
fn a_signal_asks_a_fleet_for_its_sums() {
    let mut fleet = Command::new(env!("CARGO_BIN_EXE_shearwater-loadgen"))
        .args(["engine", "--count", "3"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut lines = BufReader::new(fleet.stdout.take().expect("piped")).lines();
    for _ in 0..3 {
        let line = lines.next().expect("a line").expect("text");
        assert!(line.starts_with("listening on http://127.0.0.1:"), "{line}");
    }
    let pid = fleet.id().to_string();
    Command::new("kill").args(["-USR1", &pid]).status().expect("kill runs");
    let sums = lines.next().expect("a line").expect("text");
    let sums: serde_json::Value = serde_json::from_str(&sums).expect("JSON");
    assert_eq!((&sums["generated_tokens"], &sums["running"]), (&0.into(), &0.into()));
    Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs");
    assert!(fleet.wait().expect("it ends").success());
}
