//! Signs of life while an engine that has begun says nothing: only between two events, whoever relays the stream, and
//! beside everything else that is put right in it.

use serde_json::{Value, json};
use tests::harness::{Client, Conn, Proxy, Reply, Script};
use tokio::sync::{Mutex, mpsc};

use crate::chat_stream;

const CHAT: &str = "/v1/chat/completions";
const OFTEN: &str = "[stream]\nkeepalive_ms = 100\n";
/// Long enough for several signs of life.
const SILENCE: std::time::Duration = std::time::Duration::from_millis(500);
/// Enough events for a stream to be where streams stay.
const BEGINNING: usize = 6;

const SIGNS: [(&str, &str); 3] = [
    (CHAT, ": keepalive\n\n"),
    ("/v1/messages", "event: ping\ndata: {\"type\":\"ping\"}\n\n"),
    ("/v1/responses", "event: keepalive\ndata: {\"type\":\"keepalive\"}\n\n"),
];

/// An engine that sends what it is told to, when it is told.
struct Engine {
    script: Script,
    tell: mpsc::UnboundedSender<String>,
}

impl Engine {
    async fn start() -> Engine {
        let (tell, told) = mpsc::unbounded_channel::<String>();
        let told = std::sync::Arc::new(Mutex::new(told));
        let script = Script::start(move |mut conn: Conn| {
            let told = told.clone();
            async move {
                conn.request().await.expect("a request");
                conn.stream_head().await;
                while let Some(bytes) = told.lock().await.recv().await {
                    conn.send(bytes.as_bytes()).await;
                }
            }
        })
        .await;
        Engine { script, tell }
    }

    fn sends(&self, bytes: &str) {
        self.tell.send(bytes.to_owned()).expect("the engine runs");
    }

    /// It closes once it has sent everything.
    fn closes(self) -> Script {
        self.script
    }
}

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

fn event(number: usize) -> String {
    format!("data: {{\"type\":\"word\",\"number\":{number}}}\n\n")
}

fn body() -> Value {
    let mut body = chat_stream("hi");
    body["input"] = json!("hi");
    body
}

/// Events one by one, each seen before the next is sent.
async fn begins(engine: &Engine, client: &mut Client) -> String {
    let mut sent = String::new();
    for number in 0..BEGINNING {
        engine.sends(&chunk(&event(number)));
        client.sees(&event(number)).await;
        sent += &event(number);
    }
    sent
}

#[tokio::test]
async fn a_stream_that_stalls_between_events_is_kept_alive_in_each_dialect() {
    for (path, sign) in SIGNS {
        let engine = Engine::start().await;
        let proxy = Proxy::start(&[engine.script.url()], OFTEN);
        let mut client = proxy.client().await;
        client.post(path, &body()).await;
        engine.sends(&chunk(&event(100)));
        // Behind the first event, and where it has been under way for a while.
        client.sees(&(chunk(&event(100)) + &chunk(sign).repeat(2))).await;
        let sent = event(100) + &begins(&engine, &mut client).await;
        client.sees(&(chunk(&event(BEGINNING - 1)) + &chunk(sign).repeat(3))).await;
        engine.sends(&(chunk(&event(200)) + "0\r\n\r\n"));
        let reply = client.reply().await;
        assert!(reply.status == 200 && reply.complete, "{path}: {}", reply.text());
        assert_eq!(reply.text().replace(sign, ""), sent + &event(200), "{path}");
        assert_eq!(proxy.explained(&reply).await["end"], "complete", "{path}");
        proxy.idle().await;
    }
}

