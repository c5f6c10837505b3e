//! What happens to connections: reuse, closing, hang-up, slow reading.

use std::time::Duration;

use loadgen::client::{Arrivals, Connections, Load, Until};
use tokio::sync::mpsc;

use crate::server::{Sender, Server, answer_chat, chat_end, chat_text, one_conversation, raw, run};

/// A whole chat reply with its length, after which the connection could stay open.
fn whole_reply() -> Vec<u8> {
    let body = [chat_text("one"), chat_end(1, 0)].concat();
    let (kind, length) = ("text/event-stream", body.len());
    format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

#[tokio::test]
async fn turns_share_a_connection_unless_told_otherwise() {
    let server = Server::start(answer_chat).await;
    let report = run(one_conversation(&server.url, 4)).await;
    assert_eq!((report.connections.opened, report.connections.reused), (1, 3), "{report:?}");

    let mut options = one_conversation(&server.url, 4);
    options.connections.keep_alive = false;
    let report = run(options).await;
    assert_eq!((report.connections.opened, report.connections.reused), (4, 0), "{report:?}");
    assert_eq!(report.requests.complete, 4);
}

#[tokio::test]
async fn a_dead_reused_connection_is_counted_and_not_retried() {
    // The second request on a connection is read and never answered.
    let (url, requests) = raw(vec![whole_reply(), Vec::new()]).await;
    let report = run(one_conversation(&url, 4)).await;
    assert_eq!(report.errors["dead_connection"], 2, "{report:?}");
    assert_eq!((report.requests.complete, report.requests.sent), (2, 4));
    assert_eq!(*requests.lock().expect("not poisoned"), 4, "as many as were sent");
}

#[tokio::test]
async fn a_connection_closed_while_idle_is_replaced_without_an_error() {
    let (url, _) = raw(vec![whole_reply()]).await;
    let mut options = one_conversation(&url, 1);
    // 100 ms apart: each close arrives long before the next request.
    options.load =
        Load::Open { rate_per_s: 10.0, arrivals: Arrivals::Constant, conversations: 1, turns: 1 };
    options.until = Until { requests: Some(3), duration: None };
    let report = run(options).await;
    assert_eq!((report.requests.complete, report.connections.opened), (3, 3), "{report:?}");
    assert!(report.errors.is_empty() && report.connections.reused == 0, "{report:?}");
}

#[tokio::test]
async fn clients_that_hang_up_are_seen_by_the_server_and_are_no_errors() {
    let (left, mut seen_left) = mpsc::unbounded_channel();
    let server = Server::start(move |_, reply: Sender| {
        let left = left.clone();
        async move {
            // A prefill longer than the client's patience, then content without end.
            tokio::time::sleep(Duration::from_millis(20)).await;
            while reply.send(chat_text("more")).await {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            left.send(()).expect("the test waits");
        }
    })
    .await;
    let mut options = one_conversation(&server.url, 1);
    options.until = Until { requests: Some(12), duration: None };
    options.cancel_fraction = 1.0;
    options.cancel_prefill = Duration::from_millis(10);
    options.sizes.max_tokens = 5;
    let report = run(options).await;
    let counts = &report.requests;
    assert_eq!(counts.cancelled_in_prefill + counts.cancelled_mid_stream, 12, "{report:?}");
    assert!(counts.cancelled_in_prefill > 0 && counts.cancelled_mid_stream > 0, "{report:?}");
    assert_eq!((counts.failed, counts.complete), (0, 0));
    assert_eq!(report.connections.reused, 0, "a connection hung up on is closed");
    for _ in 0..server.seen().len() {
        seen_left.recv().await.expect("the server notices each hang-up");
    }
}

#[tokio::test]
async fn a_slow_reader_takes_its_time() {
    let server = Server::start(|_, reply: Sender| async move {
        for _ in 0..40 {
            reply.send(chat_text(&"x".repeat(1_000))).await;
        }
        reply.send(chat_end(1, 0)).await;
    })
    .await;
    let mut options = one_conversation(&server.url, 1);
    options.slow_reader_bytes_per_s = Some(100_000);
    let report = run(options).await;
    assert_eq!(report.requests.complete, 1, "{report:?}");
    assert!(report.latency.total.p50_ms >= 400.0, "40 kB at 100 kB/s: {report:?}");
}

#[tokio::test]
async fn a_bound_on_connections_is_kept_and_waiting_counts_as_latency() {
    let server = Server::start(|seen, reply: Sender| async move {
        tokio::time::sleep(Duration::from_millis(40)).await;
        answer_chat(seen, reply).await;
    })
    .await;
    let mut options = one_conversation(&server.url, 1);
    options.load =
        Load::Closed { conversations: 4, turns: 1, think: Duration::ZERO, ramp: Duration::ZERO };
    options.connections = Connections { max: Some(1), keep_alive: true };
    let report = run(options).await;
    assert_eq!((report.requests.complete, report.connections.opened), (4, 1), "{report:?}");
    assert!(report.latency.ttft.max_ms >= 155.0, "the last one waits for three: {report:?}");
    assert!(report.latency.connect.max_ms >= 115.0, "{report:?}");
}
