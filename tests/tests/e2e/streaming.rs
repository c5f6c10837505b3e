//! Events go through one by one, as they come, and break off in the caller's dialect.

use std::sync::Arc;

use serde_json::json;
use tests::harness::{Client, Conn, Proxy, Script};
use tokio::sync::{Notify, mpsc};

use crate::chat_stream;

/// A backend that sends an event only when told to.
async fn prompted() -> (Script, mpsc::UnboundedSender<String>) {
    let (tell, told) = mpsc::unbounded_channel::<String>();
    let told = std::sync::Arc::new(tokio::sync::Mutex::new(told));
    let script = Script::start(move |mut conn: Conn| {
        let told = told.clone();
        async move {
            let mut told = told.lock().await;
            conn.request().await.expect("a request");
            conn.stream_head().await;
            while let Some(event) = told.recv().await {
                if event == "end" {
                    return conn.end().await;
                }
                conn.event(&event).await;
            }
        }
    })
    .await;
    (script, tell)
}

#[tokio::test]
async fn no_event_waits_for_the_next_one() {
    let (script, tell) = prompted().await;
    let proxy = Proxy::start(&[script.url()], "");
    let mut client = proxy.client().await;
    client.post("/v1/chat/completions", &chat_stream("hi")).await;
    for number in 0..20 {
        tell.send(format!("data: {{\"n\":{number}}}")).expect("the backend runs");
        // The next event is not even made before this one has arrived.
        client.sees(&format!("{{\"n\":{number}}}")).await;
    }
    tell.send("end".into()).expect("the backend runs");
    client.sees("0\r\n\r\n").await;
    proxy.idle().await;
}

#[tokio::test]
async fn an_events_bytes_arrive_in_the_chunks_they_were_sent_in() {
    let script = Script::start(|mut conn| async move {
        conn.request().await.expect("a request");
        conn.stream_head().await;
        conn.send(b"5;ext=1\r\ndata:\r\n3\r\n 1\n\r\n1\r\n\n\r\n0\r\nX-Trailer: t\r\n\r\n").await;
    })
    .await;
    let proxy = Proxy::start(&[script.url()], "");
    let mut client = proxy.client().await;
    client.post("/v1/chat/completions", &chat_stream("hi")).await;
    let reply = client.reply().await;
    assert_eq!(reply.text(), "data: 1\n\n");
    assert!(reply.complete);
}

/// Sends one event, then half an event, and dies.
async fn dying() -> Script {
    Script::start(|mut conn| async move {
        conn.request().await.expect("a request");
        conn.stream_head().await;
        conn.event("data: {\"type\":\"content\",\"choices\":[]}").await;
        // A chunk of 64 bytes of which 20 come.
        conn.send(b"40\r\ndata: {\"type\":\"cont").await;
        conn.reset();
    })
    .await
}

async fn broken(path: &str) -> String {
    let script = dying().await;
    let proxy = Proxy::start(&[script.url()], "");
    let mut client = proxy.client().await;
    let body = json!({ "model": "sim", "stream": true, "max_tokens": 9, "input": "hi",
        "messages": [{ "role": "user", "content": "hi" }] });
    client.post(path, &body).await;
    let reply = client.reply().await;
    proxy.idle().await;
    assert!(reply.complete, "the body is framed to its end: {}", reply.text());
    reply.text()
}

fn last_data(text: &str) -> serde_json::Value {
    let data = text.lines().rev().find_map(|line| line.strip_prefix("data: ")).expect("an event");
    serde_json::from_str(data).unwrap_or_else(|e| panic!("{e}: {data}"))
}

#[tokio::test]
async fn a_chat_stream_that_breaks_ends_with_an_error_object_and_no_done() {
    let text = broken("/v1/chat/completions").await;
    assert!(last_data(&text)["error"]["message"].is_string(), "{text}");
    assert!(!text.contains("[DONE]"));
}

#[tokio::test]
async fn a_messages_stream_that_breaks_ends_with_an_error_event() {
    let text = broken("/v1/messages?beta=true").await;
    // Readers go by the name that an event had last: nobody is handed half an object.
    let last = text.trim_end().rsplit("\n\n").next().expect("an event");
    assert!(
        last.starts_with("data: {\"type\":\"cont") && last.contains("\nevent: error\n"),
        "{text}"
    );
    assert_eq!(last_data(&text)["error"]["type"], "api_error");
}

#[tokio::test]
async fn a_responses_stream_that_breaks_ends_with_response_failed() {
    let text = broken("/v1/responses").await;
    assert!(text.contains("\n\nevent: response.failed\n"), "{text}");
    assert_eq!(last_data(&text)["response"]["status"], "failed");
}

