//! The proxy remembers where, not what: nothing a caller said, nothing an engine answered and no credential is found in
//! anything the proxy writes or tells, on any path through it.

use serde_json::{Value, json};
use tests::harness::{Process, Script, config_text};

/// A word that occurs nowhere else.
fn canary() -> String {
    format!("Canary{:016x}Bird", fastrand::u64(..))
}

/// An engine that answers everything with the canary in it, and one request in four with an error that repeats it.
async fn parrot(canary: &str) -> Script {
    let usage = "\"usage\":{\"prompt_tokens\":90,\"completion_tokens\":3,\"total_tokens\":93,\"prompt_tokens_details\":{\"cached_tokens\":64}}";
    let good = format!("{{\"choices\":[{{\"message\":{{\"content\":\"{canary}\"}}}}],{usage}}}");
    let bad = format!("{{\"error\":{{\"message\":\"cannot read {canary}\",\"code\":400}}}}");
    let cracked = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{canary}\"}}}}]}}\n\n");
    let count = std::sync::atomic::AtomicUsize::new(0);
    let replies = std::sync::Arc::new((good, bad, cracked, count));
    Script::start(move |mut conn| {
        let replies = std::sync::Arc::clone(&replies);
        async move {
            let (good, bad, cracked, count) = &*replies;
            while conn.request().await.is_some() {
                // Relaxed is enough for a count that only spreads the answers.
                match count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 4 {
                    1 => conn.send(whole("400 Bad Request", bad).as_bytes()).await,
                    2 => {
                        conn.send(whole("500 Internal Server Error", bad).as_bytes()).await;
                    }
                    3 => {
                        // A stream that breaks off.
                        conn.stream_head().await;
                        conn.event(cracked.trim_end()).await;
                        return conn.reset();
                    }
                    _ => conn.send(whole("200 OK", good).as_bytes()).await,
                }
            }
        }
    })
    .await
}

