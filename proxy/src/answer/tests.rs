//! The whole table of answers, and the form of each.

use super::*;
use serde_json::Value;

const DIALECTS: [Dialect; 4] =
    [Dialect::Chat, Dialect::Responses, Dialect::Messages, Dialect::Plain];

fn facts() -> Facts<'static> {
    Facts { request_id: "req_01", retry_after_ms: 4200, detail: None }
}

fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    answer.headers().find(|(key, _)| *key == name).map(|(_, value)| value)
}

#[test]
fn every_situation_has_the_documented_status_in_every_dialect() {
    use Situation::*;
    let table = [
        (NoRoom, 503, 503, 529, "backends_busy", "overloaded_error"),
        (NoHealthyBackend, 503, 503, 529, "no_healthy_backend", "overloaded_error"),
        (Draining, 503, 503, 529, "draining", "overloaded_error"),
        (RateLimited, 429, 429, 429, "rate_limit_exceeded", "rate_limit_error"),
        (BadKey, 401, 401, 403, "invalid_api_key", "permission_error"),
        (UnknownModel, 404, 400, 400, "model_not_found", "invalid_request_error"),
        (PromptTooLarge, 400, 400, 400, "context_length_exceeded", "invalid_request_error"),
        (BodyTooLarge, 413, 413, 413, "request_too_large", "request_too_large"),
        (BadJson, 400, 400, 400, "invalid_json", "invalid_request_error"),
        (BadRequest, 400, 400, 400, "bad_request", "invalid_request_error"),
        (UnsupportedEncoding, 400, 400, 400, "unsupported_encoding", "invalid_request_error"),
        (HeadTooLarge, 431, 431, 431, "head_too_large", "invalid_request_error"),
        (UriTooLong, 414, 414, 414, "uri_too_long", "invalid_request_error"),
        (LengthRequired, 411, 411, 411, "length_required", "invalid_request_error"),
        (RequestTimeout, 408, 408, 408, "request_timeout", "invalid_request_error"),
        (
            UnsupportedTransferCoding,
            501,
            501,
            501,
            "unsupported_transfer_coding",
            "invalid_request_error",
        ),
        (UnsupportedVersion, 505, 505, 505, "unsupported_version", "invalid_request_error"),
        (UnsupportedExpectation, 417, 417, 417, "unsupported_expectation", "invalid_request_error"),
        (NotFound, 404, 404, 404, "not_found", "not_found_error"),
        (MethodNotAllowed, 405, 405, 405, "method_not_allowed", "invalid_request_error"),
        (UpstreamFailed, 502, 502, 502, "upstream_error", "api_error"),
        (FirstByteTimeout, 504, 504, 504, "upstream_timeout", "api_error"),
        (Internal, 500, 500, 500, "internal_error", "api_error"),
    ];
    assert_eq!(table.map(|row| row.0), Situation::ALL);
    for (situation, chat, responses, messages, code, kind) in table {
        let statuses = DIALECTS.map(|dialect| answer(situation, dialect, &facts()).status);
        assert_eq!(statuses, [chat, responses, messages, chat], "{situation:?}");
        let openai = body(&answer(situation, Dialect::Chat, &facts()));
        assert_eq!(openai["error"]["code"], code, "{situation:?}");
        let anthropic = body(&answer(situation, Dialect::Messages, &facts()));
        assert_eq!(anthropic["error"]["type"], kind, "{situation:?}");
    }
}

fn body(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).expect("JSON")
}

#[test]
fn every_answer_has_its_dialects_form() {
    for situation in Situation::ALL {
        for dialect in DIALECTS {
            let answer = answer(situation, dialect, &facts());
            let body = body(&answer);
            assert!(body["error"]["message"].as_str().is_some_and(|message| message.len() > 10));
            assert!(body["error"]["type"].is_string());
            let messages = dialect == Dialect::Messages;
            assert_eq!(body["type"] == "error", messages);
            assert_eq!(body["request_id"] == "req_01", messages);
            assert_eq!(body["error"]["code"].is_string(), !messages);
            assert_eq!(body["error"].get("param").is_some_and(Value::is_null), !messages);
            assert_eq!(header(&answer, "content-type"), Some("application/json"));
            assert_eq!(header(&answer, "x-request-id"), Some("req_01"));
            assert_eq!(header(&answer, "request-id").is_some(), messages);
            assert_ne!(reason(answer.status), "Unknown", "{situation:?}");
        }
    }
}