#[tokio::test]
async fn a_json_reply_that_breaks_is_an_error_in_the_callers_dialect() {
    let script = Script::start(|mut conn| async move {
        conn.request().await.expect("a request");
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"a\":").await;
    })
    .await;
    let proxy = Proxy::start(&[script.url()], "");
    let mut client = proxy.client().await;
    client.post("/v1/chat/completions", &crate::chat("hi")).await;
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.complete), (502, true), "{}", reply.text());
    assert_eq!(reply.json()["error"]["code"], "upstream_error");
    proxy.idle().await;
}

#[tokio::test]
async fn a_stream_delimited_by_close_gets_chunks_and_an_honest_end() {
    let script = Script::start(|mut conn| async move {
        conn.request().await.expect("a request");
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata: {\"a\":1}\n\n").await;
        if conn.number == 0 {
            conn.send(b"data: [DONE]\n\n").await;
        }
    })
    .await;
    let proxy = Proxy::start(&[script.url()], "");
    let whole = proxy.client().await.ask("/v1/chat/completions", &chat_stream("a")).await;
    assert!(whole.complete && whole.text().ends_with("data: [DONE]\n\n"));
    // The second one closes without the dialect's end: nothing else would tell the client.
    let cut = proxy.client().await.ask("/v1/chat/completions", &chat_stream("b")).await;
    assert!(last_data(&cut.text())["error"].is_object(), "{}", cut.text());
}

#[tokio::test]
async fn a_client_of_http_1_0_gets_the_payload_without_chunks() {
    let script = Script::start(|mut conn| async move {
        conn.request().await.expect("a request");
        conn.stream_head().await;
        conn.event("data: 1").await;
        conn.event("data: [DONE]").await;
        conn.end().await;
    })
    .await;
    let proxy = Proxy::start(&[script.url()], "");
    let mut client = Client::connect(proxy.listen).await;
    let body = chat_stream("hi").to_string();
    let head =
        format!("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: {}\r\n\r\n", body.len());
    client.send(&[head.as_bytes(), body.as_bytes()].concat()).await;
    let text = client.until_closed().await;
    assert!(text.ends_with("\r\n\r\ndata: 1\n\ndata: [DONE]\n\n"), "{text}");
    assert!(!text.to_lowercase().contains("transfer-encoding"));
}

#[tokio::test]
async fn a_reply_its_engine_aborted_is_passed_on_and_not_called_complete() {
    let abort = r#"{"choices":[{"delta":{},"finish_reason":"abort"}]}"#;
    let script = Script::start(move |mut conn| async move {
        while conn.request().await.is_some() {
            conn.stream_head().await;
            conn.event("data: {\"choices\":[{\"delta\":{\"content\":\"I\"}}]}").await;
            conn.event(&format!("data: {abort}")).await;
            conn.event("data: [DONE]").await;
            conn.end().await;
        }
    })
    .await;
    let proxy = Proxy::start(&[script.url()], "");
    let mut client = proxy.client().await;
    let first = client.ask("/v1/chat/completions", &chat_stream("hi")).await;
    assert!(first.complete && first.text().contains(abort), "{}", first.text());
    assert_eq!(proxy.explained(&first).await["end"], "engine_aborted");
    // Its end was a proper one: both connections go on.
    let second = client.ask("/v1/chat/completions", &chat_stream("hi")).await;
    assert!(second.complete && second.text().ends_with("data: [DONE]\n\n"), "{}", second.text());
}

const LLAMA_ERROR: &str = r#"{"code":500,"message":"Compute error.","type":"server_error"}"#;

/// What a client gets whose engine says a word, and then this.
async fn after_a_word(path: &str, error: &str) -> String {
    let (error, go) = (error.to_owned(), Arc::new(Notify::new()));
    let told = Arc::clone(&go);
    let script = Script::start(move |mut conn| {
        let (error, told) = (error.clone(), Arc::clone(&told));
        async move {
            conn.request().await.expect("a request");
            conn.stream_head().await;
            conn.event("event: word\ndata: {\"type\":\"word\",\"choices\":[]}").await;
            // The error comes to a stream that has begun.
            told.notified().await;
            conn.event(&format!("event: last\ndata: {{\"type\":\"last\"}}\n\n{error}")).await;
            conn.event("data: [DONE]").await;
            conn.end().await;
        }
    })
    .await;
    let proxy = Proxy::start(&[script.url()], "");
    let mut client = proxy.client().await;
    client.post(path, &chat_stream("hi")).await;
    client.sees("\"word\"").await;
    go.notify_one();
    let reply = client.reply().await;
    proxy.idle().await;
    assert!(reply.complete, "framed to its end: {}", reply.text());
    assert!(
        reply.text().contains("event: last\ndata: {\"type\":\"last\"}\n\n"),
        "what was well said stays"
    );
    reply.text()
}

