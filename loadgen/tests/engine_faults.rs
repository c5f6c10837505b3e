//! Faults on demand, seen by a raw client.

mod engine_support;

use std::io::ErrorKind::ConnectionRefused;
use std::time::Duration;

use engine_support::{
    Broken, Client, call, chat, chat_stream, eventually, get, options, post, start,
};
use loadgen::engine::{Cut, CutHow, Faults, Persona, RateLimit, SimEngine};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

const CHAT: &str = "/v1/chat/completions";

fn with(persona: Persona, faults: Faults) -> SimEngine {
    let mut options = options(persona);
    options.faults = faults;
    start(options)
}

fn cut(after_events: u32, how: CutHow, times: Option<u32>) -> Faults {
    Faults { cut: Some(Cut { after_events, how, times }), ..Faults::default() }
}

/// Sends a stream request and reads whole chunks until it breaks.
async fn broken_stream(engine: &SimEngine) -> (usize, Broken) {
    let mut client = Client::connect(engine.addr()).await;
    client.send("POST", CHAT, &chat_stream("hi")).await;
    if let Err(broken) = client.head().await {
        return (0, broken);
    }
    let mut chunks = 0;
    loop {
        match client.chunk().await {
            Ok(Some(_)) => chunks += 1,
            Ok(None) => panic!("the stream ended as it should, after {chunks} chunks"),
            Err(broken) => return (chunks, broken),
        }
    }
}

#[tokio::test]
async fn a_stream_is_closed_after_so_many_events_without_its_last_chunk() {
    for persona in [Persona::LlamaCpp, Persona::Vllm, Persona::Sglang, Persona::OpenAi] {
        let engine = with(persona, cut(3, CutHow::Close, None));
        let (chunks, broken) = broken_stream(&engine).await;
        assert_eq!((chunks, broken), (3, Broken::Closed(Vec::new())), "{persona}");
        eventually(&engine, "the request gone", |state| state.running == 0).await;
    }
}

#[tokio::test]
async fn a_stream_is_reset_after_so_many_events() {
    let engine = with(Persona::Vllm, cut(3, CutHow::Reset, None));
    let (chunks, broken) = broken_stream(&engine).await;
    // A reset may overtake what was written just before it.
    assert!(chunks <= 3, "{chunks}");
    assert_eq!(broken, Broken::Reset);
}

#[tokio::test]
async fn a_stream_is_cut_in_the_middle_of_an_event() {
    let engine = with(Persona::Vllm, cut(2, CutHow::InsideEvent, None));
    let (chunks, broken) = broken_stream(&engine).await;
    let Broken::Closed(rest) = broken else { panic!("{broken:?}") };
    let rest = String::from_utf8(rest).unwrap();
    assert_eq!(chunks, 2);
    assert!(rest.contains("data: {\"id\":\"chatcmpl-") && !rest.ends_with('\n'), "{rest:?}");
}

#[tokio::test]
async fn a_stream_cut_after_no_event_still_has_its_head() {
    let engine = with(Persona::Sglang, cut(0, CutHow::Close, None));
    assert_eq!(broken_stream(&engine).await, (0, Broken::Closed(Vec::new())));
}

#[tokio::test]
async fn a_cut_for_one_stream_spares_the_next() {
    let engine = with(Persona::Vllm, cut(1, CutHow::Close, Some(1)));
    assert_eq!(broken_stream(&engine).await.0, 1);
    let reply = post(&engine, CHAT, &chat_stream("hi")).await;
    assert_eq!(reply.events().last().unwrap().data, "[DONE]");
    assert_eq!(engine.faults().cut, None);
}

#[tokio::test]
async fn a_cut_request_is_taken_out_of_the_model() {
    let engine = with(Persona::Vllm, cut(2, CutHow::Close, None));
    engine.set_faults(Faults { slow_factor: 50.0, ..cut(2, CutHow::Close, None) });
    broken_stream(&engine).await;
    let state = eventually(&engine, "the end", |state| state.running == 0).await;
    assert_eq!((state.aborted, state.finished), (1, 0));
}

#[tokio::test]
async fn a_stalled_stream_stays_open_and_silent_until_its_client_leaves() {
    let engine = with(Persona::Vllm, Faults { stall_after_events: Some(2), ..Faults::default() });
    let mut client = Client::connect(engine.addr()).await;
    client.send("POST", CHAT, &chat_stream("hi")).await;
    client.head().await.unwrap();
    client.chunk().await.unwrap();
    client.chunk().await.unwrap();
    let more = timeout(Duration::from_millis(300), client.chunk()).await;
    assert!(more.is_err(), "{more:?}");
    drop(client);
    eventually(&engine, "no connection", |state| state.connections_open == 0).await;
}

