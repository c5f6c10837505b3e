//! Bodies mended because an operator asked for it, and the usage that was asked for in a client's stead.

use std::io::Write;

use serde_json::json;
use tests::harness::{Proxy, Script, settled};

use crate::{chat, ok_json};

const CHAT: &str = "/v1/chat/completions";
const ALL: &str =
    "[repair]\ndrop_billing_block = true\ninclude_usage = true\nmax_tokens_cap = 100\n";

fn body_of(request: &[u8]) -> String {
    let at = request.windows(4).position(|w| w == b"\r\n\r\n").expect("a head") + 4;
    String::from_utf8(request[at..].to_vec()).expect("text")
}

/// What an engine gets of this body; its length is checked by the reader.
async fn sent(settings: &str, path: &str, headers: &str, body: &[u8]) -> (String, Vec<u8>) {
    let script = Script::always(ok_json("{}")).await;
    let proxy = Proxy::start(&[script.url()], settings);
    let mut client = proxy.client().await;
    client.post_with(path, headers, body).await;
    assert_eq!(client.reply().await.status, 200);
    let request = script.requests().remove(0);
    let at = request.windows(4).position(|w| w == b"\r\n\r\n").expect("a head") + 4;
    (String::from_utf8_lossy(&request[..at]).to_lowercase(), request[at..].to_vec())
}

#[tokio::test]
async fn only_the_bytes_that_repairs_name_are_changed() {
    let padding = "é \\u00e9 ".repeat(8_000);
    let body = format!(
        "{{ \"max_tokens\" : 32000,\"stream\":true, \"unknown\":0.70,\"messages\":[{{\"role\":\"user\",\"content\":\"{padding}\"}}]}}"
    );
    let (_, got) = sent(ALL, CHAT, "", body.as_bytes()).await;
    let options = "{\"stream_options\":{\"include_usage\":true}, ";
    let expected = body.replacen("{ ", options, 1).replacen("32000", "100", 1);
    assert!(got == expected.as_bytes(), "{}", String::from_utf8_lossy(&got[..200]));
    let bill = "{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: cch=0a1b2;\"}, ";
    let kept = "{\"type\":\"text\",\"text\":\"you are\"}";
    let with = |bill| format!("{{\"max_tokens\":7,\"system\":[{bill}{kept}],\"messages\":[]}}");
    let (_, got) = sent(ALL, "/v1/messages?beta=true", "", with(bill).as_bytes()).await;
    assert_eq!(String::from_utf8(got).expect("text"), with(""));
}

#[tokio::test]
async fn without_repairs_the_same_bodies_arrive_untouched() {
    let body = b"{ \"max_tokens\" : 32000,\"stream\":true, \"id_slot\":3, \"messages\":[]}";
    let (_, got) = sent("", CHAT, "", body).await;
    assert_eq!(got, body);
}

#[tokio::test]
async fn a_compressed_body_is_sent_unpacked_where_something_is_mended_and_else_as_it_came() {
    let packed = |body: &str| {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(body.as_bytes()).expect("memory");
        gzip.finish().expect("memory")
    };
    let header = "Content-Encoding: gzip\r\n";
    let large = packed("{\"max_tokens\":900,\"messages\":[]}");
    let (head, got) = sent(ALL, CHAT, header, &large).await;
    assert_eq!(String::from_utf8(got).expect("text"), "{\"max_tokens\":100,\"messages\":[]}");
    assert!(!head.contains("content-encoding"), "{head}");
    let small = packed("{\"max_tokens\":9,\"messages\":[]}");
    let (head, got) = sent(ALL, CHAT, header, &small).await;
    assert_eq!(got, small);
    assert!(head.contains("content-encoding: gzip"), "{head}");
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_sent_as_it_came_and_counted() {
    let script = Script::always(ok_json("{}")).await;
    let proxy = Proxy::start(&[script.url()], ALL);
    let mut client = proxy.client().await;
    client.post_with(CHAT, "Content-Encoding: br\r\n", b"\x0b\x02\x80").await;
    assert_eq!(client.reply().await.status, 200);
    let (_, metrics) = proxy.admin("/metrics").await;
    assert!(metrics.contains("shearwater_bodies_opaque_total 1"), "{metrics}");
}

const TOKEN: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}],\"usage\":null}";
const USAGE: &str = "data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":40,\"completion_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":32}}}";

