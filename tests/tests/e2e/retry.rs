//! What is tried elsewhere, what is sent once, and what a caller hears when everybody refuses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tests::harness::{Client, Conn, Proxy, Reply, Script};

use crate::{chat, ok_json, resetting_when_reused};

const ROUND_ROBIN: &str = "[routing]\npolicy = \"round_robin\"\n";
const CHAT: &str = "/v1/chat/completions";

/// A backend that answers everything with this status and body.
async fn saying(status: &str, headers: &str, body: &str) -> Script {
    let length = body.len();
    Script::always(format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\n\r\n{body}"))
        .await
}

async fn serving() -> Script {
    Script::always(ok_json("{}")).await
}

/// A backend that takes every request whole and closes without a word.
async fn swallowing() -> Script {
    Script::start(|mut conn: Conn| async move {
        conn.request().await;
    })
    .await
}

/// A port that refuses.
async fn nobody() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    format!("http://{}", listener.local_addr().expect("an address"))
}

async fn ask(proxy: &Proxy) -> Reply {
    proxy.client().await.ask(CHAT, &chat("hi")).await
}

async fn failures(proxy: &Proxy, backend: usize) -> Value {
    proxy.admin_json("/admin/backends").await["backends"][backend]["state"]["breaker"]
        ["failures_in_row"]
        .clone()
}

#[tokio::test]
async fn a_key_that_one_backend_refuses_is_taken_to_the_next() {
    let (strict, free) = (saying("401 Unauthorized", "", "no key").await, serving().await);
    let proxy = Proxy::start(&[strict.url(), free.url()], ROUND_ROBIN);
    for _ in 0..6 {
        let reply = ask(&proxy).await;
        assert_eq!((reply.status, reply.backend()), (200, "b1"));
    }
    assert!(!strict.requests().is_empty(), "it was asked");
    assert!(proxy.admits(0) && failures(&proxy, 0).await == 0, "a refused key is no failure");
    let (_, metrics) = proxy.admin("/metrics").await;
    assert!(!metrics.contains("shearwater_key_refused_answers_total 0"));
    proxy.idle().await;
}

#[tokio::test]
async fn a_key_that_everybody_refuses_is_answered_in_the_engines_words_after_each_was_asked_once() {
    let strict = [
        saying("401 Unauthorized", "", "no key").await,
        saying("403 Forbidden", "", "not you").await,
    ];
    let proxy = Proxy::start(&[strict[0].url(), strict[1].url()], "");
    let reply = ask(&proxy).await;
    assert!(matches!((reply.status, reply.text().as_str()), (401, "no key") | (403, "not you")));
    assert_eq!(strict.each_ref().map(|script| script.requests().len()), [1, 1]);
    proxy.idle().await;
}

#[tokio::test]
async fn a_quota_used_up_at_one_backend_is_no_quota_at_the_next() {
    let limited = saying("429 Too Many", "Retry-After: 60\r\n", "slow").await;
    let free = serving().await;
    let proxy = Proxy::start(&[limited.url(), free.url()], ROUND_ROBIN);
    for _ in 0..6 {
        let reply = ask(&proxy).await;
        assert_eq!((reply.status, reply.backend()), (200, "b1"));
    }
    // Each of those requests that came to it asked it once: one caller's quota is not another's.
    assert!(limited.requests().len() >= 2);
    assert!(proxy.admits(0) && failures(&proxy, 0).await == 0, "a quota is no failure");
}

