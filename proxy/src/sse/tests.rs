//! Tests of the scanner: every cut of a stream, and a naive reader beside it.

use super::*;
use crate::classify::{ReplyClass, classify_error};
use crate::published::EngineKind;

const CHAT: &str = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"say data: [DONE]\\n\"}}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4}}\n\ndata: [DONE]\n\n";
const MESSAGES: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"cache_read_input_tokens\":13,\"input_tokens\":1}}}\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\"}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":2}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
const RESPONSES: &str = "event: response.created\ndata: {\"type\":\"response.created\"}\n\nevent: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"x\"}\n\nevent: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":14,\"output_tokens\":3,\"input_tokens_details\":{\"cached_tokens\":13}}}}\n\n";

fn scan(dialect: Dialect, pieces: &[&[u8]]) -> Scanner {
    let mut scanner = Scanner::new(dialect);
    for piece in pieces {
        if scanner.feed(piece) > 0 {
            break;
        }
    }
    scanner
}

fn error(s: &Scanner) -> Option<ReplyClass> {
    s.error().map(|data| classify_error(EngineKind::Unknown, data))
}

fn verdict(s: &Scanner) -> (bool, bool, Option<ReplyClass>, u64, bool, Option<Usage>) {
    (s.is_decided(), s.has_ended(), error(s), s.events(), s.is_inside_event(), s.usage())
}