/// An engine that streams three tokens and, if asked, its usage; cut as a number in the prompt says: all apart, the end
/// in one piece, or in the middle of events.
async fn engine() -> Script {
    Script::start(|mut conn| async move {
        while let Some(request) = conn.request().await {
            let body = body_of(&request);
            conn.stream_head().await;
            let mut end: Vec<&str> = vec!["data: [DONE]"];
            if body.contains("\"include_usage\":true") {
                end.insert(0, USAGE);
            }
            let chunk = |event: &&str| format!("{:x}\r\n{event}\n\n\r\n", event.len() + 2);
            let tail = end.iter().map(chunk).collect::<String>() + "0\r\n\r\n";
            if body.contains("apart") {
                for event in [TOKEN, TOKEN, TOKEN].iter().chain(&end) {
                    conn.event(event).await;
                    tokio::task::yield_now().await;
                }
                conn.end().await;
            } else if body.contains("together") {
                let all = [TOKEN, TOKEN, TOKEN].iter().map(chunk).collect::<String>() + &tail;
                conn.send(all.as_bytes()).await;
            } else {
                conn.event(TOKEN).await;
                let rest = [TOKEN, TOKEN].iter().map(chunk).collect::<String>() + &tail;
                for piece in rest.as_bytes().chunks(37) {
                    conn.send(piece).await;
                    tokio::task::yield_now().await;
                }
            }
        }
    })
    .await
}

#[tokio::test]
async fn usage_nobody_asked_for_is_learned_and_not_shown() {
    let script = engine().await;
    let proxy = Proxy::start(&[script.url()], "[repair]\ninclude_usage = true\n");
    let shown = format!("{TOKEN}\n\n{TOKEN}\n\n{TOKEN}\n\ndata: [DONE]\n\n");
    let mut client = proxy.client().await;
    for how in ["apart", "together", "in pieces"] {
        let mut body = chat(how);
        body["stream"] = true.into();
        let reply = client.ask(CHAT, &body).await;
        assert!(reply.complete, "{how}");
        assert_eq!(reply.text(), shown, "{how}");
    }
    settled("all three are learned", async || {
        let (_, metrics) = proxy.admin("/metrics").await;
        let tokens =
            metrics.lines().find(|line| line.starts_with("shearwater_prompt_tokens_total"));
        tokens.filter(|line| line.ends_with(" 120")).map(drop)
    })
    .await;
}

#[tokio::test]
async fn usage_that_was_asked_for_is_shown() {
    let script = engine().await;
    let proxy = Proxy::start(&[script.url()], "[repair]\ninclude_usage = true\n");
    let mut client = proxy.client().await;
    let mut body = chat("apart");
    body["stream"] = true.into();
    body["stream_options"] = json!({ "include_usage": true });
    assert!(client.ask(CHAT, &body).await.text().contains(USAGE));
}

#[tokio::test]
async fn an_old_client_gets_the_stream_without_its_usage_too() {
    let script = engine().await;
    let proxy = Proxy::start(&[script.url()], "[repair]\ninclude_usage = true\n");
    let mut body = chat("together");
    body["stream"] = true.into();
    let body = body.to_string();
    let mut client = proxy.client().await;
    let head = format!("POST {CHAT} HTTP/1.0\r\nContent-Length: {}\r\n\r\n", body.len());
    client.send(&[head.as_bytes(), body.as_bytes()].concat()).await;
    let text = client.until_closed().await;
    let (_, got) = text.split_once("\r\n\r\n").expect("a head");
    assert_eq!(got, format!("{TOKEN}\n\n{TOKEN}\n\n{TOKEN}\n\ndata: [DONE]\n\n"));
}

#[tokio::test]
async fn a_stream_that_breaks_before_its_usage_ends_with_an_error_object() {
    let script = Script::start(|mut conn| async move {
        conn.request().await;
        conn.stream_head().await;
        conn.event(TOKEN).await;
        conn.send(b"40\r\ndata: {\"choices\":[").await;
    })
    .await;
    let proxy = Proxy::start(&[script.url()], "[repair]\ninclude_usage = true\n");
    let mut client = proxy.client().await;
    let mut body = chat("x");
    body["stream"] = true.into();
    let reply = client.ask(CHAT, &body).await;
    assert!(reply.complete, "the framing stays honest");
    let text = reply.text();
    assert!(text.contains("upstream_error") && !text.contains("[DONE]"), "{text}");
}