#[tokio::test]
async fn refused_connections_come_back_on_the_same_port() {
    let engine = with(Persona::Vllm, Faults::default());
    let mut open = Client::connect(engine.addr()).await;
    open.call("GET", "/version", &Value::Null).await;
    engine.patch_faults(&json!({"refuse": true})).unwrap();
    let deadline = Instant::now() + engine_support::PATIENCE;
    // Until then the kernel still takes connections, or resets them with the closing listener.
    while !matches!(TcpStream::connect(engine.addr()).await, Err(error) if error.kind() == ConnectionRefused)
    {
        assert!(Instant::now() < deadline);
    }
    assert_eq!(open.call("GET", "/version", &Value::Null).await.status(), 200, "open ones live on");
    let lifted = open.call("POST", "/sim/faults", &json!({"refuse": false})).await;
    assert_eq!(lifted.status(), 200);
    while TcpStream::connect(engine.addr()).await.is_err() {
        assert!(Instant::now() < deadline);
    }
    assert_eq!(get(&engine, "/version").await.status(), 200);
}

#[tokio::test]
async fn a_slow_head_holds_back_wholes_and_streams() {
    let engine = with(Persona::Vllm, Faults { slow_head_ms: 400, ..Faults::default() });
    for body in [chat("hi"), chat_stream("hi")] {
        let mut client = Client::connect(engine.addr()).await;
        let asked = Instant::now();
        client.send("POST", CHAT, &body).await;
        client.head().await.unwrap();
        assert!(asked.elapsed() >= Duration::from_millis(400));
    }
    let asked = Instant::now();
    get(&engine, "/sim/state").await;
    assert!(asked.elapsed() < Duration::from_millis(400));
}

#[tokio::test]
async fn an_idle_connection_is_closed_sooner_on_demand() {
    let engine = with(Persona::LlamaCpp, Faults { idle_close_ms: Some(50), ..Faults::default() });
    let mut client = Client::connect(engine.addr()).await;
    client.call("GET", "/health", &Value::Null).await;
    let idle = Instant::now();
    assert_eq!(client.end().await, Broken::Closed(Vec::new()));
    assert!(idle.elapsed() < Duration::from_secs(4));
}

#[tokio::test]
async fn the_nth_request_is_reset_before_any_reply() {
    let engine = with(Persona::Vllm, Faults { reset_on: Some(2), ..Faults::default() });
    let mut client = Client::connect(engine.addr()).await;
    assert_eq!(client.call("POST", CHAT, &chat("one")).await.status(), 200);
    client.send("POST", CHAT, &chat("two")).await;
    assert_eq!(client.head().await, Err(Broken::Reset));
    assert_eq!(post(&engine, CHAT, &chat("three")).await.status(), 200);
    assert_eq!(engine.state().requests, 2, "the second never started work");
}

#[tokio::test]
async fn every_nth_request_loses_its_connection() {
    let engine = with(Persona::Vllm, Faults { drop_every: Some(3), ..Faults::default() });
    let mut fates = Vec::new();
    for number in 0..6 {
        let mut client = Client::connect(engine.addr()).await;
        client.send("POST", CHAT, &chat(&number.to_string())).await;
        fates.push(client.reply().await.is_ok());
    }
    assert_eq!(fates, [true, true, false, true, true, false]);
}

