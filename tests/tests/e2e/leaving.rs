//! A client that leaves frees its slot and its upstream at once, wherever its request is.

use tests::harness::{Conn, Proxy, Script, config_text, eventually};
use tokio::sync::mpsc;

use crate::{chat, chat_stream, ok_json};

/// A backend that tells when it got a request and when its connection was closed.
async fn watched(first_event: bool) -> (Script, mpsc::UnboundedReceiver<&'static str>) {
    let (tell, told) = mpsc::unbounded_channel();
    let script = Script::start(move |mut conn: Conn| {
        let tell = tell.clone();
        async move {
            conn.request().await.expect("a request");
            if first_event {
                conn.stream_head().await;
                conn.event("data: {\"n\":1}").await;
            }
            // Nobody listens any more once the test is over.
            let _ = tell.send("requested");
            conn.closed().await;
            let _ = tell.send("closed");
        }
    })
    .await;
    (script, told)
}

#[tokio::test]
async fn leaving_during_prefill_closes_the_upstream_and_frees_the_slot() {
    let (script, mut told) = watched(false).await;
    let proxy = Proxy::start(&[script.url()], "");
    let mut client = proxy.client().await;
    client.post("/v1/chat/completions", &chat("a long prompt")).await;
    assert_eq!(told.recv().await, Some("requested"));
    assert_eq!(proxy.in_flight(0), 1);
    drop(client);
    assert_eq!(told.recv().await, Some("closed"));
    proxy.idle().await;
}

#[tokio::test]
async fn leaving_in_the_middle_of_a_stream_closes_the_upstream_and_frees_the_slot() {
    let (script, mut told) = watched(true).await;
    let proxy = Proxy::start(&[script.url()], "");
    let mut client = proxy.client().await;
    client.post("/v1/chat/completions", &chat_stream("hi")).await;
    client.sees("{\"n\":1}").await;
    drop(client);
    assert_eq!(told.recv().await, Some("requested"));
    assert_eq!(told.recv().await, Some("closed"));
    proxy.idle().await;
}

#[tokio::test]
async fn leaving_with_a_pipelined_request_behind_is_noticed_too() {
    let (script, mut told) = watched(false).await;
    let proxy = Proxy::start(&[script.url()], "");
    let mut client = proxy.client().await;
    client.post("/v1/chat/completions", &chat("first")).await;
    client.post("/v1/chat/completions", &chat("second")).await;
    assert_eq!(told.recv().await, Some("requested"));
    drop(client);
    assert_eq!(told.recv().await, Some("closed"));
    proxy.idle().await;
}

#[tokio::test]
async fn a_connection_counts_as_idle_again_once_all_it_sent_ahead_was_answered() {
    let script = Script::always(ok_json("{}")).await;
    // A client that is taken to be sending a head would be given a minute.
    let timeouts = "[timeouts]\nkeep_alive_idle_ms = 300\nhead_ms = 60000\n";
    let proxy = Proxy::start(&[script.url()], timeouts);
    let mut client = proxy.client().await;
    let body = chat("first").to_string();
    let (first, second) = ("GET /v1/mod", "els HTTP/1.1\r\nHost: test\r\n\r\n");
    let ahead = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n{body}{first}",
        body.len()
    );
    client.send(ahead.as_bytes()).await;
    assert_eq!(client.reply().await.status, 200);
    client.send(second.as_bytes()).await;
    assert_eq!(client.reply().await.status, 200);
    assert_eq!(client.until_closed().await, "");
}

#[tokio::test]
async fn leaving_while_waiting_for_room_gives_up_the_place() {
    let (script, mut told) = watched(false).await;
    // Configured, and so not the control thread's to change when it has asked the engine.
    let one_slot = format!("{}slots = 1\n", config_text(&[script.url()], ""));
    let proxy = Proxy::of_config(&one_slot);
    let mut first = proxy.client().await;
    first.post("/v1/chat/completions", &chat("first")).await;
    assert_eq!(told.recv().await, Some("requested"));
    let mut second = proxy.client().await;
    second.post("/v1/chat/completions", &chat("second")).await;
    eventually("the second one waits", || proxy.waiting() == 1).await;
    drop(second);
    eventually("its place is free", || proxy.waiting() == 0).await;
    drop(first);
    assert_eq!(told.recv().await, Some("closed"));
    proxy.idle().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_back_the_engine_and_not_our_memory() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let script = Script::start(move |mut conn: Conn| {
        let tell = tell.clone();
        async move {
            conn.request().await.expect("a request");
            conn.stream_head().await;
            let event = format!("data: \"{}\"", "x".repeat(60_000));
            let mut sent = 0_u64;
            // Far more than all socket buffers in between hold.
            for _ in 0..4_000 {
                if tokio::time::timeout(std::time::Duration::from_millis(500), conn.event(&event))
                    .await
                    .is_err()
                {
                    break;
                }
                sent += 60_000;
            }
            let _ = tell.send(sent);
        }
    })
    .await;
    let proxy = Proxy::start(&[script.url()], "");
    let mut client = proxy.client().await;
    client.post("/v1/chat/completions", &chat_stream("hi")).await;
    client.sees("data: ").await;
    let sent = told.recv().await.expect("the backend tells");
    assert!(sent < 200_000_000, "the backend could send {sent} bytes to nobody");
    drop(client);
    proxy.idle().await;
}
