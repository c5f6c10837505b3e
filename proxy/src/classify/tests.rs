//! Every answer that engines were seen to give, by engine and dialect, with its class; and every way to get none.

use super::*;
use crate::api::Dialect;
use crate::published::EngineKind::{Llamacpp, Openai, Sglang, Unknown, Vllm};
use crate::reply::Reply;
use ReplyClass::{Broken, Busy, CallersFault, KeyRefused, RateLimited, Served, UnknownOutcome};

const VLLM_BUSY: &str = r#"{"error":{"message":"The engine is currently busy and cannot accept new requests. Please try again later or on a different instance.","type":"Service Unavailable","param":null,"code":503}}"#;
const SGLANG_FULL: &str = r#"{"object":"error","message":"The request queue is full.","type":"503","param":null,"code":503}"#;
const LLAMA_POOL: &str =
    r#"{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}"#;
const LLAMA_TOO_LONG: &str = r#"{"error":{"code":400,"message":"request (2511 tokens) exceeds the available context size (2048 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":2511,"n_ctx":2048}}"#;
const LLAMA_LOADING: &str =
    r#"{"error":{"message":"Loading model","type":"unavailable_error","code":503}}"#;
const ANTHROPIC_BUSY: &str =
    r#"{"type":"error","error":{"type":"overloaded_error","message":"Internal server error"}}"#;