#[test]
fn every_cut_of_a_stream_is_read_the_same() {
    let streams =
        [(Dialect::Chat, CHAT), (Dialect::Messages, MESSAGES), (Dialect::Responses, RESPONSES)];
    for (dialect, stream) in streams {
        let bytes = stream.as_bytes();
        let whole = verdict(&scan(dialect, &[bytes]));
        assert!(whole.1 && whole.5.is_some(), "{dialect:?}: {whole:?}");
        for cut in 0..bytes.len() {
            let cut_once = verdict(&scan(dialect, &[&bytes[..cut], &bytes[cut..]]));
            assert_eq!(cut_once, whole, "{dialect:?} cut at {cut}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(verdict(&scan(dialect, &single)), whole, "{dialect:?} byte by byte");
    }
}

#[test]
fn line_ends_with_carriage_returns_are_read_the_same() {
    let crlf = CHAT.replace('\n', "\r\n");
    assert_eq!(
        verdict(&scan(Dialect::Chat, &[crlf.as_bytes()])),
        verdict(&scan(Dialect::Chat, &[CHAT.as_bytes()]))
    );
}

#[test]
fn a_done_inside_generated_text_is_no_end() {
    let text = "data: {\"choices\":[{\"delta\":{\"content\":\"data: [DONE]\"}}]}\n\n";
    assert!(!scan(Dialect::Chat, &[text.as_bytes()]).has_ended());
}

#[test]
fn comments_pings_and_preambles_decide_nothing() {
    let silent = ": keepalive\n\nevent: message_start\ndata: {\"type\":\"message_start\"}\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n";
    assert!(!scan(Dialect::Messages, &[silent.as_bytes()]).is_decided());
    let unnamed =
        "data: {\"type\":\"response.created\"}\n\ndata: {\"type\":\"response.in_progress\"}\n\n";
    assert!(!scan(Dialect::Responses, &[unnamed.as_bytes()]).is_decided());
    assert!(!scan(Dialect::Chat, &[b":\n\n".as_slice()]).is_decided());
}

#[test]
fn a_full_engine_that_says_so_in_a_200_is_busy() {
    let sglang = "data: {\"error\":{\"object\":\"error\",\"message\":\"The request queue is full.\",\"type\":\"SERVICE_UNAVAILABLE\",\"param\":null,\"code\":503}}\n\ndata: [DONE]\n\n";
    assert_eq!(error(&scan(Dialect::Chat, &[sglang.as_bytes()])), Some(ReplyClass::Busy));
    let messages = "event: message_start\ndata: {\"type\":\"message_start\"}\n\nevent: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"x\"}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    let scanner = scan(Dialect::Messages, &[messages.as_bytes()]);
    assert_eq!(error(&scanner), Some(ReplyClass::Busy));
}

#[test]
fn an_error_object_without_a_name_is_an_error_in_every_dialect() {
    let bare = b"data: {\"error\":{\"code\":500,\"message\":\"Context size has been exceeded.\",\"type\":\"server_error\"}}\n\n";
    for dialect in [Dialect::Chat, Dialect::Responses, Dialect::Messages, Dialect::Plain] {
        assert_eq!(error(&scan(dialect, &[bare])), Some(ReplyClass::Busy), "{dialect:?}");
    }
}

#[test]
fn an_event_under_way_is_known_to_be_open() {
    for open in ["data: {\"cho", "data: {}\n", "event: ping\n"] {
        assert!(scan(Dialect::Chat, &[open.as_bytes()]).is_inside_event(), "{open:?}");
    }
    for closed in ["", "data: {}\n\n", ": note\n", ": note\n\n"] {
        assert!(!scan(Dialect::Chat, &[closed.as_bytes()]).is_inside_event(), "{closed:?}");
    }
}

#[test]
fn an_event_larger_than_the_carry_keeps_its_name_and_its_usage() {
    let long = "x".repeat(3 * SSE_CARRY_BYTES_MAX);
    let event = format!(
        "data: {{\"type\":\"response.completed\",\"response\":{{\"text\":\"{long}\",\"usage\":{{\"input_tokens\":5,\"output_tokens\":1}}}}}}\n\n"
    );
    let pieces: Vec<&[u8]> = event.as_bytes().chunks(4096).collect();
    let scanner = scan(Dialect::Responses, &pieces);
    assert!(scanner.has_ended());
    assert_eq!(scanner.usage().map(|usage| usage.prompt_tokens), Some(5));
}

#[test]
fn an_engine_that_gave_up_is_seen() {
    let aborted =
        b"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"abort\"}]}\n\ndata: [DONE]\n\n";
    assert!(scan(Dialect::Chat, &[aborted]).was_aborted());
}

/// What goes on of a stream whose usage is hidden, fed in these pieces.
fn passed(pieces: &[&[u8]]) -> (String, Scanner) {
    let mut scanner = Scanner::new(Dialect::Chat);
    scanner.hide_usage();
    let mut passed = Vec::new();
    for piece in pieces {
        scanner.feed(piece);
        passed.extend(scanner.hiding().expect("it hides").take(false));
    }
    passed.extend(scanner.hiding().expect("it hides").take(true));
    (String::from_utf8(passed).expect("text"), scanner)
}

#[test]
fn usage_that_is_hidden_goes_alone_however_the_stream_is_cut() {
    let start = CHAT.find("data: {\"choices\":[],").expect("usage");
    let end = CHAT.find("data: [DONE]\n\n").expect("an end");
    let expected = format!("{}{}", &CHAT[..start], &CHAT[end..]);
    let bytes = CHAT.as_bytes();
    for cut in 0..bytes.len() {
        let (text, scanner) = passed(&[&bytes[..cut], &bytes[cut..]]);
        assert_eq!(text, expected, "cut at {cut}");
        assert_eq!((scanner.events(), scanner.has_ended()), (3, true));
        assert!(scanner.usage().is_some_and(|usage| usage.prompt_tokens == 9), "still learned");
    }
    let crlf = CHAT.replace('\n', "\r\n");
    assert_eq!(passed(&[crlf.as_bytes()]).0, expected.replace('\n', "\r\n"));
}

#[test]
fn only_usage_without_a_choice_is_hidden() {
    for kept in [
        "data: {\"choices\":[{\"delta\":{}}],\"usage\":{\"prompt_tokens\":9}}\n\n",
        "data: {\"choices\":[],\"usage\":null}\n\n",
        "data: {\"choices\":[],\"prompt_filter_results\":[{\"usage\":{}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\"\\\"choices\\\":[],\\\"usage\\\":{\"}}]}\n\n",
        ": comment\n\n",
        "data: [DONE]",
    ] {
        assert_eq!(passed(&[kept.as_bytes()]).0, kept);
    }
    let spaced = "data: { \"usage\": {\"prompt_tokens\": 1}, \"choices\" : [ ] }\n: written\n\n";
    assert_eq!(passed(&[spaced.as_bytes()]).0, "");
}

#[test]
fn an_event_too_long_to_hold_back_goes_on_whatever_it_says() {
    let long = format!(
        "data: {{\"x\":\"{}\",\"choices\":[],\"usage\":{{}}}}\ndata: {{\"choices\":[],\"usage\":{{}}}}\n\n",
        "y".repeat(SSE_CARRY_BYTES_MAX)
    );
    assert_eq!(
        passed(&[long.as_bytes(), CHAT.as_bytes()]).0.len(),
        long.len() + passed(&[CHAT.as_bytes()]).0.len()
    );
}

#[test]
fn an_engine_gives_up_in_several_spellings_and_nobody_else_does() {
    for json in [
        r#"{"finish_reason":"abort"}"#,
        r#"{"finish_reason" : "abort"}"#,
        r#"{"text":"","meta_info":{"finish_reason":{"type":"abort","message":"x","status_code":503}}}"#,
        r#"{"meta_info": {"finish_reason": { "type": "abort", "message": "x"}}}"#,
        r#"{"token":"abort","finish_reason":"abort"}"#,
    ] {
        assert!(says_abort(json.as_bytes()), "{json}");
    }
    for json in [
        r#"{"finish_reason":"stop","token":"abort"}"#,
        r#"{"content":"\"finish_reason\":\"abort\""}"#,
        r#"{"type":"abort"}"#,
        r#"{"tool":{"type":"abort"},"finish_reason":{"type":"stop"}}"#,
        r#""abort""#,
    ] {
        assert!(!says_abort(json.as_bytes()), "{json}");
    }
}

#[test]
fn it_stops_before_an_error_that_is_not_in_the_dialect_wherever_the_stream_is_cut() {
    let bare = "event: error\ndata: {\"code\":500,\"message\":\"x\",\"type\":\"server_error\"}\n\ndata: [DONE]\n\n";
    for blank in ["\n\n", "\r\n\r\n"] {
        let before = format!("event: word\ndata: {{\"type\":\"word\"}}{blank}");
        let stream = format!("{before}{bare}");
        for dialect in [Dialect::Chat, Dialect::Messages, Dialect::Responses] {
            for cut in 0..stream.len() {
                let mut scanner = Scanner::new(dialect);
                let (mut passed, mut fed) = (0, 0);
                for piece in [&stream.as_bytes()[..cut], &stream.as_bytes()[cut..]] {
                    fed += piece.len();
                    let back = scanner.feed(piece);
                    passed = fed - back;
                    if back > 0 {
                        break;
                    }
                }
                // What went out before the cut cannot be taken back, nor a blank line that the cut parted.
                let (least, most) = (before.len().min(cut), before.len().max(cut));
                assert!((least..=most).contains(&passed), "{dialect:?} cut at {cut}: {passed}");
                assert!(scanner.error().is_some());
                let broken = passed != before.len();
                assert_eq!(scanner.is_inside_event(), broken, "{dialect:?} cut at {cut}");
            }
        }
    }
}

#[test]
fn an_error_in_its_dialect_is_passed_on_whole() {
    let chat = "data: {\"error\":{\"message\":\"x\"}}\n\ndata: [DONE]\n\n";
    let messages =
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"t\",\"message\":\"x\"}}\n\n";
    let responses = "data: {\"type\":\"response.failed\",\"response\":{\"error\":{}}}\n\n";
    let plain = "event: error\ndata: nothing that could be read\n\n";
    for (dialect, stream) in [
        (Dialect::Chat, chat),
        (Dialect::Messages, messages),
        (Dialect::Responses, responses),
        (Dialect::Plain, plain),
    ] {
        let mut scanner = Scanner::new(dialect);
        assert_eq!(scanner.feed(stream.as_bytes()), 0, "{dialect:?}");
        assert!(scanner.error().is_some());
    }
}
