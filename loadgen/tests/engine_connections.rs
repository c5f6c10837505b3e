//! The manners of connections: heads and when they come, keep-alive, closing, and what a client that leaves stops.

mod engine_support;

use std::time::Duration;

use engine_support::{Broken, Client, chat, chat_stream, eventually, get, options, start};
use loadgen::engine::{EngineOptions, Persona, ReplyLength};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, timeout};

const CHAT: &str = "/v1/chat/completions";

/// An engine whose replies never end within a test.
fn endless(persona: Persona) -> EngineOptions {
    let mut options = EngineOptions::new(persona);
    options.params.decode_tps = 200.0;
    options.reply = ReplyLength::fixed(50_000);
    options.params.sequence_tokens_max = u32::MAX;
    options.params = options.params.with_kv_tokens(10_000_000);
    options
}

/// How long to wait for something that will come, or, if it will not, to be convinced of it.
fn patience(comes: bool) -> Duration {
    if comes { engine_support::PATIENCE } else { Duration::from_millis(200) }
}

#[tokio::test]
async fn heads_carry_each_engines_headers() {
    let engine = start(options(Persona::LlamaCpp));
    let mut client = Client::connect(engine.addr()).await;
    let whole = client.call("POST", CHAT, &chat("hi")).await.head;
    let llama =
        ["Server", "Access-Control-Allow-Origin", "Content-Type", "Content-Length", "Keep-Alive"];
    assert_eq!(whole.names(), llama);
    assert_eq!(whole.get("Content-Type"), Some("application/json; charset=utf-8"));
    assert_eq!(whole.get("Keep-Alive"), Some("timeout=5, max=100"));
    let stream = client.call("POST", CHAT, &chat_stream("hi")).await.head;
    let llama = [
        "Server",
        "Access-Control-Allow-Origin",
        "X-Accel-Buffering",
        "Content-Type",
        "Transfer-Encoding",
        "Keep-Alive",
    ];
    assert_eq!(stream.names(), llama);
    assert_eq!(stream.get("Content-Type"), Some("text/event-stream"));

    for persona in [Persona::Vllm, Persona::Sglang] {
        let engine = start(options(persona));
        let mut client = Client::connect(engine.addr()).await;
        let whole = client.call("POST", CHAT, &chat("hi")).await.head;
        assert_eq!(whole.names(), ["date", "server", "content-length", "content-type", "vary"]);
        assert_eq!(whole.get("server"), Some("uvicorn"));
        let stream = client.call("POST", CHAT, &chat_stream("hi")).await.head;
        assert_eq!(stream.names(), ["date", "server", "content-type", "vary", "transfer-encoding"]);
        assert_eq!(stream.get("content-type"), Some("text/event-stream; charset=utf-8"));
    }
}

#[tokio::test]
async fn a_queued_stream_has_its_head_at_once_only_at_vllm() {
    for persona in [Persona::Vllm, Persona::Sglang, Persona::LlamaCpp] {
        let mut options = endless(persona);
        options.params.slots = 1;
        let engine = start(options);
        let mut first = Client::connect(engine.addr()).await;
        first.send("POST", CHAT, &chat_stream("a")).await;
        eventually(&engine, "a running request", |state| state.generated_tokens > 0).await;
        let mut queued = Client::connect(engine.addr()).await;
        queued.send("POST", CHAT, &chat_stream("b")).await;
        eventually(&engine, "a waiting request", |state| state.waiting == 1).await;
        let at_once = persona == Persona::Vllm;
        let head = timeout(patience(at_once), queued.head()).await;
        assert_eq!(head.is_ok(), at_once, "{persona}");
    }
}

#[tokio::test]
async fn llamacpps_head_comes_with_the_slot_and_sglangs_with_the_first_event() {
    for (persona, with_slot) in [(Persona::LlamaCpp, true), (Persona::Sglang, false)] {
        let mut options = endless(persona);
        // A prompt that is never done.
        options.params.prefill_tps = 0.01;
        let engine = start(options);
        let mut client = Client::connect(engine.addr()).await;
        client.send("POST", CHAT, &chat_stream("a")).await;
        eventually(&engine, "a running request", |state| state.running == 1).await;
        let head = timeout(patience(with_slot), client.head()).await;
        assert_eq!(head.is_ok(), with_slot, "{persona}");
    }
}

