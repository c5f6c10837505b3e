//! Clients who take a reply more slowly than it comes: who takes a little now and then gets all of it, who takes nothing is
//! left, each by its own timer.

use std::time::Duration;

use tests::harness::{Conn, Proxy, Script, Sips};
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::{chat, chat_stream, ok_json};

/// More than the kernels and the proxy keep for a narrow client.
const EVENTS: usize = 600;

fn event(number: usize) -> String {
    let words = "words ".repeat(60);
    format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{number} {words}\"}}}}]}}")
}

/// A backend that streams small events one by one, as engines do, so that each fits or does not; it tells when its
/// connection is closed.
async fn streaming() -> (Script, mpsc::UnboundedReceiver<()>) {
    let (tell, told) = mpsc::unbounded_channel();
    let script = Script::start(move |mut conn: Conn| {
        let tell = tell.clone();
        async move {
            conn.request().await.expect("a request");
            conn.stream_head().await;
            for number in 0..EVENTS {
                conn.event(&event(number)).await;
                sleep(Duration::from_millis(1)).await;
            }
            conn.event("data: [DONE]").await;
            conn.end().await;
            conn.closed().await;
            // Nobody listens any more once the test is over.
            let _ = tell.send(());
        }
    })
    .await;
    (script, told)
}

#[tokio::test]
async fn a_client_that_takes_nothing_of_small_events_is_left_when_writing_stalls_and_not_when_a_stream_idles()
 {
    let (script, mut told) = streaming().await;
    let timeouts = "[timeouts]\nwrite_stall_ms = 500\nstream_idle_ms = 600000\n";
    let proxy = Proxy::start(&[script.url()], timeouts);
    let mut client = proxy.narrow_client(Sips { bytes: 512, pause: Duration::ZERO }).await;
    client.post("/v1/chat/completions", &chat_stream("hi")).await;
    client.sees("data: ").await;
    told.recv().await.expect("the upstream connection is closed");
    proxy.idle().await;
}

#[tokio::test]
async fn a_client_that_pauses_for_longer_than_a_stream_may_idle_gets_all_of_it() {
    let (script, _told) = streaming().await;
    let timeouts = "[timeouts]\nwrite_stall_ms = 60000\nstream_idle_ms = 400\n";
    let proxy = Proxy::start(&[script.url()], timeouts);
    let mut client = proxy.narrow_client(Sips { bytes: 16 << 10, pause: Duration::ZERO }).await;
    client.post("/v1/chat/completions", &chat_stream("hi")).await;
    client.sees("data: ").await;
    sleep(Duration::from_millis(3_000)).await;
    let reply = client.reply().await;
    assert!(reply.complete && reply.text().ends_with("data: [DONE]\n\n"));
}

#[tokio::test]
async fn a_client_that_takes_a_document_slowly_gets_all_of_it() {
    let text = "x".repeat(250_000);
    let script = Script::always(ok_json(&format!("{{\"text\":\"{text}\"}}"))).await;
    let proxy = Proxy::start(&[script.url()], "[timeouts]\nwrite_stall_ms = 500\n");
    let mut client =
        proxy.narrow_client(Sips { bytes: 1_000, pause: Duration::from_millis(5) }).await;
    client.post("/v1/chat/completions", &chat("hi")).await;
    let reply = client.reply().await;
    assert!(reply.complete && reply.json()["text"] == text.as_str(), "{} bytes", reply.body.len());
}
