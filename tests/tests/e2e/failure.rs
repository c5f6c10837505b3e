//! Failures before the first byte are retried where that is safe; busy is not broken.

use std::sync::Arc;

use serde_json::json;
use tests::harness::{Conn, Proxy, Script, eventually, settled};
use tokio::sync::Notify;

use crate::{chat, chat_stream, ok_json, resetting_when_reused};

const FULL_IN_A_200: &str = "data: {\"error\":{\"object\":\"error\",\"message\":\"The request queue is full.\",\"type\":\"SERVICE_UNAVAILABLE\",\"param\":null,\"code\":503}}";

/// A backend that says it is full inside a 200.
async fn full_in_a_200() -> Script {
    Script::start(|mut conn| async move {
        while conn.request().await.is_some() {
            conn.stream_head().await;
            conn.event(FULL_IN_A_200).await;
            conn.event("data: [DONE]").await;
            conn.end().await;
        }
    })
    .await
}

async fn streaming() -> Script {
    Script::start(|mut conn| async move {
        while conn.request().await.is_some() {
            conn.stream_head().await;
            conn.event("data: {\"choices\":[]}").await;
            conn.event("data: [DONE]").await;
            conn.end().await;
        }
    })
    .await
}

/// A port that refuses.
async fn nobody() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    format!("http://{}", listener.local_addr().expect("an address"))
}

#[tokio::test]
async fn a_full_engine_that_says_so_in_a_200_is_passed_over() {
    let (full, free) = (full_in_a_200().await, streaming().await);
    let proxy = Proxy::start(&[full.url(), free.url()], "");
    for number in 0..12 {
        let reply = proxy
            .client()
            .await
            .ask("/v1/chat/completions", &chat_stream(&format!("q{number}")))
            .await;
        assert_eq!((reply.status, reply.backend()), (200, "b1"));
        assert!(!reply.text().contains("queue is full"));
    }
    assert!(!full.requests().is_empty(), "it was asked");
    assert!(proxy.admits(0), "busy is not broken");
    proxy.idle().await;
}

#[tokio::test]
async fn a_fleet_that_stays_full_is_answered_in_the_callers_dialect() {
    let full =
        Script::always("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nfull").await;
    let proxy = Proxy::start(&[full.url()], "[routing]\nqueue_wait_ms = 300\n");
    let chat_reply = proxy.client().await.ask("/v1/chat/completions", &chat("hi")).await;
    assert_eq!(chat_reply.status, 503);
    assert_eq!(chat_reply.json()["error"]["code"], "backends_busy");
    assert!(chat_reply.header("retry-after").is_some());
    let body = json!({ "model": "sim", "max_tokens": 9, "messages": [{ "role": "user", "content": "hi" }] });
    let messages = proxy.client().await.ask("/v1/messages", &body).await;
    assert_eq!(
        (messages.status, &messages.json()["error"]["type"]),
        (529, &json!("overloaded_error"))
    );
    assert!(proxy.admits(0), "busy is not broken");
}

#[tokio::test]
async fn a_backend_that_refuses_is_passed_over_and_its_breaker_opens() {
    let free = Script::always(ok_json("{}")).await;
    let proxy = Proxy::start(&[nobody().await, free.url()], "");
    for number in 0..12 {
        let reply =
            proxy.client().await.ask("/v1/chat/completions", &chat(&format!("q{number}"))).await;
        assert_eq!((reply.status, reply.backend()), (200, "b1"));
    }
    eventually("nothing is sent to it any more", || !proxy.admits(0)).await;
}

