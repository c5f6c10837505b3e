//! Requests that get no proper reply: malformed, too long, unknown model, no room, pool exhausted. Each engine's words.

mod engine_support;

use engine_support::{
    Client, chat, chat_stream, eventually, expected, options, post, shape, start,
};
use loadgen::engine::{EngineOptions, Persona, ReplyLength, SimEngine};
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
const VLLM_BUSY: &str = r#"{"error":{"message":"The engine is currently busy and cannot accept new requests. Please try again later or on a different instance.","type":"Service Unavailable","param":null,"code":503}}"#;

/// An engine with one slot, taken, and this many places in the queue.
async fn crowded(mut options: EngineOptions, queue: usize) -> (SimEngine, Vec<Client>) {
    options.params.slots = 1;
    options.params.queue_max = Some(queue);
    options.params.decode_tps = 1.0;
    options.reply = ReplyLength::fixed(100_000);
    let engine = start(options);
    let mut clients = Vec::new();
    for number in 0..=queue {
        let mut client = Client::connect(engine.addr()).await;
        client.send("POST", CHAT, &chat_stream(&format!("{number}"))).await;
        clients.push(client);
        eventually(&engine, "the request", |state| state.requests > number as u64).await;
    }
    (engine, clients)
}

#[tokio::test]
async fn a_body_that_is_no_json_is_answered_400() {
    let wanted = [
        (Persona::LlamaCpp, r#"{"error":{"code":"int","message":"text","type":"text"}}"#),
        (
            Persona::Vllm,
            r#"{"error":{"message":"text","type":"text","param":"text","code":"int"}}"#,
        ),
        (
            Persona::Sglang,
            r#"{"object":"text","message":"text","type":"text","param":"null","code":"int"}"#,
        ),
        (
            Persona::OpenAi,
            r#"{"error":{"message":"text","type":"text","param":"null","code":"null"}}"#,
        ),
    ];
    for (persona, shape_wanted) in wanted {
        let engine = start(options(persona));
        let mut client = Client::connect(engine.addr()).await;
        let body = r#"{"model":"sim","messages":["#;
        let head = format!("POST {CHAT} HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        client.raw(head.as_bytes()).await.unwrap();
        let reply = client.reply().await.unwrap();
        assert_eq!(reply.status(), 400, "{persona}");
        assert_eq!(shape(&reply.json()), expected(shape_wanted), "{persona}");
        // llama.cpp closes on every error status and says so; the others keep the connection.
        let closes = reply.head.get("connection") == Some("close");
        assert_eq!(closes, persona == Persona::LlamaCpp, "{persona}");
    }
}

#[tokio::test]
async fn a_missing_member_is_the_callers_fault_except_at_llamacpps_messages() {
    for persona in [Persona::LlamaCpp, Persona::Vllm, Persona::Sglang] {
        let engine = start(options(persona));
        assert_eq!(post(&engine, CHAT, &json!({"model": "sim"})).await.status(), 400, "{persona}");
        let status = post(&engine, "/v1/messages", &json!({"model": "sim"})).await.status();
        let wanted = if persona == Persona::LlamaCpp { 500 } else { 400 };
        assert_eq!(status, wanted, "{persona}");
    }
}

#[tokio::test]
async fn a_prompt_beyond_the_context_is_answered_400_also_for_streams() {
    let long = "x".repeat(4 * 3_000);
    for persona in [Persona::LlamaCpp, Persona::Vllm, Persona::Sglang] {
        let mut options = options(persona);
        options.params.context_tokens_max = 2_048;
        let engine = start(options);
        for body in [chat(&long), chat_stream(&long)] {
            let reply = post(&engine, CHAT, &body).await;
            assert_eq!(reply.status(), 400, "{persona}");
            let error = reply.json();
            match persona {
                Persona::LlamaCpp => {
                    assert_eq!(error["error"]["type"], "exceed_context_size_error");
                    assert_eq!(error["error"]["n_ctx"], 2_048);
                    assert!(error["error"]["n_prompt_tokens"].as_u64().unwrap() > 3_000);
                }
                Persona::Vllm => assert_eq!(error["error"]["param"], "input_tokens"),
                _ => assert!(error["message"].as_str().unwrap().contains("(2048 tokens)")),
            }
        }
        assert_eq!(engine.state().requests, 0, "{persona}");
    }
}

#[tokio::test]
async fn an_unknown_model_is_refused_by_vllm_echoed_by_sglang_and_ignored_by_llamacpp() {
    let mut body = chat("hi");
    body["model"] = json!("other");
    let vllm = post(&start(options(Persona::Vllm)), CHAT, &body).await;
    assert_eq!(vllm.status(), 404);
    assert_eq!(
        vllm.text(),
        r#"{"error":{"message":"The model `other` does not exist.","type":"NotFoundError","param":"model","code":404}}"#
    );
    let sglang = post(&start(options(Persona::Sglang)), CHAT, &body).await;
    assert_eq!(sglang.json()["model"], "other");
    let llama = post(&start(options(Persona::LlamaCpp)), CHAT, &body).await;
    assert_eq!(llama.json()["model"], "sim");
}

#[tokio::test]
async fn a_full_vllm_answers_503_to_streams_and_wholes_alike() {
    let (engine, _clients) = crowded(options(Persona::Vllm), 1).await;
    for body in [chat("x"), chat_stream("x")] {
        let reply = post(&engine, CHAT, &body).await;
        assert_eq!((reply.status(), reply.text().as_str()), (503, VLLM_BUSY));
        assert_eq!(reply.head.get("retry-after"), None, "no engine sends one");
    }
    let message =
        json!({"model": "sim", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]});
    let reply = post(&engine, "/v1/messages", &message).await.json();
    assert_eq!(
        (&reply["type"], &reply["error"]["type"]),
        (&json!("error"), &json!("Service Unavailable"))
    );
    assert_eq!(engine.state().refused, 3);
}

#[tokio::test]
async fn a_vllm_that_lost_the_race_refuses_in_the_stream() {
    let mut options = options(Persona::Vllm);
    options.late_refusal = true;
    let (engine, _clients) = crowded(options, 0).await;
    let reply = post(&engine, CHAT, &chat_stream("x")).await;
    assert_eq!(reply.status(), 200);
    assert_eq!(
        reply.text(),
        "data: {\"error\": {\"message\": \"The engine is currently busy and cannot accept new requests. Please try \
         again later or on a different instance.\", \"type\": \"Service Unavailable\", \"param\": null, \"code\": \
         503}}\n\ndata: [DONE]\n\n"
    );
    assert_eq!(post(&engine, CHAT, &chat("x")).await.status(), 503);
}

#[tokio::test]
async fn a_full_sglang_answers_503_to_wholes_and_an_event_to_streams() {
    let (engine, _clients) = crowded(options(Persona::Sglang), 1).await;
    let whole = post(&engine, CHAT, &chat("x")).await;
    assert_eq!(whole.status(), 503);
    assert_eq!(
        whole.text(),
        r#"{"object":"error","message":"The request queue is full.","type":"503","param":null,"code":503}"#
    );
    let stream = post(&engine, CHAT, &chat_stream("x")).await;
    assert_eq!(stream.status(), 200);
    assert_eq!(
        stream.text(),
        "data: {\"error\": {\"object\": \"error\", \"message\": \"The request queue is full.\", \"type\": \
         \"SERVICE_UNAVAILABLE\", \"param\": null, \"code\": 503}}\n\ndata: [DONE]\n\n"
    );
    let message = json!({"model": "sim", "max_tokens": 5, "stream": true,
        "messages": [{"role": "user", "content": "x"}]});
    let events = post(&engine, "/v1/messages", &message).await.events();
    let names: Vec<&str> = events.iter().map(|event| event.name.as_deref().unwrap()).collect();
    assert_eq!(names, ["message_start", "error", "message_stop"]);
    assert_eq!(events[1].json()["error"]["type"], "overloaded_error");
}

#[tokio::test]
async fn the_in_flight_limit_counts_running_and_waiting() {
    let mut options = options(Persona::Vllm);
    options.params.in_flight_max = Some(2);
    let (engine, _clients) = crowded(options, 1).await;
    assert_eq!(post(&engine, CHAT, &chat("x")).await.status(), 503);
}

#[tokio::test]
async fn a_full_llamacpp_defers_without_a_word_until_a_slot_is_free() {
    let mut options = options(Persona::LlamaCpp);
    options.params.slots = 1;
    options.reply = ReplyLength::fixed(100_000);
    let engine = start(options);
    let mut first = Client::connect(engine.addr()).await;
    first.send("POST", CHAT, &chat_stream("a")).await;
    first.head().await.unwrap();
    let mut second = Client::connect(engine.addr()).await;
    let short =
        json!({"messages": [{"role": "user", "content": "b"}], "stream": true, "max_tokens": 2});
    second.send("POST", CHAT, &short).await;
    eventually(&engine, "the deferred request", |state| state.waiting == 1).await;
    let mut nothing = [0; 1];
    let early = second.stream.try_read(&mut nothing);
    assert_eq!(early.unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "not even a head");
    drop(first);
    let reply = second.reply().await.unwrap();
    assert_eq!(reply.events().last().unwrap().data, "[DONE]");
}

#[tokio::test]
async fn an_exhausted_pool_fails_running_requests_before_and_after_their_first_byte() {
    let mut options = options(Persona::LlamaCpp);
    options.params = options.params.with_kv_tokens(400);
    options.reply = ReplyLength::fixed(300);
    let engine = start(options);
    let mut stream = Client::connect(engine.addr()).await;
    stream.send("POST", CHAT, &chat_stream("a")).await;
    let mut message = Client::connect(engine.addr()).await;
    let body =
        json!({"max_tokens": 300, "stream": true, "messages": [{"role": "user", "content": "b"}]});
    message.send("POST", "/v1/messages", &body).await;
    let whole = post(&engine, CHAT, &chat("c")).await;
    assert_eq!(whole.status(), 500);
    assert_eq!(
        whole.text(),
        r#"{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}"#
    );
    let last = |events: Vec<engine_support::Event>| events.last().cloned().unwrap();
    let streamed = last(stream.reply().await.unwrap().events());
    assert_eq!(streamed.json()["error"]["message"], "Context size has been exceeded.");
    assert_eq!(streamed.name, None);
    let told = last(message.reply().await.unwrap().events());
    assert_eq!(told.name.as_deref(), Some("error"));
    assert_eq!(told.json()["message"], "Context size has been exceeded.", "no envelope there");
    let state = engine.state();
    assert_eq!((state.overflowed, state.running, state.kv_blocks_in_use), (3, 0, 0));
}

#[tokio::test]
async fn reaching_the_context_while_generating_ends_with_length() {
    let mut options = options(Persona::LlamaCpp);
    options.params.context_tokens_max = 64;
    options.reply = ReplyLength::fixed(1_000);
    let reply = post(&start(options), CHAT, &chat("hi")).await.json();
    assert_eq!(reply["choices"][0]["finish_reason"], "length");
    assert_eq!(reply["usage"]["total_tokens"], 64);
}

#[tokio::test]
async fn a_body_larger_than_allowed_is_refused_before_it_is_read() {
    let mut options = options(Persona::Vllm);
    options.body_bytes_max = 1_000;
    let engine = start(options);
    let mut client = Client::connect(engine.addr()).await;
    client
        .raw(format!("POST {CHAT} HTTP/1.1\r\nContent-Length: 5000\r\n\r\n").as_bytes())
        .await
        .unwrap();
    assert_eq!(client.reply().await.unwrap().status(), 413);
}

#[tokio::test]
async fn refusals_and_failures_never_repeat_the_prompt() {
    let secret = "the-secret-of-the-prompt ".repeat(600);
    for persona in [Persona::LlamaCpp, Persona::Vllm, Persona::Sglang, Persona::OpenAi] {
        let mut options = options(persona);
        options.params.context_tokens_max = 2_048;
        let engine = start(options);
        let bodies: [Value; 2] = [chat(&secret), json!({"model": "sim", "messages": secret})];
        for body in bodies {
            let reply = post(&engine, CHAT, &body).await;
            assert!(reply.status() >= 400, "{persona}");
            assert!(!reply.text().contains("secret"), "{persona}");
        }
    }
}
