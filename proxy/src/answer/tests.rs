//! The whole table, row by row, and what every answer owes its caller.

use super::status::OVERLOADED;
use super::*;
use crate::classify::ReplyClass;
use crate::http::Version;

const DIALECTS: [Dialect; 4] =
    [Dialect::Chat, Dialect::Responses, Dialect::Messages, Dialect::Plain];

fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    answer.headers.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_str())
}

fn json(answer: &Answer) -> serde_json::Value {
    serde_json::from_slice(&answer.body).expect("every answer's body is JSON")
}

#[test]
fn every_situation_has_the_status_each_client_handles_best() {
    use Situation as S;
    let expected = [
        (S::NoRoom, 503, 503, 529),
        (S::NoMemory, 503, 503, 529),
        (S::NoHealthyBackend, 503, 503, 529),
        (S::Draining, 503, 503, 529),
        (S::UnknownModel, 404, 400, 400),
        (S::PromptTooLarge, 400, 400, 400),
        (S::BodyTooLarge, 413, 413, 413),
        (S::BadJson, 400, 400, 400),
        (S::BadRequest, 400, 400, 400),
        (S::BadEncoding, 415, 415, 415),
        (S::UnknownPath, 404, 404, 404),
        (S::MethodNotAllowed, 405, 405, 405),
        (S::HeadTooLarge, 431, 431, 431),
        (S::UriTooLong, 414, 414, 414),
        (S::ExpectationFailed, 417, 417, 417),
        (S::UnknownCoding, 501, 501, 501),
        (S::UnsupportedVersion, 505, 505, 505),
        (S::UpstreamFailed, 502, 502, 502),
        (S::FirstByteTimeout, 504, 504, 504),
        (S::OutcomeUnknown, 502, 502, 502),
        (S::EngineRefused, 400, 400, 400),
    ];
    assert_eq!(expected.len(), S::ALL.len());
    for (situation, chat, responses, messages) in expected {
        let statuses = [chat, responses, messages, chat];
        for (dialect, status) in DIALECTS.into_iter().zip(statuses) {
            assert_eq!(
                own(situation, dialect, "req_1").status,
                status,
                "{situation:?} {dialect:?}"
            );
        }
    }
}

#[test]
fn every_body_is_in_its_dialects_envelope() {
    for situation in Situation::ALL {
        for dialect in DIALECTS {
            let answer = own(situation, dialect, "req_1");
            let body = json(&answer);
            assert!(body["error"]["message"].is_string(), "{situation:?} {dialect:?}");
            assert_eq!(header(&answer, "content-type"), Some("application/json"));
            assert_eq!(header(&answer, "x-request-id"), Some("req_1"));
            if dialect == Dialect::Messages {
                assert_eq!(body["type"], "error");
                assert_eq!(body["request_id"], "req_1");
                assert_eq!(header(&answer, "request-id"), Some("req_1"));
            } else {
                assert!(body["error"]["code"].is_string() && body["error"]["param"].is_null());
            }
        }
    }
}

#[test]
fn a_busy_answer_says_when_to_come_back_and_a_hopeless_one_says_not_to() {
    for situation in Situation::ALL {
        let answer = own(situation, Dialect::Messages, "req_1");
        let seconds: Option<u64> = header(&answer, "retry-after").map(|s| s.parse().unwrap());
        let busy = answer.status == OVERLOADED;
        assert_eq!(seconds.is_some(), busy, "{situation:?}");
        assert!(seconds.is_none_or(|s| (1..60).contains(&s)), "{situation:?}");
        let hopeless = answer.status < 500
            || matches!(answer.status, 501 | 505)
            || situation == Situation::OutcomeUnknown;
        assert_eq!(header(&answer, "x-should-retry") == Some("false"), hopeless, "{situation:?}");
    }
}

#[test]
fn no_code_makes_codex_give_up_on_what_may_mend() {
    for situation in Situation::ALL.into_iter().filter(|s| s.row().may_mend) {
        let code = situation.row().code;
        assert!(!["server_is_overloaded", "slow_down", "context_length_exceeded"].contains(&code));
        assert_ne!(own(situation, Dialect::Responses, "r").status, 429);
    }
}

#[test]
fn an_engines_words_take_the_place_of_ours_within_a_bound() {
    let words = "ä".repeat(ENGINE_WORDS_BYTES_MAX);
    for dialect in DIALECTS {
        let answer = told(Situation::EngineRefused, dialect, "req_1", "no such tool");
        assert_eq!(json(&answer)["error"]["message"], "no such tool");
        let long = json(&told(Situation::EngineRefused, dialect, "req_1", &words));
        let message = long["error"]["message"].as_str().unwrap();
        assert!(message.len() == ENGINE_WORDS_BYTES_MAX && words.starts_with(message));
    }
}

#[test]
fn a_broken_frame_is_one_event_with_valid_json_and_no_end_marker() {
    for dialect in DIALECTS {
        let mut out = Vec::new();
        write_broken_frame(&mut out, dialect, 9);
        let text = String::from_utf8(out).unwrap();
        assert!(text.ends_with("\n\n") && text.matches("\n\n").count() == 1, "{text}");
        assert!(!text.contains("[DONE]") && !text.contains("_stop"));
        let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
        let json: serde_json::Value = serde_json::from_str(data).unwrap();
        if dialect == Dialect::Responses {
            assert_eq!(json["sequence_number"], 9);
            assert_eq!(json["response"]["error"]["code"], "upstream_error");
        }
    }
}

#[test]
fn an_engines_error_is_told_in_each_dialects_own_frame() {
    let cases = [
        (ReplyClass::Busy, "overloaded_error", "backends_busy"),
        (ReplyClass::RateLimited, "rate_limit_error", "rate_limit_exceeded"),
        (ReplyClass::CallersFault, "invalid_request_error", "invalid_prompt"),
        (ReplyClass::Broken, "api_error", "upstream_error"),
    ];
    for (class, anthropic, code) in cases {
        for dialect in DIALECTS {
            let mut out = Vec::new();
            write_error_frame(&mut out, dialect, 3, class, "it said \"no\"\n");
            let text = String::from_utf8(out).unwrap();
            assert!(text.ends_with("\n\n") && text.matches("\n\n").count() == 1, "{text}");
            let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
            let json: serde_json::Value = serde_json::from_str(data).unwrap();
            let error = json.pointer("/response/error").unwrap_or(&json["error"]);
            assert_eq!(error["message"], "it said \"no\"\n");
            if dialect == Dialect::Messages {
                assert_eq!((&json["type"], &error["type"]), (&"error".into(), &anthropic.into()));
                assert!(text.starts_with("event: error\n"));
            } else {
                assert_eq!(error["code"], code);
            }
        }
    }
}

#[test]
fn an_answer_to_head_is_described_and_not_sent() {
    let mut out = Vec::new();
    let to = Downstream { version: Version::Http11, keep_alive: true };
    own(Situation::NoRoom, Dialect::Chat, "req_1").write(&mut out, to, true);
    let text = String::from_utf8(out).unwrap();
    assert!(text.starts_with("HTTP/1.1 503") && text.ends_with("\r\n\r\n"));
}