fn whole(status: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

/// Every way to say something, with the canary in it: path and body.
fn sayings(canary: &str) -> Vec<(String, Vec<u8>)> {
    let long = format!("{canary} {}", "word ".repeat(400));
    let messages = json!([{ "role": "system", "content": long },
        { "role": "user", "content": [{ "type": "text", "text": long }] },
        { "role": "assistant", "content": null, "tool_calls": [{ "id": canary, "type": "function",
            "function": { "name": canary, "arguments": format!("{{\"a\":\"{canary}\"}}") } }] },
        { "role": "tool", "tool_call_id": canary, "content": canary }]);
    let tools =
        json!([{ "type": "function", "function": { "name": canary, "description": canary } }]);
    let full = |extra: Value| {
        let mut body = json!({ "model": "sim", "messages": messages, "tools": tools, "user": canary,
            "metadata": { "user_id": canary }, "prompt_cache_key": canary });
        for (name, value) in extra.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        body.to_string().into_bytes()
    };
    let plain = |body: Value| body.to_string().into_bytes();
    let said = [
        ("/v1/chat/completions", full(json!({}))),
        ("/v1/chat/completions", full(json!({ "stream": true }))),
        ("/v1/messages?beta=true", full(json!({ "max_tokens": 9, "system": long }))),
        ("/v1/messages/count_tokens", full(json!({}))),
        (
            "/v1/responses",
            plain(json!({ "model": "sim", "input": long, "instructions": long, "stream": true })),
        ),
        ("/v1/completions", plain(json!({ "model": "sim", "prompt": [long, canary] }))),
        ("/v1/embeddings", plain(json!({ "model": "sim", "input": long }))),
        ("/generate", plain(json!({ "text": long, "lora_path": canary }))),
        ("/completion", plain(json!({ "prompt": long }))),
        ("/tokenize", plain(json!({ "model": "sim", "prompt": long }))),
        ("/v1/something/else", long.clone().into_bytes()),
        // Not JSON, or not for long.
        (
            "/v1/chat/completions",
            format!("{{\"model\": \"sim\", \"messages\": {long}").into_bytes(),
        ),
        ("/v1/messages", long.clone().into_bytes()),
        ("/v1/responses", format!("[\"{canary}\"]").into_bytes()),
        // More than is allowed.
        ("/v1/chat/completions", full(json!({ "x": long.repeat(60) }))),
    ];
    let query = format!("?secret={canary}");
    let with_query = |path: &str| {
        if path.contains('?') {
            format!("{path}&{}", &query[1..])
        } else {
            format!("{path}{query}")
        }
    };
    said.into_iter().map(|(path, body)| (with_query(path), body)).collect()
}

/// Every header that a caller may put a secret in.
fn headers(canary: &str) -> String {
    let names = [
        "Cookie",
        "X-Claude-Code-Session-Id",
        "X-Claude-Code-Agent-Id",
        "session-id",
        "x-session-id",
        "X-Custom",
        "User-Agent",
        "traceparent",
        "x-request-id",
        "anthropic-beta",
    ];
    let lines = names.map(|name| format!("{name}: {canary}\r\n"));
    format!("Authorization: Bearer {canary}\r\nx-api-key: {canary}\r\n{}", lines.concat())
}

async fn say_everything(process: &Process, canary: &str) -> usize {
    let mut count = 0;
    for (path, body) in sayings(canary) {
        // Each four times, so that each meets each of the engine's answers.
        for _ in 0..4 {
            let mut client = process.client().await;
            client.post_with(&path, &headers(canary), &body).await;
            client.reply().await;
            count += 1;
        }
    }
    // A head that is refused, and one that never ends.
    for head in [
        format!("POST /{canary} HTTP/9.9\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: t\r\nX {canary}: 1\r\n\r\n"),
    ] {
        let mut client = process.client().await;
        client.send(head.as_bytes()).await;
        client.until_closed().await;
    }
    let mut leaves = process.client().await;
    leaves.send(format!("POST /v1/chat/completions HTTP/1.1\r\nX: {canary}").as_bytes()).await;
    count
}

#[tokio::test]
async fn what_was_said_is_found_nowhere_but_at_the_engine() {
    let canary = canary();
    let engine = parrot(&canary).await;
    let settings = "[limits]\nbody_bytes_max = \"64KiB\"\n[timeouts]\ndrain_grace_ms = 0\n[log]\naccess = \"{folder}/access.log\"\nlevel = \"debug\"\n";
    let text = config_text(&[engine.url()], settings);
    let mut process = Process::start("the_proxy_as_a_process", &text).await;
    process.is_ready().await;
    let count = say_everything(&process, &canary).await;
    // It did arrive where it should.
    let arrived = engine.requests().iter().filter(|request| contains(request, &canary)).count();
    assert!(arrived > count / 2, "{arrived} of {count} arrived");
    // A dry run is told the prompt, and does not repeat it.
    let (_, dry) = (sayings(&canary)[0].clone(), dry_run(&process, &canary).await);
    assert!(dry.contains("\"decision\"") && !dry.contains(&canary), "{dry}");
    let told = [
        "/metrics",
        "/readyz",
        "/healthz",
        "/admin/backends",
        "/admin/decisions?n=1000",
        "/admin/journal?n=1000",
        "/admin/config",
    ];
    let mut seen = Vec::new();
    for path in told {
        seen.push((path, process.admin(path).await.1));
    }
    process.terminate();
    process.ended().await;
    for file in ["access.log", "stdout", "stderr"] {
        seen.push((file, process.wrote(file)));
    }
    for (place, text) in &seen {
        let at = text.find(&canary);
        assert!(at.is_none(), "{place} tells: {}", &text[at.unwrap_or(0).saturating_sub(300)..]);
    }
    let lines = |place: &str| {
        seen.iter().find(|(name, _)| *name == place).map_or(0, |(_, text)| text.lines().count())
    };
    assert!(lines("access.log") >= count, "{} lines for {count} requests", lines("access.log"));
    assert!(lines("/metrics") > 50 && lines("stderr") > 0);
}

async fn dry_run(process: &Process, canary: &str) -> String {
    let (_, body) = &sayings(canary)[0];
    let mut client = tests::harness::Client::connect(process.admin).await;
    client.post_with("/admin/explain?path=/v1/chat/completions", &headers(canary), body).await;
    client.reply().await.text()
}

fn contains(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|window| window == word.as_bytes())
}

#[tokio::test]
async fn the_fingerprint_key_is_never_told() {
    let engine = parrot("nothing").await;
    let settings = "[routing]\nfingerprint_key = \"0123456789abcdef\"\n[timeouts]\ndrain_grace_ms = 0\n[log]\naccess = \"stdout\"\nlevel = \"debug\"\n";
    let mut process =
        Process::start("the_proxy_as_a_process", &config_text(&[engine.url()], settings)).await;
    process.client().await.ask("/v1/chat/completions", &crate::said::chat("hello")).await;
    let config = process.admin("/admin/config").await.1;
    process.terminate();
    process.ended().await;
    for text in [config, process.wrote("stdout"), process.wrote("stderr")] {
        assert!(!text.contains("0123456789abcdef"), "{text}");
    }
}
