//! Bounds and refusals: what is too much, malformed or unknown is answered clearly and sent nowhere.

use serde_json::json;
use tests::harness::{Client, Proxy, Script};

use crate::{chat, ok_json};

async fn raw(proxy: &Proxy, bytes: &[u8]) -> String {
    let mut client = Client::connect(proxy.listen).await;
    client.send(bytes).await;
    client.until_closed().await
}

#[tokio::test]
async fn requests_that_could_smuggle_are_refused_and_reach_no_backend() {
    let script = Script::always(ok_json("{}")).await;
    let proxy = Proxy::start(&[script.url()], "");
    let rows: [(&str, &str); 9] = [
        (
            "POST /x HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "400",
        ),
        (
            "POST /x HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nabcd",
            "400",
        ),
        ("POST /x HTTP/1.1\r\nHost: t\r\nContent-Length: +4\r\n\r\nabcd", "400"),
        ("POST /x HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "501"),
        ("POST /x HTTP/1.1\r\nHost: t\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n", "400"),
        ("POST /x HTTP/1.1\nHost: t\n\n", "400"),
        ("POST /x HTTP/1.1\r\n\r\n", "400"),
        (
            "POST /x HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n0x4\r\nabcd\r\n0\r\n\r\n",
            "400",
        ),
        ("CONNECT t:443 HTTP/1.1\r\nHost: t\r\n\r\n", "405"),
    ];
    for (request, status) in rows {
        let answer = raw(&proxy, request.as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{request:?}: {answer}");
    }
    assert!(script.requests().is_empty());
}

#[tokio::test]
async fn a_body_at_the_limit_passes_and_one_byte_more_is_refused_unread() {
    let script = Script::always(ok_json("{}")).await;
    let proxy = Proxy::start(&[script.url()], "[limits]\nbody_bytes_max = 65536\n");
    let frame = chat("").to_string().len();
    let fit = chat(&"x".repeat(65_536 - frame));
    assert_eq!(proxy.client().await.ask("/v1/chat/completions", &fit).await.status, 200);
    let over = chat(&"x".repeat(65_537 - frame));
    let reply = proxy.client().await.ask("/v1/chat/completions", &over).await;
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (413, &json!("body_too_large")));
    // A chunked body tells no length: it is refused when it has grown too large.
    let chunk = format!("8000\r\n{}\r\n", "x".repeat(0x8000));
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}{chunk}{chunk}"
    );
    let mut client = proxy.client().await;
    client.send(request.as_bytes()).await;
    assert_eq!(client.reply().await.status, 413);
    assert_eq!(script.requests().len(), 1);
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused_with_431() {
    let script = Script::always(ok_json("{}")).await;
    let proxy = Proxy::start(&[script.url()], "");
    let request = format!("POST /x HTTP/1.1\r\nHost: t\r\nX-Large: {}\r\n\r\n", "x".repeat(40_000));
    assert!(raw(&proxy, request.as_bytes()).await.starts_with("HTTP/1.1 431 "));
}

#[tokio::test]
async fn an_unknown_model_is_refused_in_each_dialect_and_sent_nowhere() {
    let script = Script::always(ok_json("{}")).await;
    let proxy = Proxy::start(&[script.url()], "");
    let body =
        json!({ "model": "nope", "input": "x", "messages": [{ "role": "user", "content": "x" }] });
    for (path, status) in
        [("/v1/chat/completions", 404), ("/v1/responses", 400), ("/v1/messages", 400)]
    {
        let reply = proxy.client().await.ask(path, &body).await;
        assert_eq!(reply.status, status, "{path}");
        assert!(
            reply.json()["error"]["message"].as_str().expect("a message").contains("/v1/models")
        );
        assert_eq!(reply.header("x-should-retry"), Some("false"));
    }
    assert!(script.requests().is_empty());
}

#[tokio::test]
async fn a_body_that_is_no_json_is_refused_without_repeating_it() {
    let script = Script::always(ok_json("{}")).await;
    let proxy = Proxy::start(&[script.url()], "");
    let mut client = proxy.client().await;
    client.post_with("/v1/chat/completions", "", b"{\"model\": CANARY").await;
    let reply = client.reply().await;
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (400, &json!("invalid_json")));
    assert!(!reply.text().contains("CANARY"));
    // The connection is still good.
    assert_eq!(client.ask("/v1/chat/completions", &chat("x")).await.status, 200);
}

#[tokio::test]
async fn other_paths_pass_through_unless_that_is_switched_off() {
    let script = Script::always(ok_json("{\"from\":\"engine\"}")).await;
    let open = Proxy::start(&[script.url()], "");
    let mut client = open.client().await;
    client.post_with("/v1/rerank-something", "", b"not even json").await;
    assert_eq!(client.reply().await.json()["from"], "engine");
    let closed = Proxy::start(&[script.url()], "passthrough = false\n");
    let mut client = closed.client().await;
    client.post_with("/v1/rerank-something", "", b"not even json").await;
    assert_eq!(client.reply().await.status, 404);
}