#[tokio::test]
async fn an_engines_error_in_the_wrong_words_is_put_right_in_each_dialect() {
    let bare = format!("event: error\ndata: {LLAMA_ERROR}");
    let unnamed = format!("data: {{\"error\":{LLAMA_ERROR}}}");
    let nameless =
        "data: {\"type\":\"error\",\"error\":{\"type\":\"x\",\"message\":\"Compute error.\"}}";
    for error in [&bare, &unnamed, nameless] {
        let text = after_a_word("/v1/messages", error).await;
        assert!(text.contains("\n\nevent: error\ndata: {\"type\":\"error\""), "{text}");
        assert_eq!(
            last_data(&text)["error"],
            json!({ "type": "api_error", "message": "Compute error." })
        );
        assert_eq!(text.matches("Compute error.").count(), 1, "{text}");
        let text = after_a_word("/v1/responses", error).await;
        assert!(text.contains("\n\nevent: response.failed\ndata: "), "{text}");
        assert_eq!(last_data(&text)["response"]["error"]["message"], "Compute error.");
        assert_eq!(text.matches("Compute error.").count(), 1, "{text}");
    }
    let text = after_a_word("/v1/chat/completions", &bare).await;
    assert_eq!(last_data(&text)["error"]["message"], "Compute error.");
    assert!(!text.contains("event: error") && !text.contains("[DONE]"), "{text}");
}

#[tokio::test]
async fn an_engines_error_in_the_right_words_is_passed_on_as_it_came() {
    let enveloped = format!("data: {{\"error\":{LLAMA_ERROR}}}");
    let named = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"internal_error\",\"message\":\"x\"}}";
    let failed =
        "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"error\":{}}}";
    for (path, error) in [
        ("/v1/chat/completions", enveloped.as_str()),
        ("/v1/messages", named),
        ("/v1/responses", failed),
    ] {
        let text = after_a_word(path, error).await;
        assert!(text.ends_with(&format!("\n\n{error}\n\ndata: [DONE]\n\n")), "{path}: {text}");
    }
}

#[tokio::test]
async fn a_refusal_that_lacks_anthropics_envelope_is_put_right_and_others_go_on_as_they_came() {
    let bare = "{\"error\":{\"code\":400,\"message\":\"request (2511 tokens) is too long\",\"type\":\"exceed_context_size_error\",\"n_ctx\":2048}}";
    let enveloped = "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"too long\"}}";
    let refusal = |status: &str, body: &str| {
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    for (path, status, body, mended) in [
        ("/v1/messages", "400 Bad Request", bare, true),
        ("/v1/messages", "400 Bad Request", enveloped, false),
        ("/v1/messages", "400 Bad Request", "no JSON", false),
        ("/v1/messages/count_tokens", "404 Not Found", bare, false),
        ("/v1/chat/completions", "400 Bad Request", bare, false),
        ("/v1/responses", "400 Bad Request", bare, false),
    ] {
        let script = Script::always(refusal(status, body)).await;
        let proxy = Proxy::start(&[script.url()], "");
        let reply = proxy.client().await.ask(path, &chat_stream("hi")).await;
        assert_eq!(reply.status.to_string(), status[..3], "{path}");
        if !mended {
            assert_eq!(reply.text(), body, "{path}");
            continue;
        }
        let said = reply.json();
        let error = json!({ "type": "invalid_request_error",
            "message": "request (2511 tokens) is too long" });
        assert_eq!((&said["type"], &said["error"]), (&json!("error"), &error));
        assert_eq!(reply.header("x-should-retry"), Some("false"));
        proxy.idle().await;
    }
}

#[tokio::test]
async fn an_error_in_the_wrong_words_is_put_right_for_a_client_of_http_1_0_too() {
    let go = Arc::new(Notify::new());
    let told = Arc::clone(&go);
    let script = Script::start(move |mut conn| {
        let told = Arc::clone(&told);
        async move {
            conn.request().await.expect("a request");
            conn.stream_head().await;
            conn.event("event: word\ndata: {\"type\":\"word\"}").await;
            told.notified().await;
            conn.event(&format!("data: {{\"error\":{LLAMA_ERROR}}}")).await;
            conn.end().await;
        }
    })
    .await;
    let proxy = Proxy::start(&[script.url()], "");
    let mut client = Client::connect(proxy.listen).await;
    let body = chat_stream("hi").to_string();
    let head = format!("POST /v1/messages HTTP/1.0\r\nContent-Length: {}\r\n\r\n", body.len());
    client.send(&[head.as_bytes(), body.as_bytes()].concat()).await;
    client.sees("\"word\"").await;
    go.notify_one();
    let text = client.until_closed().await;
    assert!(text.ends_with("\n\nevent: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"Compute error.\"}}\n\n"), "{text}");
}
