//! Bad transcripts and good ones: each rule of the verdict is shown to be one that can be broken.

use serde_json::json;

use super::dialect::Dialect;
use super::verdict::{Asked, Outcome, Over, Violation, judge};
use super::wire::Malformed;

const RIGHT: &str = "0123 abc def";

fn asked(dialect: Dialect, streamed: bool) -> Asked {
    Asked { dialect, streamed, right: RIGHT.to_owned() }
}

/// A reply of status 200 in chunks, with its last chunk.
fn chunked(events: &str) -> Vec<u8> {
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    format!("{head}{:x}\r\n{events}\r\n0\r\n\r\n", events.len()).into_bytes()
}

fn sized(status: u16, more: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{more}content-length: {length}\r\n\r\n{body}").into_bytes()
}

fn delta(text: &str) -> String {
    format!("data: {}\n\n", json!({ "choices": [{ "delta": { "content": text } }] }))
}

fn chat(events: &str) -> Result<Outcome, Violation> {
    judge(&asked(Dialect::Chat, true), &chunked(events), Over::Framed)
}

const DONE: &str = "data: [DONE]\n\n";
const ERROR: &str = "data: {\"error\":{\"message\":\"m\",\"type\":\"server_error\"}}\n\n";

#[test]
fn the_whole_right_reply_is_whole_and_less_of_it_is_truncated() {
    assert_eq!(chat(&format!("{}{DONE}", delta(RIGHT))), Ok(Outcome::Whole));
    assert_eq!(chat(&format!("{}{DONE}", delta("0123 abc"))), Err(Violation::Truncated));
    let whole = |text: &str| json!({ "choices": [{ "message": { "content": text }, "finish_reason": "stop" }] });
    let reply = |text: &str| {
        judge(&asked(Dialect::Chat, false), &sized(200, "", &whole(text).to_string()), Over::Framed)
    };
    assert_eq!((reply(RIGHT), reply("0123")), (Ok(Outcome::Whole), Err(Violation::Truncated)));
}

#[test]
fn a_stream_without_an_end_is_told_from_one_with_an_error_and_from_one_with_both() {
    let begun = delta("0123");
    assert_eq!(chat(&begun), Err(Violation::Unended));
    assert_eq!(chat(&format!("{begun}{ERROR}")), Ok(Outcome::Broken));
    assert_eq!(chat(&format!("{begun}{ERROR}{DONE}")), Err(Violation::TwoEnds));
}

#[test]
fn half_an_event_needs_an_error_after_it() {
    let half = format!("{}data: {{\"choi\n\n", delta("0123"));
    assert_eq!(chat(&half), Err(Violation::Torn));
    assert_eq!(chat(&format!("{half}{ERROR}")), Ok(Outcome::Broken));
}

#[test]
fn a_reply_to_another_client_is_seen_whether_it_ends_breaks_or_is_left() {
    for events in [format!("{}{DONE}", delta("ffff abc def")), format!("{}{ERROR}", delta("ffff"))]
    {
        assert_eq!(chat(&events), Err(Violation::Foreign));
    }
    let begun = chunked(&delta("ffff"));
    let left = judge(&asked(Dialect::Chat, true), &begun[..begun.len() - 5], Over::Left);
    assert_eq!(left, Err(Violation::Foreign));
}

#[test]
fn each_dialect_has_its_own_end_and_its_own_error() {
    let text = RIGHT;
    for (dialect, content, end, error) in [
        (Dialect::Completions, json!({ "choices": [{ "text": text }] }), DONE.to_owned(), ERROR.to_owned()),
        (
            Dialect::Responses,
            json!({ "type": "response.output_text.delta", "delta": text }),
            "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{}}\n\n".to_owned(),
            "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{}}\n\n".to_owned(),
        ),
        (
            Dialect::Messages,
            json!({ "type": "content_block_delta", "delta": { "text": text } }),
            "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n".to_owned(),
            "event: error\ndata: {\"type\":\"error\",\"error\":{}}\n\n".to_owned(),
        ),
    ] {
        let judged = |last: &str| {
            let events = format!(": a comment\n\ndata: {content}\n\n{last}");
            judge(&asked(dialect, true), &chunked(&events), Over::Framed)
        };
        assert_eq!(judged(&end), Ok(Outcome::Whole), "{dialect:?}");
        assert_eq!(judged(&error), Ok(Outcome::Broken), "{dialect:?}");
        assert_eq!(judged(""), Err(Violation::Unended), "{dialect:?}");
    }
}

#[test]
fn silence_a_closed_door_and_a_cut_are_three_things() {
    let asked = asked(Dialect::Chat, true);
    let whole = chunked(&format!("{}{DONE}", delta(RIGHT)));
    let cut = &whole[..whole.len() - 5];
    assert_eq!(judge(&asked, cut, Over::Silent), Err(Violation::Silence));
    assert_eq!(judge(&asked, b"", Over::Closed), Err(Violation::NoReply));
    assert_eq!(judge(&asked, &whole[..30], Over::Closed), Err(Violation::Framing(Malformed::Head)));
    assert_eq!(judge(&asked, cut, Over::Closed), Err(Violation::CutOff));
    assert_eq!(judge(&asked, cut, Over::Left), Ok(Outcome::Gone));
    assert_eq!(judge(&asked, b"", Over::Left), Ok(Outcome::Gone));
}

#[test]
fn bytes_that_are_no_reply_or_more_than_one_are_refused() {
    let asked = asked(Dialect::Chat, true);
    let whole = chunked(&format!("{}{DONE}", delta(RIGHT)));
    let twice = [whole.clone(), whole.clone()].concat();
    assert_eq!(judge(&asked, &twice, Over::Framed), Err(Violation::Framing(Malformed::Excess)));
    let text = String::from_utf8(whole).expect("text").replace("\r\n0\r\n", "0\r\n");
    let judged = judge(&asked, text.as_bytes(), Over::Framed);
    assert_eq!(judged, Err(Violation::Framing(Malformed::Chunk)));
    assert_eq!(judge(&asked, &sized(200, "", "{}"), Over::Framed), Err(Violation::OtherKind));
}

#[test]
fn a_refusal_is_an_error_of_the_callers_dialect() {
    let openai =
        json!({ "error": { "message": "m", "type": "server_error", "code": "c" } }).to_string();
    let anthropic =
        json!({ "type": "error", "error": { "message": "m", "type": "api_error" } }).to_string();
    let judged = |dialect, more: &str, body: &str| {
        judge(&asked(dialect, true), &sized(503, more, body), Over::Framed)
    };
    assert_eq!(judged(Dialect::Responses, "", &openai), Ok(Outcome::Refused(503)));
    assert_eq!(judged(Dialect::Messages, "", &anthropic), Ok(Outcome::Refused(503)));
    assert_eq!(judged(Dialect::Messages, "", &openai), Err(Violation::NoError(503)));
    assert_eq!(judged(Dialect::Chat, "", "oops"), Err(Violation::NoError(503)));
    let by_engine = "x-shearwater-backend: b0\r\n";
    assert_eq!(judged(Dialect::Messages, by_engine, &openai), Ok(Outcome::Refused(503)));
    assert_eq!(judged(Dialect::Chat, by_engine, "{}"), Err(Violation::NoError(503)));
    let short = sized(503, "", &openai);
    let cut = judge(&asked(Dialect::Chat, true), &short[..short.len() - 1], Over::Closed);
    assert_eq!(cut, Err(Violation::CutOff));
}