#[tokio::test]
async fn a_client_of_http_1_0_is_kept_alive_too() {
    let engine = Engine::start().await;
    let proxy = Proxy::start(&[engine.script.url()], OFTEN);
    let mut client = proxy.client().await;
    let body = body().to_string();
    let head = format!("POST {CHAT} HTTP/1.0\r\nContent-Length: {}\r\n\r\n", body.len());
    client.send((head + &body).as_bytes()).await;
    let sent = begins(&engine, &mut client).await;
    client.sees(&(event(BEGINNING - 1) + &": keepalive\n\n".repeat(3))).await;
    engine.sends(&(chunk(&event(200)) + "0\r\n\r\n"));
    let text = client.until_closed().await.replace(": keepalive\n\n", "");
    assert!(text.ends_with(&format!("\r\n\r\n{sent}{}", event(200))), "{text}");
}

/// The reply to a stream that stalls `open`, behind its first event and where it has been under way for a while, and is
/// then completed by `rest`.
async fn stalling_within(path: &str, open: &str, rest: &str, under_way: bool) -> (Reply, String) {
    let engine = Engine::start().await;
    let proxy = Proxy::start(&[engine.script.url()], OFTEN);
    let mut client = proxy.client().await;
    client.post(path, &body()).await;
    engine.sends(&chunk(&event(100)));
    client.sees(&event(100)).await;
    let mut sent = event(100);
    if under_way {
        sent += &begins(&engine, &mut client).await;
    }
    engine.sends(open);
    client.sees("\"open\"").await;
    tokio::time::sleep(SILENCE).await;
    engine.sends(&format!("{rest}0\r\n\r\n"));
    (client.reply().await, sent)
}

#[tokio::test]
async fn no_sign_of_life_stands_inside_an_event_of_a_stream_under_way() {
    for (path, sign) in SIGNS {
        for under_way in [false, true] {
            // Within a chunk, between two chunks of an event, and before its blank line.
            for (open, rest) in [
                ("12\r\ndata: {\"open\"", ":1}\n\n\r\n"),
                ("d\r\ndata: {\"open\"\r\n", "5\r\n:1}\n\n\r\n"),
                ("11\r\ndata: {\"open\":1}\n\r\n", "1\r\n\n\r\n"),
            ] {
                let (reply, sent) = stalling_within(path, open, rest, under_way).await;
                // Before it there may have been time for one.
                let text = reply.text().replace(sign, "");
                assert_eq!(text, sent + "data: {\"open\":1}\n\n", "{path} {open:?}");
                assert!(reply.text().ends_with("data: {\"open\":1}\n\n") && reply.complete);
            }
        }
    }
}

#[tokio::test]
async fn nothing_is_said_behind_an_end_that_is_not_the_connections() {
    let (reply, sent) =
        stalling_within(CHAT, &chunk("data: [DONE]\n\ndata: \"open\"\n\n"), "", true).await;
    let text = reply.text();
    assert!(text.ends_with("data: [DONE]\n\ndata: \"open\"\n\n") && reply.complete, "{text}");
    assert!(text.replace(": keepalive\n\n", "").starts_with(&sent), "{text}");
}

#[tokio::test]
async fn comments_of_the_engine_are_no_events_to_clients_that_wait_for_events() {
    let engine = Engine::start().await;
    let proxy = Proxy::start(&[engine.script.url()], OFTEN);
    let mut client = proxy.client().await;
    client.post("/v1/responses", &body()).await;
    begins(&engine, &mut client).await;
    let (tell, word) = (engine.tell.clone(), chunk(":\n\n"));
    let commenting = tokio::spawn(async move {
        while tell.send(word.clone()).is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(30)).await;
        }
    });
    for _ in 0..2 {
        client.sees("event: keepalive\ndata: ").await;
    }
    commenting.abort();
}