#[tokio::test]
async fn llamacpp_closes_after_a_stream_although_it_promised_to_keep_alive() {
    let engine = start(options(Persona::LlamaCpp));
    let mut client = Client::connect(engine.addr()).await;
    let reply = client.call("POST", CHAT, &chat_stream("hi")).await;
    assert_eq!(reply.head.get("connection"), None);
    let done = Instant::now();
    assert_eq!(client.end().await, Broken::Closed(Vec::new()));
    assert!(done.elapsed() < Duration::from_secs(4), "before the idle timeout");
}

#[tokio::test]
async fn the_others_keep_the_connection_after_a_stream() {
    for persona in [Persona::Vllm, Persona::Sglang, Persona::OpenAi] {
        let engine = start(options(persona));
        let mut client = Client::connect(engine.addr()).await;
        for _ in 0..3 {
            let reply = client.call("POST", CHAT, &chat_stream("hi")).await;
            assert_eq!(reply.events().last().unwrap().data, "[DONE]", "{persona}");
        }
        assert_eq!(engine.state().connections, 1, "{persona}");
    }
}

#[tokio::test]
async fn llamacpps_hundredth_reply_on_a_connection_is_its_last() {
    let engine = start(options(Persona::LlamaCpp));
    let mut client = Client::connect(engine.addr()).await;
    for number in 1..=100 {
        let reply = client.call("GET", "/health", &Value::Null).await;
        let last = reply.head.get("connection") == Some("close");
        assert_eq!(last, number == 100, "reply {number}");
    }
    assert_eq!(client.end().await, Broken::Closed(Vec::new()));
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_the_time_set() {
    let mut options = options(Persona::Vllm);
    options.idle_close_ms = 150;
    let engine = start(options);
    let mut client = Client::connect(engine.addr()).await;
    client.call("GET", "/health", &Value::Null).await;
    let idle = Instant::now();
    assert_eq!(client.end().await, Broken::Closed(Vec::new()));
    assert!(idle.elapsed() >= Duration::from_millis(140), "{:?}", idle.elapsed());
    eventually(&engine, "no connection", |state| state.connections_open == 0).await;
}

#[tokio::test]
async fn a_connection_on_which_nothing_was_asked_is_timed_by_llama_cpp_alone() {
    let hasty = |persona| {
        let mut options = options(persona);
        options.idle_close_ms = 20;
        start(options)
    };
    let (python, llamacpp) = (hasty(Persona::Vllm), hasty(Persona::LlamaCpp));
    let mut patient = Client::connect(python.addr()).await;
    let mut hurried = Client::connect(llamacpp.addr()).await;
    assert_eq!(hurried.end().await, Broken::Closed(Vec::new()));
    assert_eq!(patient.call("GET", "/health", &Value::Null).await.status(), 200);
}

#[tokio::test]
async fn the_default_idle_timeout_is_the_engines_five_seconds() {
    for persona in [Persona::LlamaCpp, Persona::Vllm, Persona::Sglang] {
        assert_eq!(EngineOptions::new(persona).idle_close_ms, 5_000);
    }
}

#[tokio::test]
async fn a_client_that_asks_to_close_is_obeyed() {
    for persona in [Persona::LlamaCpp, Persona::Vllm] {
        let engine = start(options(persona));
        let mut client = Client::connect(engine.addr()).await;
        client.send_with("POST", CHAT, &[("Connection", "close")], &chat("hi")).await;
        let reply = client.reply().await.unwrap();
        assert_eq!(reply.head.get("connection"), Some("close"), "{persona}");
        assert_eq!(client.end().await, Broken::Closed(Vec::new()), "{persona}");
    }
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let engine = start(options(Persona::Vllm));
    let mut client = Client::connect(engine.addr()).await;
    client.send("POST", CHAT, &chat_stream("one")).await;
    client.send("GET", "/version", &Value::Null).await;
    assert_eq!(client.reply().await.unwrap().events().last().unwrap().data, "[DONE]");
    assert_eq!(client.reply().await.unwrap().json()["version"], "0.32.0");
}

#[tokio::test]
async fn chunked_bodies_and_expect_continue_work() {
    let engine = start(options(Persona::LlamaCpp));
    let body = chat("hi").to_string();
    let (a, b) = body.split_at(10);
    let mut client = Client::connect(engine.addr()).await;
    let head = format!("POST {CHAT} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
    let chunks =
        format!("{:x}\r\n{a}\r\n{:x};note=1\r\n{b}\r\n0\r\nTrailer: x\r\n\r\n", a.len(), b.len());
    client.raw(format!("{head}{chunks}").as_bytes()).await.unwrap();
    assert_eq!(client.reply().await.unwrap().status(), 200);

    let expect = format!(
        "POST {CHAT} HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    client.raw(expect.as_bytes()).await.unwrap();
    assert_eq!(client.head().await.unwrap().status, 100);
    client.raw(body.as_bytes()).await.unwrap();
    assert_eq!(client.reply().await.unwrap().status(), 200);
}

#[tokio::test]
async fn what_is_no_http_is_answered_400_and_closed() {
    for bytes in [
        "GET  /\r\n\r\n".to_owned(),
        format!("POST {CHAT} HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n"),
        format!("POST {CHAT} HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"),
        format!("POST {CHAT} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
    ] {
        let engine = start(options(Persona::Vllm));
        let mut client = Client::connect(engine.addr()).await;
        client.raw(bytes.as_bytes()).await.unwrap();
        assert_eq!(client.reply().await.unwrap().status(), 400, "{bytes:?}");
        assert_eq!(client.end().await, Broken::Closed(Vec::new()));
    }
}

#[tokio::test]
async fn llamacpp_answers_a_header_line_beyond_8192_bytes_with_a_bare_400() {
    let engine = start(options(Persona::LlamaCpp));
    let mut client = Client::connect(engine.addr()).await;
    client
        .raw(format!("GET /health HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(8_200)).as_bytes())
        .await
        .unwrap();
    let reply = client.reply().await.unwrap();
    assert_eq!(
        (reply.status(), reply.head.names()),
        (400, vec!["Server", "Connection", "Content-Length"])
    );
}

#[tokio::test]
async fn an_http_1_0_client_gets_a_stream_without_chunks() {
    let engine = start(options(Persona::Vllm));
    let mut client = Client::connect(engine.addr()).await;
    let body = chat_stream("hi").to_string();
    let head = format!("POST {CHAT} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    client.raw(head.as_bytes()).await.unwrap();
    assert_eq!(client.head().await.unwrap().get("transfer-encoding"), None);
    let Broken::Closed(body) = client.end().await else { panic!("not closed in good order") };
    assert!(String::from_utf8(body).unwrap().ends_with("data: [DONE]\n\n"));
}

#[tokio::test]
async fn generation_stops_when_the_client_of_a_stream_leaves() {
    for persona in [Persona::LlamaCpp, Persona::Vllm, Persona::Sglang] {
        let engine = start(endless(persona));
        let mut client = Client::connect(engine.addr()).await;
        client.send("POST", CHAT, &chat_stream("hi")).await;
        client.head().await.unwrap();
        client.chunk().await.unwrap();
        assert_eq!(engine.state().running, 1);
        let left = Instant::now();
        drop(client);
        let stopped = eventually(&engine, "the end", |state| state.running == 0).await;
        assert!(left.elapsed() < Duration::from_secs(10), "{persona}: {:?}", left.elapsed());
        assert_eq!(
            (stopped.aborted, stopped.finished, stopped.kv_blocks_in_use),
            (1, 0, 0),
            "{persona}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(engine.state().generated_tokens, stopped.generated_tokens, "{persona}");
    }
}

#[tokio::test]
async fn generation_stops_when_the_client_of_a_whole_reply_leaves() {
    for persona in [Persona::LlamaCpp, Persona::Vllm] {
        let engine = start(endless(persona));
        let mut client = Client::connect(engine.addr()).await;
        client.send("POST", CHAT, &chat("hi")).await;
        eventually(&engine, "a running request", |state| state.running == 1).await;
        drop(client);
        let stopped = eventually(&engine, "the end", |state| state.running == 0).await;
        assert_eq!(stopped.aborted, 1, "{persona}");
    }
}

#[tokio::test]
async fn a_waiting_request_leaves_the_queue_with_its_client() {
    let mut options = endless(Persona::LlamaCpp);
    options.params.slots = 1;
    let engine = start(options);
    let mut running = Client::connect(engine.addr()).await;
    running.send("POST", CHAT, &chat_stream("a")).await;
    running.head().await.unwrap();
    let mut waiting = Client::connect(engine.addr()).await;
    waiting.send("POST", CHAT, &chat_stream("b")).await;
    eventually(&engine, "a waiting request", |state| state.waiting == 1).await;
    drop(waiting);
    eventually(&engine, "an empty queue", |state| state.waiting == 0 && state.running == 1).await;
}

#[tokio::test]
async fn a_half_closed_client_gets_a_short_whole_reply_from_llamacpp_only() {
    for (persona, answered) in [(Persona::LlamaCpp, true), (Persona::Vllm, false)] {
        let mut options = options(persona);
        options.params.decode_tps = 100.0;
        let engine = start(options);
        let mut client = Client::connect(engine.addr()).await;
        client.send("POST", CHAT, &chat("hi")).await;
        client.stream.shutdown().await.unwrap();
        let reply = client.reply().await;
        assert_eq!(reply.is_ok_and(|reply| reply.status() == 200), answered, "{persona}");
    }
}

#[tokio::test]
async fn a_head_request_gets_no_body() {
    let engine = start(options(Persona::Vllm));
    let mut client = Client::connect(engine.addr()).await;
    client.send("HEAD", "/v1/models", &Value::Null).await;
    let head = client.head().await.unwrap();
    assert!(head.get("content-length").unwrap().parse::<usize>().unwrap() > 100);
    assert_eq!(client.call("GET", "/version", &Value::Null).await.json()["version"], "0.32.0");
}

#[tokio::test]
async fn a_stopped_engine_answers_what_it_has_and_frees_its_port() {
    let engine = start(options(Persona::Vllm));
    let addr = engine.addr();
    let mut client = Client::connect(addr).await;
    let mut idle = Client::connect(addr).await;
    idle.call("GET", "/health", &Value::Null).await;
    let mut body = chat_stream("hi");
    body["max_tokens"] = json!(400);
    body["ignore_eos"] = json!(true);
    client.send("POST", CHAT, &body).await;
    client.head().await.unwrap();
    let stopping = tokio::spawn(engine.stop());
    let mut events = 0;
    while client.chunk().await.unwrap().is_some() {
        events += 1;
    }
    assert_eq!(events, 402, "role, tokens, done");
    timeout(engine_support::PATIENCE, stopping).await.unwrap().unwrap();
    assert_eq!(idle.end().await, Broken::Closed(Vec::new()));
    std::net::TcpListener::bind(addr).expect("the port is free");
}

#[tokio::test]
async fn a_killed_engine_resets_everything_and_frees_its_port_at_once() {
    let engine = start(endless(Persona::Vllm));
    let addr = engine.addr();
    let mut client = Client::connect(addr).await;
    client.send("POST", CHAT, &chat_stream("hi")).await;
    client.head().await.unwrap();
    let mut idle = Client::connect(addr).await;
    idle.call("GET", "/health", &Value::Null).await;
    timeout(engine_support::PATIENCE, engine.kill()).await.unwrap();
    assert_eq!(client.end().await, Broken::Reset);
    assert_eq!(idle.end().await, Broken::Reset);
    std::net::TcpListener::bind(addr).expect("the port is free");
}

#[tokio::test]
async fn counters_tell_requests_and_connections() {
    let engine = start(options(Persona::Vllm));
    let mut client = Client::connect(engine.addr()).await;
    client.call("POST", CHAT, &chat("hi")).await;
    client.call("POST", CHAT, &chat("hi")).await;
    let told = get(&engine, "/sim/state").await.json();
    assert_eq!((&told["requests"], &told["finished"]), (&json!(2), &json!(2)));
    assert_eq!((&told["connections"], &told["http_requests"]), (&json!(2), &json!(3)));
    assert_eq!(told["generated_tokens"], 16);
    let state = engine.state();
    assert_eq!(told["identity"], state.identity);
    assert_eq!(told["started_ms"], state.started_ms);
}