/// Engine, dialect, status, body, class.
const REPLIES: [(EngineKind, Dialect, u16, &str, ReplyClass); 33] = [
    (Vllm, Dialect::Chat, 200, "{}", Served),
    (Openai, Dialect::Plain, 304, "", Served),
    // Full.
    (Vllm, Dialect::Chat, 503, VLLM_BUSY, Busy),
    (Vllm, Dialect::Responses, 503, VLLM_BUSY, Busy),
    (
        Vllm,
        Dialect::Messages,
        503,
        r#"{"type":"error","error":{"type":"Service Unavailable","message":"The engine is currently busy"}}"#,
        Busy,
    ),
    (Sglang, Dialect::Chat, 503, SGLANG_FULL, Busy),
    (Sglang, Dialect::Messages, 503, ANTHROPIC_BUSY, Busy),
    (Llamacpp, Dialect::Chat, 500, LLAMA_POOL, Busy),
    (Llamacpp, Dialect::Messages, 500, LLAMA_POOL, Busy),
    (Llamacpp, Dialect::Responses, 500, LLAMA_POOL, Busy),
    (Unknown, Dialect::Chat, 500, LLAMA_POOL, Busy),
    (Llamacpp, Dialect::Chat, 503, LLAMA_LOADING, Busy),
    (Openai, Dialect::Messages, 529, ANTHROPIC_BUSY, Busy),
    (Openai, Dialect::Chat, 503, "no healthy upstream", Busy),
    // The caller.
    (Llamacpp, Dialect::Chat, 400, LLAMA_TOO_LONG, CallersFault),
    (Llamacpp, Dialect::Messages, 400, LLAMA_TOO_LONG, CallersFault),
    (
        Vllm,
        Dialect::Chat,
        400,
        r#"{"error":{"message":"This model's maximum context length is 2048 tokens.","type":"BadRequestError","param":"input_tokens","code":400}}"#,
        CallersFault,
    ),
    (
        Sglang,
        Dialect::Chat,
        400,
        r#"{"object":"error","message":"The input is longer than the model's context length.","type":"BadRequestError","code":400}"#,
        CallersFault,
    ),
    (
        Vllm,
        Dialect::Chat,
        404,
        r#"{"error":{"message":"The model `x` does not exist.","type":"NotFoundError","code":404}}"#,
        CallersFault,
    ),
    (
        Llamacpp,
        Dialect::Messages,
        500,
        r#"{"error":{"code":500,"message":"'max_tokens' is required","type":"server_error"}}"#,
        CallersFault,
    ),
    (
        Llamacpp,
        Dialect::Chat,
        500,
        r#"{"error":{"code":500,"message":"Jinja Exception: roles must alternate","type":"server_error"}}"#,
        CallersFault,
    ),
    (Llamacpp, Dialect::Plain, 501, "", CallersFault),
    (Openai, Dialect::Chat, 413, "", CallersFault),
    // Its key, its quota.
    (Vllm, Dialect::Chat, 401, r#"{"error":"Unauthorized"}"#, KeyRefused),
    (Openai, Dialect::Messages, 403, "", KeyRefused),
    (Openai, Dialect::Chat, 429, "", RateLimited),
    (
        Openai,
        Dialect::Responses,
        429,
        r#"{"error":{"type":"insufficient_quota","code":"insufficient_quota"}}"#,
        RateLimited,
    ),
    // Broken.
    (
        Vllm,
        Dialect::Chat,
        500,
        r#"{"error":{"message":"EngineCore died","type":"InternalServerError","code":500}}"#,
        Broken,
    ),
    (Vllm, Dialect::Chat, 500, LLAMA_POOL, Broken),
    (Vllm, Dialect::Chat, 500, r#"{"error":{"message":"'x' is required","code":500}}"#, Broken),
    (Llamacpp, Dialect::Chat, 500, "oops", Broken),
    (Openai, Dialect::Chat, 502, VLLM_BUSY, Broken),
    (Openai, Dialect::Chat, 504, "", Broken),
];

#[test]
fn every_reply_of_every_engine_has_its_class() {
    for (engine, dialect, status, body, class) in REPLIES {
        let mut reply = reply(engine, dialect, status, "application/json", body.len());
        reply.feed(body.as_bytes()).unwrap();
        assert!(reply.may_be_sent());
        assert_eq!(reply.class(), class, "{engine:?} {dialect:?} {status} {body}");
    }
}

/// Engine, dialect, a stream's first events, class.
const EVENTS: [(EngineKind, Dialect, &str, ReplyClass); 17] = [
    (Vllm, Dialect::Chat, "data: {\"choices\":[]}\n\n", Served),
    (
        Sglang,
        Dialect::Chat,
        "data: {\"error\":{\"object\":\"error\",\"message\":\"The request queue is full.\",\"type\":\"SERVICE_UNAVAILABLE\",\"param\":null,\"code\":503}}\n\ndata: [DONE]\n\n",
        Busy,
    ),
    (
        Sglang,
        Dialect::Chat,
        "data: {\"error\":{\"object\":\"error\",\"message\":\"The request is aborted by a higher priority request.\",\"type\":\"x\",\"code\":500}}\n\n",
        Busy,
    ),
    (
        Sglang,
        Dialect::Chat,
        "data: {\"error\":{\"message\":\"Request waiting timeout reached.\",\"code\":500}}\n\n",
        Busy,
    ),
    (
        Sglang,
        Dialect::Messages,
        "event: message_start\ndata: {\"type\":\"message_start\"}\n\nevent: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"x\"}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        Busy,
    ),
    (
        Vllm,
        Dialect::Chat,
        "data: {\"error\": {\"message\": \"The engine is currently busy\", \"type\": \"Service Unavailable\", \"code\": 503}}\n\ndata: [DONE]\n\n",
        Busy,
    ),
    (
        Llamacpp,
        Dialect::Chat,
        "data: {\"error\":{\"code\":500,\"message\":\"Context size has been exceeded.\",\"type\":\"server_error\"}}\n\n",
        Busy,
    ),
    (
        Llamacpp,
        Dialect::Messages,
        "event: error\ndata: {\"code\":500,\"message\":\"Context size has been exceeded.\",\"type\":\"server_error\"}\n\n",
        Busy,
    ),
    (
        Llamacpp,
        Dialect::Responses,
        "data: {\"error\":{\"code\":500,\"message\":\"Context size has been exceeded.\",\"type\":\"server_error\"}}\n\n",
        Busy,
    ),
    (Openai, Dialect::Chat, "data: {\"error\":{\"code\":\"503\"}}\n\n", Busy),
    (
        Openai,
        Dialect::Chat,
        "data: {\"error\":{\"code\":\"rate_limit_exceeded\",\"message\":\"later\"}}\n\n",
        RateLimited,
    ),
    (
        Openai,
        Dialect::Messages,
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"authentication_error\",\"message\":\"no\"}}\n\n",
        KeyRefused,
    ),
    (
        Openai,
        Dialect::Responses,
        "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"rate_limit_exceeded\",\"message\":\"later\"}}}\n\n",
        RateLimited,
    ),
    (
        Llamacpp,
        Dialect::Chat,
        "data: {\"error\":{\"code\":400,\"message\":\"too long\",\"type\":\"exceed_context_size_error\"}}\n\n",
        CallersFault,
    ),
    (
        Vllm,
        Dialect::Chat,
        "data: {\"error\":{\"code\":500,\"message\":\"'x' is required\",\"type\":\"server_error\"}}\n\n",
        Broken,
    ),
    (
        Vllm,
        Dialect::Messages,
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"internal_error\",\"message\":\"x\"}}\n\n",
        Broken,
    ),
    (Vllm, Dialect::Chat, "data: {\"error\":{\"message\":\"x\"}}\n\n", Broken),
];

#[test]
fn every_first_event_of_every_engine_has_its_class() {
    for (engine, dialect, stream, class) in EVENTS {
        let mut reply = reply(engine, dialect, 200, "text/event-stream", stream.len());
        reply.feed(stream.as_bytes()).unwrap();
        assert!(reply.may_be_sent());
        assert_eq!(reply.class(), class, "{engine:?} {dialect:?} {stream}");
    }
}

#[test]
fn every_way_to_get_no_reply_has_its_class() {
    let table = [
        (Failed::ClientGone, None),
        (Failed::Exhausted, None),
        (Failed::Connect, Some(Broken)),
        (Failed::Unsent, Some(Broken)),
        (Failed::BadReply, Some(Broken)),
        (Failed::NoReply, Some(UnknownOutcome)),
        (Failed::Silent, Some(UnknownOutcome)),
        (Failed::Wedged, Some(UnknownOutcome)),
    ];
    for (failed, class) in table {
        assert_eq!(classify_failure(failed), class, "{failed:?}");
    }
}

#[test]
fn what_a_caller_wrote_makes_nothing_busy() {
    let echo = r#"{"error":{"code":500,"message":"cannot render","type":"server_error","body":"The request queue is full. overloaded_error"}}"#;
    assert_eq!(classify_reply(Sglang, 500, echo.as_bytes()), Broken);
}

#[test]
fn an_error_too_long_to_be_one_is_judged_by_its_status_alone() {
    let long = format!(
        r#"{{"error":{{"message":"queue is full{}"}}}}"#,
        "x".repeat(ENGINE_ERROR_BYTES_MAX)
    );
    assert_eq!(Told::of(long.as_bytes()), Told::default());
    assert_eq!(classify_reply(Sglang, 500, long.as_bytes()), Broken);
    assert_eq!(classify_reply(Sglang, 503, long.as_bytes()), Busy);
}

fn reply(engine: EngineKind, dialect: Dialect, status: u16, content: &str, length: usize) -> Reply {
    use crate::http::{Method, ResponseHead};
    let text = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: {content}\r\ncontent-length: {length}\r\n\r\n"
    );
    let mut head = ResponseHead::new();
    head.parse(text.as_bytes(), &crate::limits::RESPONSE_HEAD, Method::Post).unwrap().unwrap();
    Reply::new(&head, engine, dialect, false)
}