#[tokio::test]
async fn an_engine_that_is_silent_for_too_long_is_given_up_whatever_was_said_meanwhile() {
    let settings = format!("{OFTEN}[timeouts]\nstream_idle_ms = 600\n");
    for under_way in [false, true] {
        let engine = Engine::start().await;
        let proxy = Proxy::start(&[engine.script.url()], &settings);
        let mut client = proxy.client().await;
        client.post(CHAT, &body()).await;
        engine.sends(&chunk(&event(100)));
        client.sees(&event(100)).await;
        if under_way {
            begins(&engine, &mut client).await;
        }
        let reply = client.reply().await;
        let text = reply.text();
        assert!(reply.complete && text.contains(": keepalive\n\n: keepalive\n\n"), "{text}");
        assert!(text.contains(": keepalive\n\ndata: {\"error\":"), "{text}");
        assert_eq!(proxy.explained(&reply).await["end"], "upstream_stalled");
        drop(engine.closes());
    }
}

#[tokio::test]
async fn an_error_in_the_wrong_words_is_put_right_after_signs_of_life() {
    let error = "data: {\"error\":{\"code\":500,\"message\":\"Compute error.\",\"type\":\"server_error\"}}\n\n";
    for (path, told) in
        [("/v1/messages", "event: error\n"), ("/v1/responses", "event: response.failed\n")]
    {
        let (_, sign) = SIGNS.into_iter().find(|(of, _)| *of == path).expect("a sign");
        let engine = Engine::start().await;
        let proxy = Proxy::start(&[engine.script.url()], OFTEN);
        let mut client = proxy.client().await;
        client.post(path, &body()).await;
        let sent = begins(&engine, &mut client).await;
        client.sees(&chunk(sign).repeat(2)).await;
        engine.sends(&(chunk(error) + "0\r\n\r\n"));
        let reply = client.reply().await;
        let text = reply.text().replace(sign, "");
        // What was withheld of its chunk is blank lines.
        let rest = text.strip_prefix(&sent).expect("what came before is untouched");
        assert!(reply.complete && rest.trim_start().starts_with(told), "{text}");
        assert_eq!(text.matches("Compute error.").count(), 1, "{text}");
    }
}

#[tokio::test]
async fn hidden_usage_stays_hidden_between_signs_of_life() {
    let usage = chunk(
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":40,\"completion_tokens\":3}}\n\n",
    );
    let sign = ": keepalive\n\n";
    for at in [usage.len(), 20] {
        let engine = Engine::start().await;
        let settings = format!("{OFTEN}[repair]\ninclude_usage = true\n");
        let proxy = Proxy::start(&[engine.script.url()], &settings);
        let mut client = proxy.client().await;
        client.post(CHAT, &chat_stream("hi")).await;
        let sent = begins(&engine, &mut client).await;
        client.sees(&chunk(sign).repeat(2)).await;
        engine.sends(&usage[..at]);
        tokio::time::sleep(SILENCE).await;
        engine.sends(&usage[at..]);
        // From here on the stream is written anew.
        engine.sends(&chunk(&event(200)));
        client.sees(&(chunk(&event(200)) + &chunk(sign).repeat(2))).await;
        engine.sends(&(chunk("data: [DONE]\n\n") + "0\r\n\r\n"));
        let reply = client.reply().await;
        let text = reply.text().replace(sign, "");
        assert_eq!(text, sent + &event(200) + "data: [DONE]\n\n", "cut at {at}");
        assert!(reply.complete);
    }
}

#[tokio::test]
async fn a_client_that_leaves_during_a_silence_is_noticed() {
    let engine = Engine::start().await;
    let proxy = Proxy::start(&[engine.script.url()], OFTEN);
    let mut client = proxy.client().await;
    client.post(CHAT, &body()).await;
    begins(&engine, &mut client).await;
    client.sees(": keepalive").await;
    drop(client);
    proxy.idle().await;
}

#[tokio::test]
async fn a_silent_stream_says_nothing_where_that_is_not_switched_on() {
    let engine = Engine::start().await;
    let proxy = Proxy::start(&[engine.script.url()], "");
    let mut client = proxy.client().await;
    client.post(CHAT, &body()).await;
    let sent = begins(&engine, &mut client).await;
    tokio::time::sleep(SILENCE).await;
    engine.sends("0\r\n\r\n");
    assert_eq!(client.reply().await.text(), sent);
}