#[tokio::test]
async fn a_pooled_connection_that_died_is_replaced_without_anybody_noticing() {
    let script = resetting_when_reused().await;
    let proxy = Proxy::start(&[script.url()], "");
    let mut client = proxy.client().await;
    for number in 0..10 {
        let reply = client.ask("/v1/chat/completions", &chat(&format!("q{number}"))).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    assert!(proxy.admits(0), "a stale connection is no failure");
}

#[tokio::test]
async fn an_engines_own_500_is_what_the_caller_gets_when_nothing_else_is_left() {
    let broken = Script::always("HTTP/1.1 500 Oops\r\nContent-Length: 11\r\n\r\ntemplate: x").await;
    let proxy = Proxy::start(&[broken.url()], "");
    let reply = proxy.client().await.ask("/v1/chat/completions", &chat("hi")).await;
    assert_eq!((reply.status, reply.text().as_str()), (500, "template: x"));
    proxy.idle().await;
}

#[tokio::test]
async fn a_callers_mistake_is_passed_through_and_never_counts_against_the_backend() {
    let picky = Script::always("HTTP/1.1 400 Bad Request\r\nContent-Length: 3\r\n\r\nno!").await;
    let proxy = Proxy::start(&[picky.url()], "");
    for _ in 0..10 {
        let reply = proxy.client().await.ask("/v1/chat/completions", &chat("hi")).await;
        assert_eq!((reply.status, reply.text().as_str()), (400, "no!"));
    }
    assert!(proxy.admits(0));
    assert_eq!(picky.requests().len(), 10, "nothing was repeated");
}

#[tokio::test]
async fn an_early_refusal_of_a_body_is_delivered() {
    let script = Script::start(|mut conn: Conn| async move {
        // It answers as soon as it sees the head and never reads the body.
        conn.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\nConnection: close\r\n\r\nlarge")
            .await;
        conn.closed().await;
    })
    .await;
    let proxy = Proxy::start(&[script.url()], "");
    let reply =
        proxy.client().await.ask("/v1/chat/completions", &chat(&"x".repeat(3_000_000))).await;
    assert_eq!((reply.status, reply.text().as_str()), (413, "large"));
}

#[tokio::test]
async fn nobody_left_is_said_so() {
    let proxy = Proxy::start(&[nobody().await], "");
    let reply = proxy.client().await.ask("/v1/chat/completions", &chat("hi")).await;
    assert!([502, 503].contains(&reply.status), "{}", reply.status);
    assert!(reply.json()["error"]["code"].is_string());
}

#[tokio::test]
async fn a_health_endpoint_that_a_long_prefill_stalls_is_no_death_and_one_that_idleness_stalls_is()
{
    let go = Arc::new(Notify::new());
    let told = Arc::clone(&go);
    let script = Script::start(move |mut conn: Conn| {
        let told = Arc::clone(&told);
        async move {
            while conn.request().await.is_some() {
                told.notified().await;
                conn.send(ok_json("{}").as_bytes()).await;
            }
        }
    })
    .await;
    // Long enough that a busy machine does not make it look hung before the prompt has come.
    let settings = "[health]\ninterval_ms = 50\ntimeout_ms = 200\nfailures_to_down = 2\n";
    let proxy = Proxy::start(&[script.url()], settings);
    let mut client = proxy.client().await;
    // A prompt whose prefill takes minutes where nobody knows better.
    client.post("/v1/chat/completions", &chat(&"word ".repeat(20_000))).await;
    eventually("it is being prefilled", || proxy.in_flight(0) == 1).await;
    script.deafen(true);
    settled("a dozen probes went unanswered", async || {
        let all = proxy.admin_json("/admin/backends").await;
        let failures = all["backends"][0]["signals"]["probe"]["failures_in_row"].as_u64();
        failures.filter(|count| *count >= 12)
    })
    .await;
    assert!(proxy.admits(0), "it is busy");
    go.notify_one();
    assert_eq!(client.reply().await.status, 200);
    eventually("without work, silence is death", || !proxy.admits(0)).await;
    script.deafen(false);
    eventually("it is back", || proxy.admits(0)).await;
}

#[tokio::test]
async fn a_short_document_that_breaks_off_is_asked_for_elsewhere_and_a_long_one_is_seen_to_be_cut()
{
    let cut = |body: String| async move {
        let whole = ok_json(&body);
        Script::start(move |mut conn| {
            let half = whole.as_bytes()[..whole.len() - body.len() / 2].to_vec();
            async move {
                conn.request().await;
                conn.send(&half).await;
            }
        })
        .await
    };
    let short =
        cut(json!({ "choices": [{ "message": { "content": "half of it" } }] }).to_string()).await;
    let good = Script::always(ok_json("{\"choices\":[]}")).await;
    let proxy = Proxy::start(&[short.url(), good.url()], "[routing]\npolicy = \"round_robin\"\n");
    for number in 0..4 {
        let body = chat(&format!("q{number}"));
        let reply = proxy.client().await.ask("/v1/chat/completions", &body).await;
        assert_eq!((reply.status, reply.backend(), reply.complete), (200, "b1", true));
    }
    assert!(!short.requests().is_empty(), "it was asked");
    let long = cut(format!("\"{}\"", "x".repeat(600_000))).await;
    let proxy = Proxy::start(&[long.url()], "");
    let reply = proxy.client().await.ask("/v1/chat/completions", &chat("hi")).await;
    assert_eq!((reply.status, reply.complete), (200, false));
}

#[tokio::test]
async fn a_short_document_that_stalls_is_waited_for_as_long_as_a_stream_may_be_silent() {
    let script = Script::start(|mut conn: Conn| async move {
        conn.request().await.expect("a request");
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"a\":").await;
        conn.closed().await;
    })
    .await;
    // A first byte may take ten minutes, which is the default.
    let proxy = Proxy::start(&[script.url()], "[timeouts]\nstream_idle_ms = 200\n");
    let reply = proxy.client().await.ask("/v1/chat/completions", &chat("hi")).await;
    assert_eq!(reply.status, 504, "{}", reply.text());
    proxy.idle().await;
}

#[tokio::test]
async fn requests_before_an_engine_that_hangs_are_served_elsewhere_once_its_probes_tell() {
    let hung =
        Script::start(|mut conn: Conn| async move { while conn.request().await.is_some() {} })
            .await;
    let free = Script::always(ok_json("{}")).await;
    // Long enough that a busy machine does not make a healthy engine look hung before its request has come.
    let settings = "[health]\ninterval_ms = 50\ntimeout_ms = 500\nfailures_to_down = 2\n\
        [routing]\npolicy = \"round_robin\"\n";
    let proxy = Proxy::start(&[hung.url(), free.url()], settings);
    let (mut one, mut two) = (proxy.client().await, proxy.client().await);
    one.post("/v1/chat/completions", &chat("hi")).await;
    two.post("/v1/chat/completions", &chat("ho")).await;
    eventually("one of them is stuck", || hung.requests().len() == 1).await;
    hung.deafen(true);
    for client in [&mut one, &mut two] {
        let reply = client.reply().await;
        assert_eq!((reply.status, reply.backend()), (200, "b1"));
    }
    assert!(!proxy.admits(0));
    proxy.idle().await;
}