#[tokio::test]
async fn when_all_are_rate_limited_the_soonest_of_the_engines_answers_is_given_at_once() {
    let limited = [
        saying("429 Too Many", "Retry-After: 50\r\n", "fifty").await,
        saying("429 Too Many", "Retry-After: 7\r\n", "seven").await,
        saying("429 Too Many", "Retry-After: 90\r\n", "ninety").await,
    ];
    let urls: Vec<String> = limited.iter().map(Script::url).collect();
    // It could wait for five seconds, and knows that would be in vain.
    let proxy = Proxy::start(&urls, "[routing]\nqueue_wait_ms = 5000\n");
    let reply = ask(&proxy).await;
    assert_eq!((reply.status, reply.header("retry-after")), (429, Some("7")));
    assert_eq!(reply.text(), "seven");
    let waited = proxy.explained(&reply).await["waited_ms"].as_u64();
    assert!(waited < Some(2_500), "it waited {waited:?} ms in vain");
    assert!(limited.iter().all(|script| script.requests().len() == 1));
}

#[tokio::test]
async fn a_quota_that_is_free_again_within_the_wait_is_waited_for() {
    let script = Script::start(|mut conn: Conn| async move {
        while conn.request().await.is_some() {
            let first = conn.number == 0;
            let limited = "HTTP/1.1 429 Too Many\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n";
            let reply = if first { limited.to_owned() } else { ok_json("{}") };
            conn.send(reply.as_bytes()).await;
        }
    })
    .await;
    let proxy = Proxy::start(&[script.url()], "[routing]\nqueue_wait_ms = 15000\n");
    let reply = ask(&proxy).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let waited = proxy.explained(&reply).await["waited_ms"].as_u64();
    assert!((Some(900)..Some(10_000)).contains(&waited), "{waited:?}");
    assert_eq!(script.requests().len(), 2);
}

#[tokio::test]
async fn a_quota_is_asked_about_as_often_as_the_wait_allows() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let script = Script::start(move |mut conn: Conn| {
        let count = Arc::clone(&count);
        async move {
            while conn.request().await.is_some() {
                // Relaxed: a count.
                let limited = count.fetch_add(1, Ordering::Relaxed) < 8;
                let no = "HTTP/1.1 429 Too Many\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n";
                let reply = if limited { no.to_owned() } else { ok_json("{}") };
                conn.send(reply.as_bytes()).await;
            }
        }
    })
    .await;
    let proxy = Proxy::start(&[script.url()], "");
    assert_eq!(ask(&proxy).await.status, 200);
    // Relaxed: as above.
    assert_eq!(asked.load(Ordering::Relaxed), 9);
}

#[tokio::test]
async fn one_that_is_full_makes_it_a_matter_of_room_and_not_of_quota() {
    let limited = saying("429 Too Many", "Retry-After: 50\r\n", "fifty").await;
    let full = saying("503 Busy", "", "full").await;
    let proxy = Proxy::start(&[limited.url(), full.url()], "[routing]\nqueue_wait_ms = 300\n");
    let reply = ask(&proxy).await;
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (503, &json!("backends_busy")));
}

#[tokio::test]
async fn a_full_engine_that_says_for_how_long_is_left_alone_for_that_long() {
    let script = Script::start(|mut conn: Conn| async move {
        while conn.request().await.is_some() {
            let full = "HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n";
            let reply = if conn.number == 0 { full.to_owned() } else { ok_json("{}") };
            conn.send(reply.as_bytes()).await;
        }
    })
    .await;
    let proxy = Proxy::start(&[script.url()], "[routing]\nqueue_wait_ms = 15000\n");
    let reply = ask(&proxy).await;
    assert_eq!((reply.status, script.requests().len()), (200, 2));
    assert!(proxy.explained(&reply).await["waited_ms"].as_u64() >= Some(900));
}

/// Requests that leave something behind when they are carried out.
fn lasting() -> Vec<(&'static str, Value)> {
    let with = |key: &str, value: Value| {
        let mut body = json!({ "model": "sim", "input": "hi" });
        body[key] = value;
        ("/v1/responses", body)
    };
    vec![
        ("/v1/batches", json!({ "input_file_id": "f" })),
        ("/v1/files", json!({})),
        with("store", json!(true)),
        with("background", json!(true)),
        with("previous_response_id", json!("resp_1")),
        with("conversation", json!({ "id": "conv_1" })),
    ]
}

