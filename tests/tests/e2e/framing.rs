//! What the client sent is what the engine gets, and nothing else.

use std::io::Write;

use tests::harness::{Proxy, Script};

use crate::{chat, ok_json};

fn body_of(request: &[u8]) -> &[u8] {
    let at = request.windows(4).position(|w| w == b"\r\n\r\n").expect("a head") + 4;
    &request[at..]
}

fn head_of(request: &[u8]) -> String {
    let at = request.windows(4).position(|w| w == b"\r\n\r\n").expect("a head") + 4;
    String::from_utf8_lossy(&request[..at]).into_owned()
}

#[tokio::test]
async fn body_bytes_and_unknown_headers_arrive_unchanged_and_hop_by_hop_ones_do_not() {
    let script = Script::always(ok_json("{\"id\":\"x\"}")).await;
    let proxy = Proxy::start(&[script.url()], "");
    let body = b"{ \"messages\" : [ {\"role\":\"user\",\"content\":\"\\u00e9 \\/ 1.0\"} ],\n \"temperature\":0.70, \"unknown\":{\"b\":1,\"a\":2}, \"model\":\"sim\" }";
    let headers = "X-Unknown: kept\r\nanthropic-beta: a,b\r\nConnection: keep-alive, X-Hop\r\nX-Hop: dropped\r\nTE: trailers\r\n";
    let mut client = proxy.client().await;
    client.post_with("/v1/chat/completions?x=1&y=%20", headers, body).await;
    let reply = client.reply().await;
    assert_eq!(reply.text(), "{\"id\":\"x\"}");
    let request = script.requests().remove(0);
    assert_eq!(body_of(&request), body);
    let head = head_of(&request);
    assert!(head.starts_with("POST /v1/chat/completions?x=1&y=%20 HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("X-Unknown: kept") && head.contains("anthropic-beta: a,b"), "{head}");
    let lower = head.to_lowercase();
    assert!(!lower.contains("x-hop") && !lower.contains("\r\nte:"), "{head}");
}

#[tokio::test]
async fn a_chunked_body_is_read_whole_and_sent_with_its_length() {
    let script = Script::always(ok_json("{}")).await;
    let proxy = Proxy::start(&[script.url()], "");
    let body = chat("hello").to_string();
    let (first, second) = body.split_at(7);
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{first}\r\n{:x};e=1\r\n{second}\r\n0\r\nX-T: 1\r\n\r\n",
        first.len(),
        second.len()
    );
    let mut client = proxy.client().await;
    client.send(request.as_bytes()).await;
    assert_eq!(client.reply().await.status, 200);
    let seen = script.requests().remove(0);
    assert_eq!(body_of(&seen), body.as_bytes());
    assert!(!head_of(&seen).to_lowercase().contains("transfer-encoding"));
}

#[tokio::test]
async fn compressed_bodies_are_read_for_routing_and_forwarded_as_they_came() {
    let script = Script::always(ok_json("{}")).await;
    let proxy = Proxy::start(&[script.url()], "");
    let body = chat(&"compress me ".repeat(500)).to_string();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(body.as_bytes()).expect("memory");
    let zstd = zstd::encode_all(body.as_bytes(), 3).expect("memory");
    for (name, bytes) in [("gzip", gzip.finish().expect("memory")), ("zstd", zstd)] {
        let mut client = proxy.client().await;
        client
            .post_with("/v1/chat/completions", &format!("Content-Encoding: {name}\r\n"), &bytes)
            .await;
        assert_eq!(client.reply().await.status, 200, "{name}");
        let seen = script.requests().pop().expect("a request");
        assert_eq!(body_of(&seen), bytes, "{name}");
        assert!(head_of(&seen).to_lowercase().contains(&format!("content-encoding: {name}")));
    }
    let mut client = proxy.client().await;
    client.post_with("/v1/chat/completions", "Content-Encoding: gzip\r\n", b"not gzip").await;
    assert_eq!(client.reply().await.status, 415);
}

#[tokio::test]
async fn requests_on_one_connection_are_answered_in_their_order() {
    let script = Script::start(|mut conn| async move {
        while let Some(request) = conn.request().await {
            let number: String = String::from_utf8_lossy(body_of(&request))
                .chars()
                .filter(char::is_ascii_digit)
                .collect();
            conn.send(ok_json(&format!("{{\"n\":{number}}}")).as_bytes()).await;
        }
    })
    .await;
    let proxy = Proxy::start(&[script.url()], "");
    let mut client = proxy.client().await;
    for number in 0..5 {
        client.post("/v1/chat/completions", &chat(&format!("{number}"))).await;
    }
    for number in 0..5 {
        assert_eq!(client.reply().await.json()["n"], number);
    }
}

#[tokio::test]
async fn a_client_that_waits_to_be_told_is_told_to_continue() {
    let script = Script::always(ok_json("{}")).await;
    let proxy = Proxy::start(&[script.url()], "");
    let body = chat("hello").to_string();
    let mut client = proxy.client().await;
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    client.send(head.as_bytes()).await;
    client.sees("HTTP/1.1 100 Continue\r\n\r\n").await;
    client.send(body.as_bytes()).await;
    assert_eq!(client.reply().await.status, 200);
    assert!(!head_of(&script.requests()[0]).to_lowercase().contains("expect"));
}

#[tokio::test]
async fn interim_replies_are_skipped_and_bodies_of_head_and_204_are_not_awaited() {
    let script = Script::start(|mut conn| async move {
        while let Some(request) = conn.request().await {
            let reply = if request.starts_with(b"HEAD") {
                "HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n".to_owned()
            } else if request.starts_with(b"DELETE") {
                "HTTP/1.1 204 No Content\r\n\r\n".to_owned()
            } else {
                format!(
                    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n{}",
                    ok_json("{\"a\":1}")
                )
            };
            conn.send(reply.as_bytes()).await;
        }
    })
    .await;
    let proxy = Proxy::start(&[script.url()], "");
    let mut client = proxy.client().await;
    assert_eq!(client.ask("/v1/chat/completions", &chat("x")).await.json()["a"], 1);
    client.send(b"HEAD / HTTP/1.1\r\nHost: t\r\n\r\n").await;
    let head = client.reply_to_head().await;
    assert_eq!((head.status, head.header("content-length")), (200, Some("77")));
    client.send(b"DELETE /x HTTP/1.1\r\nHost: t\r\n\r\n").await;
    assert_eq!(client.reply().await.status, 204);
    // The connection is still in step.
    assert_eq!(client.ask("/v1/chat/completions", &chat("y")).await.json()["a"], 1);
}

#[tokio::test]
async fn surplus_bytes_after_a_reply_never_reach_a_client() {
    let script = Script::start(|mut conn| async move {
        while conn.request().await.is_some() {
            conn.send(
                format!("{}HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison", ok_json("{}"))
                    .as_bytes(),
            )
            .await;
        }
    })
    .await;
    let proxy = Proxy::start(&[script.url()], "");
    let mut client = proxy.client().await;
    for number in 0..5 {
        let reply = client.ask("/v1/chat/completions", &chat(&format!("{number}"))).await;
        assert_eq!(reply.text(), "{}");
    }
}

#[tokio::test]
async fn large_bodies_arrive_whole_one_after_another_whatever_their_sizes() {
    let script = Script::always(ok_json("{}")).await;
    let proxy = Proxy::start(&[script.url()], "");
    let mut client = proxy.client().await;
    // Some take the memory of one before, some are more than the kernel takes at once, or than is set aside at first.
    let sizes = [100_000, 99_000, 100_500, 2_000_000, 1_900_000, 9_000_000, 40_000, 100_000];
    for (turn, size) in sizes.into_iter().enumerate() {
        let body = chat(&format!("turn {turn} {}", "abc ".repeat(size / 4))).to_string();
        client.post_with("/v1/chat/completions", "", body.as_bytes()).await;
        assert_eq!(client.reply().await.status, 200);
        let request = script.requests().pop().expect("a request");
        assert!(body_of(&request) == body.as_bytes(), "the body of turn {turn} was changed");
        assert!(head_of(&request).starts_with("POST /v1/chat/completions HTTP/1.1\r\n"));
    }
}

#[tokio::test]
async fn a_body_that_comes_in_pieces_arrives_whole() {
    let script = Script::always(ok_json("{}")).await;
    let proxy = Proxy::start(&[script.url()], "");
    let mut client = proxy.client().await;
    for size in [100_000, 98_000, 300_000] {
        let body = chat(&"abc ".repeat(size / 4)).to_string();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        client.send(head.as_bytes()).await;
        for piece in body.as_bytes().chunks(30_011) {
            client.send(piece).await;
            tokio::task::yield_now().await;
        }
        assert_eq!(client.reply().await.status, 200);
        let request = script.requests().pop().expect("a request");
        assert!(body_of(&request) == body.as_bytes(), "a body was changed");
    }
}

/// The 874 recorded bodies, if they are here.
fn recorded_bodies() -> Option<Vec<(String, Vec<u8>)>> {
    let file =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/traces/bodies/pydantic_ai.jsonl.gz");
    let Ok(file) = std::fs::File::open(file) else {
        eprintln!("SKIPPED: the recorded bodies are not here");
        return None;
    };
    let mut text = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(file), &mut text)
        .expect("gzip");
    let bodies: Vec<(String, Vec<u8>)> = text
        .lines()
        .map(|line| {
            let row: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
            let text =
                |key: &str| row[key].as_str().unwrap_or_else(|| panic!("no {key}")).to_owned();
            (text("path"), text("body").into_bytes())
        })
        .collect();
    assert_eq!(bodies.len(), 874);
    Some(bodies)
}

#[tokio::test]
async fn recorded_bodies_arrive_byte_for_byte() {
    let Some(bodies) = recorded_bodies() else { return };
    let script = Script::always(ok_json("{}")).await;
    let proxy = Proxy::start(&[script.url()], "unknown_model = \"any\"\n");
    let mut client = proxy.client().await;
    for (path, body) in &bodies {
        client.post_with(path, "", body).await;
        let reply = client.reply().await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    let seen = script.requests();
    assert_eq!(seen.len(), bodies.len());
    for (request, (_, body)) in seen.iter().zip(&bodies) {
        assert!(body_of(request) == body, "a body was changed");
    }
}
