//! The binary: what it prints and how it exits.

use std::process::{Output, Stdio};

use serde_json::Value;

use crate::server::{Sender, Server, answer_chat, chat_text};

async fn loadgen(arguments: &[&str]) -> Output {
    let binary = env!("CARGO_BIN_EXE_shearwater-loadgen");
    let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
    let child = std::process::Command::new(binary)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    tokio::task::spawn_blocking(|| child.wait_with_output().expect("it ends"))
        .await
        .expect("joined")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn json_goes_to_standard_output_alone() {
    let server = Server::start(answer_chat).await;
    let run = ["run", "--url", &server.url, "--conversations", "2", "--turns", "2", "--json", "-"];
    let output = loadgen(&run).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    assert_eq!(report["requests"]["complete"], 4);
    assert_eq!(report["tokens"]["followup"]["hit_ratio"], 0.5);
    assert_eq!(report["latency"]["ttft_followup"]["count"], 2);
}

#[tokio::test]
async fn the_table_is_for_people_and_progress_for_those_who_ask() {
    let server = Server::start(answer_chat).await;
    let run = ["run", "--url", &server.url, "--rate", "50", "--requests", "5", "--progress"];
    let output = loadgen(&run).await;
    let table = text(&output.stdout);
    assert!(table.contains("5 complete") && table.contains("ttft"), "{table}");
    assert!(text(&output.stderr).contains("in flight"), "{}", text(&output.stderr));
}

#[tokio::test]
async fn check_makes_failed_requests_the_exit_status() {
    let server = Server::start(|_, reply: Sender| async move {
        reply.send(chat_text("no end")).await;
    })
    .await;
    let run = ["run", "--url", &server.url, "--conversations", "1", "--turns", "1"];
    assert_eq!(loadgen(&run).await.status.code(), Some(0));
    let output = loadgen(&[&run[..], &["--check"]].concat()).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("1 no_terminator"), "{}", text(&output.stdout));
}

#[tokio::test]
async fn options_that_cannot_be_run_are_named() {
    let output = loadgen(&["run", "--url", "http://127.0.0.1:1", "--rate", "5"]).await;
    assert_eq!(output.status.code(), Some(64));
    let complaint = text(&output.stderr);
    assert_eq!(
        complaint,
        "shearwater-loadgen: --rate needs --duration or --requests, or it never ends\n"
    );
}

#[tokio::test]
async fn help_teaches_by_examples() {
    let help = text(&loadgen(&["run", "--help"]).await.stdout);
    for expected in ["closed loop", "open loop", "Examples:", "--shape claude-code", "overrun"] {
        assert!(help.contains(expected), "{expected:?} is missing");
    }
}
