//! The proxy leaves as a process does: told by a signal, it says that it is not ready, takes what still comes, lets
//! streams finish, and is gone.

use loadgen::engine::{EngineOptions, Persona, ReplyLength, SimEngine};
use tests::harness::{Client, Process, config_text, engine, settled};
use tokio::net::TcpStream;

use crate::said::{chat, chat_stream};

const TEST: &str = "the_proxy_as_a_process";
const CHAT: &str = "/v1/chat/completions";

/// A proxy process before one engine whose replies take about so long.
async fn process(reply_ms: u32, timeouts: &str) -> (SimEngine, Process) {
    let mut options = engine(Persona::Vllm);
    options.params.decode_tps = 100.0;
    options = EngineOptions { reply: ReplyLength::fixed(reply_ms / 10), ..options };
    let engine = SimEngine::start(options).expect("a free port");
    let text = config_text(&[engine.url()], &format!("[timeouts]\n{timeouts}\n"));
    let process = Process::start(TEST, &text).await;
    process.is_ready().await;
    (engine, process)
}

async fn ready(process: &Process) -> u16 {
    process.admin("/readyz").await.0
}

async fn stream(process: &Process) -> Client {
    let mut client = process.client().await;
    client.post(CHAT, &chat_stream("tell me everything")).await;
    client.sees("data: ").await;
    client
}

#[tokio::test]
async fn it_says_so_first_and_takes_what_still_comes() {
    let (_engine, process) = process(100, "drain_grace_ms = 60000").await;
    assert_eq!(ready(&process).await, 200);
    process.terminate();
    settled("balancers are told", async || (ready(&process).await == 503).then_some(())).await;
    // A balancer that has not looked yet still sends.
    let reply = process.client().await.ask(CHAT, &chat("too late?")).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(process.admin("/healthz").await.0, 200, "it is alive all the same");
}

#[tokio::test]
async fn streams_finish_and_then_it_ends_well() {
    let (engine, mut process) = process(1_500, "drain_grace_ms = 0\ndrain_max_ms = 60000").await;
    let mut first = stream(&process).await;
    let mut second = stream(&process).await;
    process.terminate();
    settled("nobody new is let in", async || refused(&process).await.then_some(())).await;
    assert!(process.is_running(), "streams are under way");
    for client in [&mut first, &mut second] {
        let reply = client.reply().await;
        assert!(reply.complete && reply.text().contains("data: [DONE]"), "{}", reply.text());
    }
    assert!(process.ended().await.success());
    assert_eq!(engine.state().finished, 2);
}

/// Whether connecting is refused, or what is accepted is closed at once.
async fn refused(process: &Process) -> bool {
    TcpStream::connect(process.listen).await.is_err()
}

#[tokio::test]
async fn a_stream_that_takes_too_long_is_cut_and_told_so() {
    let (_engine, mut process) = process(600_000, "drain_grace_ms = 0\ndrain_max_ms = 300").await;
    let mut client = stream(&process).await;
    process.terminate();
    let text = client.until_closed().await;
    assert!(!text.contains("[DONE]"), "it did not end well: {text}");
    assert!(text.contains("\"error\""), "it is not said why: {text}");
    assert!(process.ended().await.success());
}

#[tokio::test]
async fn a_second_signal_cuts_at_once() {
    let (_engine, mut process) =
        process(600_000, "drain_grace_ms = 60000\ndrain_max_ms = 60000").await;
    let mut client = stream(&process).await;
    process.terminate();
    settled("the first one is heard", async || (ready(&process).await == 503).then_some(())).await;
    process.terminate();
    client.until_closed().await;
    assert!(process.ended().await.success());
}

#[tokio::test]
async fn an_idle_proxy_is_gone_at_once_and_closes_idle_clients() {
    let (_engine, mut process) = process(100, "drain_grace_ms = 0\ndrain_max_ms = 60000").await;
    let mut idle = process.client().await;
    assert_eq!(idle.ask(CHAT, &chat("hello")).await.status, 200);
    process.terminate();
    assert_eq!(idle.until_closed().await, "");
    assert!(process.ended().await.success());
}

#[tokio::test]
async fn a_request_on_an_idle_connection_during_the_grace_is_served() {
    let (_engine, process) = process(100, "drain_grace_ms = 60000").await;
    let mut kept = process.client().await;
    assert_eq!(kept.ask(CHAT, &chat("hello")).await.status, 200);
    process.terminate();
    settled("balancers are told", async || (ready(&process).await == 503).then_some(())).await;
    assert_eq!(kept.ask(CHAT, &chat("again")).await.status, 200);
}

/// A proxy process before one engine with one slot, which is taken by a stream without end.
async fn occupied(engine: EngineOptions) -> (SimEngine, Process, Client) {
    let engine = SimEngine::start(engine).expect("a free port");
    let text = config_text(&[engine.url()], "[timeouts]\ndrain_grace_ms = 60000\n") + "slots = 1\n";
    let process = Process::start(TEST, &text).await;
    process.is_ready().await;
    let client = process.client().await;
    (engine, process, client)
}

/// Waits until `/metrics` has this line.
async fn counts(process: &Process, line: &str) {
    settled(line, async || {
        process.admin("/metrics").await.1.lines().any(|other| other == line).then_some(())
    })
    .await;
}

/// Cuts what is left; what the client is then told.
async fn told_when_cut(process: &mut Process, client: &mut Client) {
    process.terminate();
    settled("it is heard", async || (ready(process).await == 503).then_some(())).await;
    process.terminate();
    let reply = client.reply().await;
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (503, &"draining".into()));
    assert_eq!(
        (reply.header("retry-after"), reply.header("connection")),
        (Some("1"), Some("close"))
    );
    assert!(process.ended().await.success());
}

#[tokio::test]
async fn a_request_that_still_waits_when_the_rest_is_cut_is_told_to_come_again() {
    let mut endless = EngineOptions { reply: ReplyLength::fixed(100_000), ..engine(Persona::Vllm) };
    endless.params.decode_tps = 100.0;
    let (_engine, mut process, mut first) = occupied(endless).await;
    first.post(CHAT, &chat_stream("tell me everything")).await;
    first.sees("data: ").await;
    let mut second = process.client().await;
    second.post(CHAT, &chat("may I?")).await;
    counts(&process, "shearwater_requests_waiting 1").await;
    told_when_cut(&mut process, &mut second).await;
}

#[tokio::test]
async fn a_request_without_a_reply_when_the_rest_is_cut_is_told_to_come_again() {
    let mut wedged = engine(Persona::Vllm);
    wedged.faults.wedge = true;
    let (_engine, mut process, mut client) = occupied(wedged).await;
    client.post(CHAT, &chat("are you there?")).await;
    counts(&process, "shearwater_backend_in_flight{backend=\"b0\"} 1").await;
    told_when_cut(&mut process, &mut client).await;
}
