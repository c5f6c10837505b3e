//! A backend that fails is left alone, tried with a few requests, and taken in again or left alone for longer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use serde_json::Value;
use tests::harness::{Proxy, Reply, Script, settled};

use crate::{chat, chat_stream, ok_json};

const BROKEN: u8 = 0;
const SERVING: u8 = 1;
const BUSY: u8 = 2;

/// A backend in the mood it is told to be in.
async fn moody(mood: &Arc<AtomicU8>, broken: &'static str) -> Script {
    let mood = Arc::clone(mood);
    Script::start(move |mut conn| {
        let mood = Arc::clone(&mood);
        async move {
            while conn.request().await.is_some() {
                // Relaxed: the mood stands alone.
                match mood.load(Ordering::Relaxed) {
                    BROKEN => conn.send(broken.as_bytes()).await,
                    SERVING => conn.send(ok_json("{}").as_bytes()).await,
                    _ => conn.send(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n").await,
                }
            }
        }
    })
    .await
}

const OOPS: &str = "HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\noops";

async fn status(proxy: &Proxy) -> u16 {
    proxy.client().await.ask("/v1/chat/completions", &chat("hi")).await.status
}

async fn breaker(proxy: &Proxy) -> Value {
    proxy.admin_json("/admin/backends").await["backends"][0]["state"]["breaker"].clone()
}

async fn becomes(proxy: &Proxy, state: &str) {
    settled(state, async || (breaker(proxy).await["state"] == state).then_some(())).await;
}

/// A proxy before one backend whose breaker has just opened.
async fn opened(mood: &Arc<AtomicU8>, broken: &'static str) -> (Script, Proxy) {
    let script = moody(mood, broken).await;
    let proxy = Proxy::start(&[script.url()], "[routing]\nqueue_wait_ms = 300\n");
    for _ in 0..3 {
        assert_eq!(status(&proxy).await, 500, "the engine's own words");
    }
    assert_eq!(breaker(&proxy).await["state"], "open");
    assert_eq!(status(&proxy).await, 503, "nobody is there now");
    assert_eq!(script.requests().len(), 3, "it was left alone");
    (script, proxy)
}

#[tokio::test]
async fn a_backend_that_mends_is_tried_with_requests_and_taken_in_again() {
    let mood = Arc::new(AtomicU8::new(BROKEN));
    let (script, proxy) = opened(&mood, OOPS).await;
    // Relaxed: as above.
    mood.store(SERVING, Ordering::Relaxed);
    becomes(&proxy, "half_open").await;
    for left in [2, 1, 0] {
        assert_eq!(status(&proxy).await, 200);
        let state = if left > 0 { "half_open" } else { "closed" };
        assert_eq!(breaker(&proxy).await["state"], state, "{left} more have to be served");
    }
    assert_eq!(script.requests().len(), 6);
    let after = breaker(&proxy).await;
    assert_eq!((&after["opened"], &after["failures_in_row"]), (&1.into(), &0.into()));
}

#[tokio::test]
async fn who_finds_every_breaker_open_waits_for_the_next_trial() {
    let mood = Arc::new(AtomicU8::new(BROKEN));
    let script = moody(&mood, OOPS).await;
    let proxy = Proxy::start(&[script.url()], "");
    for _ in 0..3 {
        assert_eq!(status(&proxy).await, 500, "the engine's own words");
    }
    assert_eq!(breaker(&proxy).await["state"], "open");
    // Relaxed: as above.
    mood.store(SERVING, Ordering::Relaxed);
    assert_eq!(status(&proxy).await, 200);
    assert_eq!(script.requests().len(), 4, "it was not asked before its time");
}

#[tokio::test]
async fn streams_that_break_open_a_breaker_though_each_had_begun() {
    let script = Script::start(|mut conn| async move {
        conn.request().await.expect("a request");
        conn.stream_head().await;
        conn.event("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}").await;
        conn.reset();
    })
    .await;
    let proxy = Proxy::start(&[script.url()], "");
    for _ in 0..3 {
        let reply = proxy.client().await.ask("/v1/chat/completions", &chat_stream("hi")).await;
        assert_eq!(reply.status, 200, "it had begun");
    }
    becomes(&proxy, "open").await;
}

#[tokio::test]
async fn a_backend_that_fails_a_trial_is_left_alone_for_longer() {
    let mood = Arc::new(AtomicU8::new(BROKEN));
    let (script, proxy) = opened(&mood, OOPS).await;
    becomes(&proxy, "half_open").await;
    assert_eq!(status(&proxy).await, 500);
    assert_eq!(status(&proxy).await, 503, "one failure is enough");
    let again = breaker(&proxy).await;
    assert_eq!(again["state"], "open");
    assert!(again["tried_in_ms"].as_u64().is_some_and(|ms| ms > 1_000), "{again}");
    assert_eq!(script.requests().len(), 4);
}

#[tokio::test]
async fn a_backend_on_trial_that_is_only_busy_neither_passes_nor_fails() {
    let mood = Arc::new(AtomicU8::new(BROKEN));
    let (_script, proxy) = opened(&mood, OOPS).await;
    becomes(&proxy, "half_open").await;
    // Relaxed: as above.
    mood.store(BUSY, Ordering::Relaxed);
    for _ in 0..2 {
        assert_eq!(status(&proxy).await, 503);
        assert_eq!(breaker(&proxy).await["state"], "half_open");
    }
    // Relaxed: as above.
    mood.store(SERVING, Ordering::Relaxed);
    for _ in 0..3 {
        assert_eq!(status(&proxy).await, 200);
    }
    assert_eq!(breaker(&proxy).await["state"], "closed");
}

#[tokio::test]
async fn a_broken_backend_that_says_when_to_come_back_is_believed() {
    let mood = Arc::new(AtomicU8::new(BROKEN));
    let oops = "HTTP/1.1 500 Oops\r\nRetry-After: 90\r\nContent-Length: 4\r\n\r\noops";
    let (_script, proxy) = opened(&mood, oops).await;
    let due = breaker(&proxy).await["tried_in_ms"].as_u64();
    assert!(due.is_some_and(|ms| (60_000..=90_000).contains(&ms)), "{due:?}");
}

/// Asks with a key of one's own.
async fn with_key(proxy: &Proxy, key: &str) -> Reply {
    let mut client = proxy.client().await;
    let authorization = format!("Authorization: Bearer {key}\r\n");
    let body = chat("hi").to_string();
    client.post_with("/v1/chat/completions", &authorization, body.as_bytes()).await;
    client.reply().await
}

/// A backend that took the key `known` and now refuses every key, and one that fails and whose breaker is open.
async fn refusing_and_open(settings: &str) -> (Arc<AtomicU8>, [Script; 2], Proxy) {
    let moods = [Arc::new(AtomicU8::new(SERVING)), Arc::new(AtomicU8::new(SERVING))];
    let refused = "HTTP/1.1 401 No\r\nContent-Length: 6\r\n\r\nno key";
    let scripts = [moody(&moods[1], OOPS).await, moody(&moods[0], refused).await];
    let proxy = Proxy::start(&[scripts[0].url(), scripts[1].url()], settings);
    assert_eq!(with_key(&proxy, "known").await.status, 200);
    for mood in &moods {
        // Relaxed: as above.
        mood.store(BROKEN, Ordering::Relaxed);
    }
    settled("its breaker opens", async || {
        with_key(&proxy, "strange").await;
        (breaker(&proxy).await["state"] == "open").then_some(())
    })
    .await;
    let [_, failing] = moods;
    (failing, scripts, proxy)
}

#[tokio::test]
async fn a_key_that_was_good_waits_for_a_trial_of_those_who_could_not_be_asked() {
    let (failing, _scripts, proxy) = refusing_and_open("").await;
    // Relaxed: as above.
    failing.store(SERVING, Ordering::Relaxed);
    let reply = with_key(&proxy, "known").await;
    assert_eq!((reply.status, reply.backend()), (200, "b0"));
}

#[tokio::test]
async fn a_key_that_was_good_is_not_called_bad_while_somebody_cannot_be_asked() {
    let (_failing, _scripts, proxy) = refusing_and_open("[routing]\nqueue_wait_ms = 0\n").await;
    let reply = with_key(&proxy, "strange").await;
    assert_eq!((reply.status, reply.text().as_str()), (401, "no key"), "as far as anybody knows");
    assert_eq!(with_key(&proxy, "known").await.status, 503, "it may come again");
    assert_eq!(with_key(&proxy, "strange").await.status, 503, "who refuses that one refuses all");
}

#[tokio::test]
async fn who_was_failed_by_one_backend_waits_for_the_trial_of_another() {
    let (first, second) = (Arc::new(AtomicU8::new(BROKEN)), Arc::new(AtomicU8::new(SERVING)));
    let scripts = [moody(&first, OOPS).await, moody(&second, OOPS).await];
    let in_turn = "[routing]\npolicy = \"round_robin\"\n";
    let proxy = Proxy::start(&[scripts[0].url(), scripts[1].url()], in_turn);
    settled("its breaker opens", async || {
        assert_eq!(status(&proxy).await, 200, "the other serves");
        (breaker(&proxy).await["state"] == "open").then_some(())
    })
    .await;
    // Relaxed: as above.
    first.store(SERVING, Ordering::Relaxed);
    second.store(BROKEN, Ordering::Relaxed);
    assert_eq!(status(&proxy).await, 200);
}