#[tokio::test]
async fn what_must_not_be_done_twice_is_sent_once_and_its_unknown_outcome_is_told() {
    for (path, body) in lasting() {
        let backends = [swallowing().await, swallowing().await];
        let proxy = Proxy::start(&[backends[0].url(), backends[1].url()], "");
        let reply = proxy.client().await.ask(path, &body).await;
        let code = reply.json()["error"]["code"].clone();
        assert_eq!((reply.status, code), (502, json!("outcome_unknown")), "{path} {body}");
        assert_eq!(reply.header("x-should-retry"), Some("false"), "no client repeats it either");
        let sent: usize = backends.iter().map(|script| script.requests().len()).sum();
        assert_eq!(sent, 1, "{path} {body}");
        proxy.idle().await;
    }
}

#[tokio::test]
async fn what_must_not_be_done_twice_goes_elsewhere_if_it_was_not_begun() {
    for (path, body) in lasting() {
        let (full, free) = (saying("503 Busy", "", "full").await, serving().await);
        let proxy = Proxy::start(&[nobody().await, full.url(), free.url()], ROUND_ROBIN);
        for _ in 0..3 {
            let reply = proxy.client().await.ask(path, &body).await;
            assert_eq!((reply.status, reply.backend()), (200, "b2"), "{path} {body}");
        }
    }
}

#[tokio::test]
async fn what_must_not_be_done_twice_never_meets_a_connection_that_may_be_dead() {
    let script = resetting_when_reused().await;
    let proxy = Proxy::start(&[script.url()], "");
    let mut client = proxy.client().await;
    for number in 0..6 {
        let reply = client.ask("/v1/batches", &json!({ "number": number })).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    assert_eq!(script.requests().len(), 6);
}

#[tokio::test]
async fn inference_whose_outcome_is_unknown_goes_elsewhere() {
    let (first, free) = (swallowing().await, serving().await);
    let proxy = Proxy::start(&[first.url(), free.url()], ROUND_ROBIN);
    let responses = json!({ "model": "sim", "input": "hi", "store": false });
    for (path, body) in [(CHAT, chat("hi")), ("/v1/responses", responses), ("/tokenize", chat("x"))]
    {
        for _ in 0..2 {
            let reply = proxy.client().await.ask(path, &body).await;
            assert_eq!((reply.status, reply.backend()), (200, "b1"), "{path}");
        }
    }
    assert!(!first.requests().is_empty());
}

#[tokio::test]
async fn an_engines_own_500_to_what_must_not_be_done_twice_is_the_answer() {
    let broken = [saying("500 Oops", "", "a").await, saying("500 Oops", "", "a").await];
    let proxy = Proxy::start(&[broken[0].url(), broken[1].url()], "");
    let reply = proxy.client().await.ask("/v1/batches", &json!({})).await;
    assert_eq!((reply.status, reply.text().as_str()), (500, "a"));
    let sent: usize = broken.iter().map(|script| script.requests().len()).sum();
    assert_eq!(sent, 1);
}

#[tokio::test]
async fn a_fault_found_inside_a_200_gets_the_status_it_should_have_had() {
    let error = r#"{"error":{"code":400,"message":"no such tool","type":"invalid_request_error"}}"#;
    let script = Script::start(move |mut conn: Conn| async move {
        while conn.request().await.is_some() {
            conn.stream_head().await;
            conn.event(&format!("data: {error}")).await;
            conn.end().await;
        }
    })
    .await;
    let proxy = Proxy::start(&[script.url()], "");
    let mut client: Client = proxy.client().await;
    for path in [CHAT, "/v1/messages", "/v1/responses"] {
        let reply = client.ask(path, &crate::chat_stream("hi")).await;
        let message = reply.json()["error"]["message"].clone();
        assert_eq!((reply.status, message), (400, json!("no such tool")), "{path}");
    }
    assert_eq!(failures(&proxy, 0).await, 0);
}
