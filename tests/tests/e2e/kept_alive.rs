//! Signs of life while an engine computes a long prompt: off unless asked for, never before the engine has promised a
//! stream, never inside an event.

use serde_json::json;
use tests::harness::{Conn, Proxy, Script, config_text, eventually};
use tokio::sync::watch;

use crate::{chat, chat_stream, ok_json};

const CHAT: &str = "/v1/chat/completions";
const OFTEN: &str = "[stream]\nkeepalive_ms = 100\n";
/// Long enough for several signs of life.
const SILENCE: std::time::Duration = std::time::Duration::from_millis(500);

/// What a backend sends before it waits for the gate, and after.
type Part = &'static str;

const HEAD: Part =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

/// A backend that sends `before`, waits for the gate, sends `after` and closes.
async fn gated(before: Vec<Part>, after: Vec<Part>) -> (Script, watch::Sender<bool>) {
    let (open, gate) = watch::channel(false);
    let (before, after) = (before.concat(), after.concat());
    let script = Script::start(move |mut conn: Conn| {
        let (mut gate, before, after) = (gate.clone(), before.clone(), after.clone());
        async move {
            conn.request().await.expect("a request");
            conn.send(before.as_bytes()).await;
            gate.wait_for(|open| *open).await.expect("the test runs");
            conn.send(after.as_bytes()).await;
        }
    })
    .await;
    (script, open)
}

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

#[tokio::test]
async fn a_stream_that_was_promised_and_does_not_begin_is_kept_alive_in_each_dialect() {
    let signs = [
        (CHAT, ": keepalive\n\n"),
        ("/v1/messages", "event: ping\ndata: {\"type\":\"ping\"}\n\n"),
        ("/v1/responses", "event: keepalive\ndata: {\"type\":\"keepalive\"}\n\n"),
    ];
    for (path, sign) in signs {
        let rest = vec!["a\r\ndata: {\"a\"\r\n", "5\r\n:1}\n\n\r\n", "0\r\n\r\n"];
        let (script, open) = gated(vec![HEAD], rest).await;
        let proxy = Proxy::start(&[script.url()], OFTEN);
        let mut client = proxy.client().await;
        let mut body = chat_stream("hi");
        body["input"] = json!("hi");
        client.post(path, &body).await;
        client.sees(&chunk(sign).repeat(3)).await;
        open.send(true).expect("the backend runs");
        let reply = client.reply().await;
        let text = reply.text();
        assert!(reply.status == 200 && reply.complete, "{path}: {text}");
        assert_eq!(text.replace(sign, ""), "data: {\"a\":1}\n\n", "{path}");
        let explained = proxy.explained(&reply).await;
        assert_eq!(explained["end"], "complete", "{path}: {explained}");
        proxy.idle().await;
    }
}

#[tokio::test]
async fn nothing_is_said_while_a_request_waits_or_before_its_engine_has_answered() {
    let (script, open) = gated(vec![], vec![HEAD, "a\r\ndata: {}\n\n\r\n0\r\n\r\n"]).await;
    let one_slot = format!("{}slots = 1\n", config_text(&[script.url()], OFTEN));
    let proxy = Proxy::of_config(&one_slot);
    let mut first = proxy.client().await;
    first.post(CHAT, &chat_stream("first")).await;
    eventually("it has the slot", || script.requests().len() == 1).await;
    let mut second = proxy.client().await;
    second.post(CHAT, &chat_stream("second")).await;
    eventually("it waits", || proxy.waiting() == 1).await;
    tokio::time::sleep(SILENCE).await;
    assert!(first.is_quiet() && second.is_quiet());
    open.send(true).expect("the backend runs");
    for client in [&mut first, &mut second] {
        assert_eq!(client.reply().await.text(), "data: {}\n\n");
    }
}

#[tokio::test]
async fn only_streams_are_kept_alive_and_only_where_that_is_switched_on() {
    let whole = ok_json("{\"a\":1}");
    let (head, body) = whole.split_at(whole.len() - 7);
    let (head, body): (Part, Part) = (head.to_owned().leak(), body.to_owned().leak());
    for (settings, before, after) in
        [(OFTEN, head, body), ("", HEAD, "a\r\ndata: {}\n\n\r\n0\r\n\r\n")]
    {
        let (script, open) = gated(vec![before], vec![after]).await;
        let proxy = Proxy::start(&[script.url()], settings);
        let mut client = proxy.client().await;
        client.post(CHAT, &chat("hi")).await;
        eventually("the backend has it", || script.requests().len() == 1).await;
        tokio::time::sleep(SILENCE).await;
        assert!(client.is_quiet(), "{settings}: {before}");
        open.send(true).expect("the backend runs");
        let reply = client.reply().await;
        assert!(reply.complete && !reply.text().contains("keepalive"), "{}", reply.text());
    }
}

#[tokio::test]
async fn after_a_sign_of_life_nothing_is_retried_and_a_failure_is_told_in_the_stream() {
    let (one, open_one) = gated(vec![HEAD], vec![]).await;
    let (two, open_two) = gated(vec![HEAD], vec![]).await;
    let proxy = Proxy::start(&[one.url(), two.url()], OFTEN);
    let mut client = proxy.client().await;
    client.post("/v1/messages", &chat_stream("hi")).await;
    client.sees("event: ping").await;
    // It closes without a word.
    let _ = (open_one.send(true), open_two.send(true));
    let reply = client.reply().await;
    let text = reply.text();
    assert!(reply.complete && text.contains("\n\nevent: error\n"), "{text}");
    assert_eq!(one.requests().len() + two.requests().len(), 1);
    proxy.idle().await;
}

#[tokio::test]
async fn an_engine_that_is_full_after_a_sign_of_life_says_so_itself() {
    let error = "data: {\"error\":{\"message\":\"full\",\"code\":503}}\n\n";
    let framed: Part = format!("{}0\r\n\r\n", chunk(error)).leak();
    let (script, open) = gated(vec![HEAD], vec![framed]).await;
    let proxy = Proxy::start(&[script.url()], OFTEN);
    let mut client = proxy.client().await;
    client.post(CHAT, &chat_stream("hi")).await;
    client.sees(": keepalive").await;
    open.send(true).expect("the backend runs");
    let reply = client.reply().await;
    assert!(reply.complete && reply.text().ends_with(error), "{}", reply.text());
    assert_eq!(proxy.explained(&reply).await["end"], "engine_error");
}

#[tokio::test]
async fn no_sign_of_life_stands_inside_an_event_or_a_chunk() {
    for open_part in ["a\r\ndata: {\"a\"\r\n", "f\r\ndata: {\"a\""] {
        let chunked = open_part.ends_with("\r\n");
        let rest = if chunked { "5\r\n:1}\n\n\r\n" } else { ":1}\n\n\r\n" };
        let (script, open) = gated(vec![HEAD, open_part], vec![rest, "0\r\n\r\n"]).await;
        let proxy = Proxy::start(&[script.url()], OFTEN);
        let mut client = proxy.client().await;
        client.post(CHAT, &chat_stream("hi")).await;
        client.sees("data: {\"a\"").await;
        tokio::time::sleep(SILENCE).await;
        open.send(true).expect("the backend runs");
        let reply = client.reply().await;
        assert_eq!(reply.text(), "data: {\"a\":1}\n\n");
        assert!(reply.complete);
    }
}
