//! Replies that go wrong, each counted under the kind a client would complain about.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use loadgen::report::Report;
use tokio::net::TcpListener;

use crate::server::{
    Seen, Sender, Server, answer_chat, chat_end, chat_text, one_conversation, raw, read_request,
    run,
};

/// Runs one request and returns the one kind of error it ended in, with its example.
async fn only_error(url: &str) -> (String, String) {
    let report = run(one_conversation(url, 1)).await;
    assert_eq!((report.requests.sent, report.requests.failed), (1, 1), "{report:?}");
    let kind = report.errors.keys().next().expect("one kind").clone();
    let example = report.error_examples[&kind].clone();
    (kind, example)
}

async fn only_kind(url: &str) -> String {
    only_error(url).await.0
}

#[tokio::test]
async fn a_stream_broken_off_is_cut_short() {
    let server = Server::start(|_, reply: Sender| async move {
        reply.send(chat_text("one")).await;
        reply.break_off().await;
    })
    .await;
    assert_eq!(only_kind(&server.url).await, "cut_short");
}

#[tokio::test]
async fn a_stream_that_ends_cleanly_without_done_has_no_terminator() {
    let server = Server::start(|_, reply: Sender| async move {
        reply.send(chat_text("one")).await;
    })
    .await;
    let (kind, example) = only_error(&server.url).await;
    assert_eq!(kind, "no_terminator");
    assert_eq!(example, "ended without [DONE] after 1 content events");
}

#[tokio::test]
async fn an_error_event_under_status_200_is_an_error() {
    let server = Server::start(|_, reply: Sender| async move {
        reply.send("data: {\"error\":{\"message\":\"queue is full\",\"code\":503}}\n\n").await;
        reply.send("data: [DONE]\n\n").await;
    })
    .await;
    let expected = ("error_event".to_owned(), "queue is full".to_owned());
    assert_eq!(only_error(&server.url).await, expected);
}

#[tokio::test]
async fn an_error_status_is_told_with_its_message() {
    let server = Server::replying("application/json", 503, |_, reply: Sender| async move {
        reply.send(r#"{"error":{"message":"all backends are busy"}}"#).await;
    })
    .await;
    let report = run(one_conversation(&server.url, 1)).await;
    assert_eq!(report.errors["http_status"], 1, "{report:?}");
    assert_eq!(report.error_examples["http_status"], "503: all backends are busy");
    assert_eq!(report.statuses[&503], 1);
}

#[tokio::test]
async fn an_event_that_is_no_json_is_malformed() {
    let server = Server::start(|_, reply: Sender| async move {
        reply.send("data: {\"choices\":[{\n\n").await;
        reply.send(chat_end(1, 0)).await;
    })
    .await;
    assert_eq!(only_kind(&server.url).await, "malformed_event");
}

#[tokio::test]
async fn a_whole_reply_to_a_request_for_a_stream_is_malformed() {
    let server = Server::replying("application/json", 200, |_, reply: Sender| async move {
        reply.send("{}").await;
    })
    .await;
    assert_eq!(only_kind(&server.url).await, "malformed_event");
}

#[tokio::test]
async fn chunks_that_cannot_be_read_are_malformed_framing() {
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nab\r\n";
    let (url, _) = raw(vec![head.to_vec()]).await;
    assert_eq!(only_kind(&url).await, "malformed_framing");
}

#[tokio::test]
async fn a_head_that_cannot_be_read_is_malformed_framing() {
    let (url, _) = raw(vec![b"HTTP/1.1 OK\r\n\r\n".to_vec()]).await;
    assert_eq!(only_kind(&url).await, "malformed_framing");
}

#[tokio::test]
async fn a_connection_closed_before_the_reply_is_cut_short() {
    let (url, _) = raw(vec![Vec::new()]).await;
    assert_eq!(only_kind(&url).await, "cut_short");
}

#[tokio::test]
async fn a_reset_is_told_apart_from_a_close() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client");
        read_request(&mut stream).await;
        // Closing with no time to linger sends a reset.
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("an option");
    });
    assert_eq!(only_kind(&url).await, "reset");
}

#[tokio::test]
async fn an_address_nobody_listens_on_is_a_connect_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    drop(listener);
    assert_eq!(only_kind(&url).await, "connect");
}

#[tokio::test]
async fn silence_ends_a_request_and_slowness_does_not() {
    // Slower in all than the limit, but never silent for as long.
    let slow = Server::start(|_, reply: Sender| async move {
        for _ in 0..10 {
            reply.send(": still here\n\n").await;
            tokio::time::sleep(Duration::from_millis(60)).await;
        }
        reply.send(chat_text("one")).await;
        reply.send(chat_end(1, 0)).await;
    })
    .await;
    let silent = Server::start(|_, reply: Sender| async move {
        reply.send(chat_text("one")).await;
        reply.abandoned().await;
    })
    .await;
    let limited = |url: &str| {
        let mut options = one_conversation(url, 1);
        options.silence = Duration::from_millis(400);
        run(options)
    };
    let (slow, silent): (Report, Report) = tokio::join!(limited(&slow.url), limited(&silent.url));
    assert_eq!(slow.requests.complete, 1, "{slow:?}");
    assert_eq!(silent.errors["timeout"], 1, "{silent:?}");
}

#[tokio::test]
async fn a_failed_turn_is_left_out_of_the_next_one() {
    let requests = Arc::new(Mutex::new(0));
    let server = Server::start(move |seen: Seen, reply: Sender| {
        let number = {
            let mut requests = requests.lock().expect("not poisoned");
            *requests += 1;
            *requests
        };
        async move {
            match number {
                2 => reply.break_off().await,
                _ => answer_chat(seen, reply).await,
            }
        }
    })
    .await;
    let report = run(one_conversation(&server.url, 3)).await;
    assert_eq!((report.requests.complete, report.requests.failed), (2, 1), "{report:?}");
    let seen = server.seen();
    let messages = |turn: usize| seen[turn].body["messages"].as_array().expect("array").clone();
    assert_eq!(messages(1)[..3], messages(2)[..3], "the next question extends what was answered");
    assert_ne!(messages(1)[3], messages(2)[3], "and is a new one");
}