#[test]
fn clients_are_told_when_or_whether_to_try_again() {
    for situation in Situation::ALL {
        for dialect in DIALECTS {
            let answer = answer(situation, dialect, &facts());
            let later = matches!(answer.status, 503 | 529 | 429);
            assert_eq!(header(&answer, "retry-after"), later.then_some("5"), "{situation:?}");
            assert_eq!(header(&answer, "retry-after-ms"), later.then_some("4200"));
            let never = !later && !matches!(answer.status, 408 | 500 | 502 | 504);
            assert_eq!(
                header(&answer, "x-should-retry"),
                never.then_some("false"),
                "{situation:?}"
            );
        }
    }
}

#[test]
fn the_wait_is_whole_seconds_below_a_minute() {
    for (ms, seconds, sent_ms) in [
        (0, "1", "1"),
        (1, "1", "1"),
        (1000, "1", "1000"),
        (1001, "2", "1001"),
        (58_001, "59", "58001"),
        (600_000, "59", "59000"),
        (u64::MAX, "59", "59000"),
    ] {
        let facts = Facts { retry_after_ms: ms, ..facts() };
        let answer = answer(Situation::NoRoom, Dialect::Chat, &facts);
        assert_eq!(header(&answer, "retry-after"), Some(seconds), "{ms}");
        assert_eq!(header(&answer, "retry-after-ms"), Some(sent_ms), "{ms}");
    }
}

#[test]
fn codex_is_never_told_that_being_busy_is_fatal() {
    for situation in Situation::ALL {
        let answer = answer(situation, Dialect::Responses, &facts());
        let code = body(&answer)["error"]["code"].as_str().unwrap_or_default().to_owned();
        assert!(!matches!(code.as_str(), "server_is_overloaded" | "slow_down"), "{situation:?}");
        assert!(answer.status != 429 || situation == Situation::RateLimited);
        assert!(code != "context_length_exceeded" || situation == Situation::PromptTooLarge);
    }
}

#[test]
fn the_documented_bodies_are_exact() {
    let facts = Facts { retry_after_ms: 5000, ..facts() };
    let chat = answer(Situation::NoRoom, Dialect::Chat, &facts).body;
    assert_eq!(
        String::from_utf8_lossy(&chat),
        r#"{"error":{"message":"All backends are busy. Retry in 5 s.","type":"server_error","param":null,"code":"backends_busy"}}"#
    );
    let messages = answer(Situation::NoRoom, Dialect::Messages, &facts).body;
    assert_eq!(
        String::from_utf8_lossy(&messages),
        r#"{"type":"error","error":{"type":"overloaded_error","message":"All backends are busy. Retry in 5 s."},"request_id":"req_01"}"#
    );
}

#[test]
fn details_are_escaped_and_bounded() {
    let detail = format!("expected \"a value\"\r\nat byte 7 {}", "x".repeat(10_000));
    let facts = Facts { detail: Some(&detail), ..facts() };
    for dialect in DIALECTS {
        let answer = answer(Situation::BadJson, dialect, &facts);
        let message = body(&answer)["error"]["message"].as_str().expect("text").to_owned();
        assert!(message.contains("expected \"a value\"\r\nat byte 7"), "{message}");
        assert!(answer.body.len() < 2048);
    }
}

#[test]
fn an_answer_is_framed_as_http() {
    let facts = Facts { request_id: "a\r\nset-cookie: x", ..facts() };
    let answer = answer(Situation::BadRequest, Dialect::Messages, &facts);
    let text = String::from_utf8(answer.to_http1(true, true)).expect("UTF-8");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    assert_eq!(body.as_bytes(), answer.body);
    let mut lines = head.split("\r\n");
    assert_eq!(lines.next(), Some("HTTP/1.1 400 Bad Request"));
    let headers: Vec<_> = lines.collect();
    assert!(headers.contains(&format!("content-length: {}", body.len()).as_str()));
    assert!(
        headers.contains(&"connection: close") && headers.contains(&"request-id: aset-cookie:x")
    );
    let head_only = String::from_utf8(answer.to_http1(false, false)).expect("UTF-8");
    assert!(head_only.ends_with("\r\n\r\n") && !head_only.contains("connection"));
    assert!(head_only.contains(&format!("content-length: {}", body.len())));
}