#[tokio::test]
async fn slowness_stretches_a_reply_and_can_be_lifted_in_the_middle() {
    let mut slow = options(Persona::Vllm);
    slow.params.decode_tps = 100.0;
    slow.faults.slow_factor = 1_000.0;
    let engine = start(slow);
    let mut client = Client::connect(engine.addr()).await;
    client.send("POST", CHAT, &chat("hi")).await;
    eventually(&engine, "a running request", |state| state.running == 1).await;
    assert!(timeout(Duration::from_millis(200), client.head()).await.is_err(), "80 s at this pace");
    call(&engine, "POST", "/sim/faults", &json!({"slow_factor": 1.0})).await;
    assert_eq!(client.reply().await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_full_engine_refuses_or_defers_as_it_would_in_earnest() {
    for (persona, status) in [(Persona::Vllm, 503), (Persona::Sglang, 503), (Persona::OpenAi, 503)]
    {
        let engine = with(persona, Faults { full: true, ..Faults::default() });
        assert_eq!(post(&engine, CHAT, &chat("hi")).await.status(), status, "{persona}");
        assert_eq!(engine.state().requests, 0);
        engine.patch_faults(&json!({"full": false})).unwrap();
        assert_eq!(post(&engine, CHAT, &chat("hi")).await.status(), 200, "{persona}");
    }
    let engine = with(Persona::LlamaCpp, Faults { full: true, ..Faults::default() });
    let mut client = Client::connect(engine.addr()).await;
    client.send("POST", CHAT, &chat("hi")).await;
    eventually(&engine, "a deferred request", |state| state.waiting == 1).await;
    engine.patch_faults(&json!({"full": false})).unwrap();
    assert_eq!(client.reply().await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_wedged_engine_accepts_and_never_emits() {
    let engine = with(Persona::Vllm, Faults { wedge: true, ..Faults::default() });
    let mut client = Client::connect(engine.addr()).await;
    client.send("POST", CHAT, &chat_stream("hi")).await;
    client.head().await.unwrap();
    assert!(timeout(Duration::from_millis(200), client.chunk()).await.is_err());
    assert_eq!(get(&engine, "/health").await.status(), 200, "its health says nothing of it");
    engine.patch_faults(&json!({"wedge": null})).unwrap();
    while client.chunk().await.unwrap().is_some() {}
}

#[tokio::test]
async fn a_restart_drops_the_cache_the_counters_the_connections_and_the_identity() {
    for by_http in [false, true] {
        let engine = with(Persona::LlamaCpp, Faults::default());
        post(&engine, CHAT, &chat(&"shearwater ".repeat(40))).await;
        let before = engine.state();
        assert!(before.kv_blocks_cached > 0);
        let mut idle = Client::connect(engine.addr()).await;
        idle.call("GET", "/health", &Value::Null).await;
        if by_http {
            assert_eq!(post(&engine, "/sim/restart", &Value::Null).await.status(), 200);
        } else {
            engine.restart();
        }
        assert_eq!(idle.end().await, Broken::Reset);
        let after =
            eventually(&engine, "a new identity", |state| state.identity != before.identity).await;
        assert_eq!((after.requests, after.prompt_tokens, after.kv_blocks_cached), (0, 0, 0));
        assert!(after.started_ms >= before.started_ms);
        let reply = post(&engine, CHAT, &chat(&"shearwater ".repeat(40))).await.json();
        assert_eq!(reply["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    }
}

#[tokio::test]
async fn a_restart_resets_the_streams_that_run() {
    let engine = with(Persona::Vllm, Faults { wedge: true, ..Faults::default() });
    let mut client = Client::connect(engine.addr()).await;
    client.send("POST", CHAT, &chat_stream("hi")).await;
    client.head().await.unwrap();
    engine.restart();
    assert_eq!(client.end().await, Broken::Reset);
    assert_eq!(engine.state().running, 0);
}

#[tokio::test]
async fn a_flushed_cache_is_cold_without_any_sign_of_a_restart() {
    let engine = with(Persona::Vllm, Faults::default());
    let body = chat(&"shearwater ".repeat(40));
    post(&engine, CHAT, &body).await;
    let before = engine.state();
    assert_eq!(post(&engine, "/sim/flush", &Value::Null).await.status(), 200);
    let reply = post(&engine, CHAT, &body).await.json();
    assert_eq!(reply["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    assert_eq!(engine.state().identity, before.identity);
}

#[tokio::test]
async fn an_unhealthy_engine_still_serves() {
    for (persona, path) in [
        (Persona::LlamaCpp, "/health"),
        (Persona::Vllm, "/health"),
        (Persona::Sglang, "/ready"),
        (Persona::Sglang, "/health"),
    ] {
        let engine = with(persona, Faults { unhealthy: true, ..Faults::default() });
        assert_eq!(get(&engine, path).await.status(), 503, "{persona} {path}");
        assert_eq!(post(&engine, CHAT, &chat("hi")).await.status(), 200, "{persona}");
    }
}

#[tokio::test]
async fn a_broken_engine_answers_500() {
    for persona in [Persona::LlamaCpp, Persona::Vllm, Persona::Sglang] {
        let engine = with(persona, Faults { internal_error: true, ..Faults::default() });
        assert_eq!(post(&engine, CHAT, &chat_stream("hi")).await.status(), 500, "{persona}");
    }
}

#[tokio::test]
async fn a_reply_in_one_piece_is_cut_short_of_its_length_and_streams_are_not() {
    let engine = with(Persona::Vllm, Faults { cut_whole: true, ..Faults::default() });
    let mut client = Client::connect(engine.addr()).await;
    client.send("POST", CHAT, &chat("hi")).await;
    let length: usize =
        client.head().await.unwrap().get("content-length").unwrap().parse().unwrap();
    let Broken::Closed(body) = client.end().await else { panic!("it is closed in good order") };
    assert_eq!(body.len(), length / 2);
    let reply = post(&engine, CHAT, &chat_stream("hi")).await;
    assert_eq!(reply.events().last().unwrap().data, "[DONE]");
}

#[tokio::test]
async fn a_rate_limit_says_when_to_come_again_if_it_is_told_to() {
    for (persona, wait_s) in [(Persona::LlamaCpp, Some(7)), (Persona::Vllm, None)] {
        let rate_limited = Some(RateLimit { retry_after_s: wait_s });
        let engine = with(persona, Faults { rate_limited, ..Faults::default() });
        let reply = post(&engine, CHAT, &chat_stream("hi")).await;
        let told = reply.head.get("retry-after").map(|seconds| seconds.parse().unwrap());
        assert_eq!((reply.status(), told), (429, wait_s), "{persona}");
        assert_eq!(reply.json()["error"]["code"], "rate_limit_exceeded");
        let reply = post(&engine, "/v1/messages", &chat("hi")).await;
        assert_eq!(reply.json()["error"]["type"], "rate_limit_error");
        assert_eq!(get(&engine, "/health").await.status(), 200, "{persona}");
    }
}

#[tokio::test]
async fn a_refused_key_is_told_in_each_engines_words() {
    for (persona, error) in [
        (Persona::Vllm, json!("Unauthorized")),
        (Persona::Sglang, json!("Unauthorized")),
        (
            Persona::LlamaCpp,
            json!({"code": 401, "message": "Invalid API Key", "type": "authentication_error"}),
        ),
    ] {
        let engine = with(persona, Faults { key_refused: true, ..Faults::default() });
        let reply = post(&engine, CHAT, &chat("hi")).await;
        assert_eq!((reply.status(), &reply.json()["error"]), (401, &error), "{persona}");
        assert_eq!(engine.state().requests, 0);
    }
}

#[tokio::test]
async fn connections_are_reset_as_soon_as_they_are_accepted_and_open_ones_live_on() {
    let engine = with(Persona::Vllm, Faults::default());
    let mut open = Client::connect(engine.addr()).await;
    open.call("GET", "/version", &Value::Null).await;
    engine.patch_faults(&json!({"reset_on_accept": true})).unwrap();
    assert_eq!(Client::connect(engine.addr()).await.end().await, Broken::Reset);
    assert_eq!(open.call("POST", CHAT, &chat("hi")).await.status(), 200);
    engine.patch_faults(&json!({"reset_on_accept": null})).unwrap();
    assert_eq!(post(&engine, CHAT, &chat("hi")).await.status(), 200);
}

#[tokio::test]
async fn a_patch_changes_only_what_it_names_and_nonsense_changes_nothing() {
    let engine = with(Persona::Vllm, Faults { slow_head_ms: 1, ..Faults::default() });
    let patch = json!({"cut": {"after_events": 7, "how": "inside_event"}, "full": true});
    let told = post(&engine, "/sim/faults", &patch).await.json();
    assert_eq!(told["cut"], json!({"after_events": 7, "how": "inside_event", "times": null}));
    assert_eq!((&told["full"], &told["slow_head_ms"]), (&json!(true), &json!(1)));
    for nonsense in [
        json!({"ful": true}),
        json!({"slow_factor": 0}),
        json!({"slow_factor": "fast"}),
        json!({"cut": {"how": "gently", "after_events": 1}}),
        json!([1]),
    ] {
        let reply = post(&engine, "/sim/faults", &nonsense).await;
        assert_eq!(reply.status(), 400, "{nonsense}");
        assert!(reply.json()["error"].is_string());
    }
    assert_eq!(get(&engine, "/sim/faults").await.json(), told);
    let cleared = post(&engine, "/sim/faults", &json!({"cut": null, "full": null})).await.json();
    assert_eq!((&cleared["cut"], &cleared["full"]), (&Value::Null, &json!(false)));
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_of_its_body_does_no_harm() {
    let engine = with(Persona::Vllm, Faults::default());
    let mut client = Client::connect(engine.addr()).await;
    client
        .raw(format!("POST {CHAT} HTTP/1.1\r\nContent-Length: 500\r\n\r\n{{").as_bytes())
        .await
        .unwrap();
    client.stream.shutdown().await.unwrap();
    assert_eq!(client.end().await, Broken::Closed(Vec::new()));
    assert_eq!(post(&engine, CHAT, &chat("hi")).await.status(), 200);
}

#[tokio::test]
async fn a_prompt_that_was_taken_twice_stands_twice_in_the_ledger_and_a_refused_one_does_not() {
    let file = std::env::temp_dir().join(format!("ledger-{}", fastrand::u64(..)));
    let mut options = options(Persona::Vllm);
    options.ledger = Some(file.clone());
    let (first, second) = (start(options.clone()), start(options));
    for engine in [&first, &second, &second] {
        post(engine, CHAT, &chat("twice")).await;
        second.set_faults(Faults { full: engine.addr() == second.addr(), ..Faults::default() });
    }
    let ledger = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let lines: Vec<&str> = ledger.lines().collect();
    assert!(lines.len() == 2 && lines[0] == lines[1] && lines[0].len() == 16, "{ledger}");
}
