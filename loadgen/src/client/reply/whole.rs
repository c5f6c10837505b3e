//! Replies that come as one JSON document, and the text of error bodies.

use serde::Deserialize;
use serde_json::Value;

use super::parse::{self, ChatUsage, MessagesUsage, ResponsesUsage, Timings};
use crate::client::fault::{Fault, FaultKind};
use crate::client::options::Dialect;
use crate::report::TokenCounts;

/// What a whole reply says: the assistant's text and the token counts.
pub(crate) fn read_whole(
    dialect: Dialect,
    body: &[u8],
) -> Result<(String, Option<TokenCounts>), Fault> {
    let value: Value = serde_json::from_slice(body)
        .map_err(|error| Fault::new(FaultKind::BadEvent, format!("no JSON: {error}")))?;
    if value.get("error").is_some_and(|error| !error.is_null()) {
        return Err(parse::error_event(&value));
    }
    let read = match dialect {
        Dialect::Openai => (choice_text(&value, "/choices/0/message/content"), chat_counts(&value)),
        Dialect::Completions => (choice_text(&value, "/choices/0/text"), chat_counts(&value)),
        Dialect::Anthropic => {
            let usage = member::<MessagesUsage>(&value, "usage");
            (parts_text(value.get("content")), usage.and_then(MessagesUsage::counts))
        }
        Dialect::Responses => {
            let usage = member::<ResponsesUsage>(&value, "usage");
            (output_text(&value), usage.and_then(ResponsesUsage::counts))
        }
    };
    match read {
        (Some(text), counts) => Ok((text, counts)),
        (None, _) => Err(Fault::new(FaultKind::BadEvent, "not a reply of this dialect")),
    }
}

/// A short text for a reply that is an error status.
pub(crate) fn error_body_text(body: &[u8]) -> String {
    match serde_json::from_slice::<Value>(body) {
        Ok(value) => parse::error_text(&value),
        Err(_) => String::from_utf8_lossy(body).into_owned(),
    }
}

fn member<T: for<'a> Deserialize<'a>>(value: &Value, name: &str) -> Option<T> {
    T::deserialize(value.get(name)?).ok()
}

fn chat_counts(value: &Value) -> Option<TokenCounts> {
    let timings = member::<Timings>(value, "timings");
    let usage = member::<ChatUsage>(value, "usage");
    let usage = usage.filter(|usage| usage.reports_cached() || timings.is_none());
    usage.and_then(ChatUsage::counts).or(timings.map(Timings::counts))
}

/// A message that only calls tools has `null` for its content: a reply, with no text.
fn choice_text(value: &Value, pointer: &str) -> Option<String> {
    match value.pointer(pointer)? {
        Value::String(text) => Some(text.clone()),
        Value::Null => Some(String::new()),
        _ => None,
    }
}

fn parts_text(parts: Option<&Value>) -> Option<String> {
    let parts = parts?.as_array()?.iter();
    Some(parts.filter_map(|part| part.get("text")?.as_str()).collect())
}

fn output_text(value: &Value) -> Option<String> {
    let items = value.get("output")?.as_array()?.iter();
    Some(items.filter_map(|item| parts_text(item.get("content"))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(dialect: Dialect, body: &str) -> (String, (u64, u64, u64)) {
        let (text, counts) = read_whole(dialect, body.as_bytes()).expect("a reply");
        let counts = counts.expect("token counts");
        (text, (counts.reused, counts.recomputed, counts.output))
    }

    #[test]
    fn each_dialects_reply_gives_text_and_counts() {
        let chat = r#"{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":291,"completion_tokens":6,"prompt_tokens_details":{"cached_tokens":288}}}"#;
        assert_eq!(read(Dialect::Openai, chat), ("hi".to_owned(), (288, 3, 6)));
        let completions = r#"{"choices":[{"text":"hi"}],"timings":{"cache_n":3,"prompt_n":4,"predicted_n":5},"usage":{"prompt_tokens":7}}"#;
        assert_eq!(read(Dialect::Completions, completions), ("hi".to_owned(), (3, 4, 5)));
        let messages = r#"{"content":[{"type":"text","text":"h"},{"type":"tool_use"},{"type":"text","text":"i"}],"usage":{"input_tokens":1,"cache_read_input_tokens":13,"output_tokens":2}}"#;
        assert_eq!(read(Dialect::Anthropic, messages), ("hi".to_owned(), (13, 1, 2)));
        let responses = r#"{"output":[{"type":"reasoning"},{"content":[{"type":"output_text","text":"hi"}]}],"usage":{"input_tokens":14,"output_tokens":3,"input_tokens_details":{"cached_tokens":13}}}"#;
        assert_eq!(read(Dialect::Responses, responses), ("hi".to_owned(), (13, 1, 3)));
    }

    #[test]
    fn an_error_under_status_200_is_an_error() {
        let fault = read_whole(Dialect::Openai, br#"{"error":{"message":"full"}}"#);
        assert_eq!(fault, Err(Fault::new(FaultKind::ErrorEvent, "full")));
    }

    #[test]
    fn a_reply_of_another_dialect_is_malformed() {
        let fault = read_whole(Dialect::Anthropic, br#"{"choices":[]}"#).expect_err("no content");
        assert_eq!(fault.kind, FaultKind::BadEvent);
        let fault = read_whole(Dialect::Openai, b"<html>").expect_err("no JSON");
        assert_eq!(fault.kind, FaultKind::BadEvent);
    }

    #[test]
    fn error_bodies_are_read_in_every_envelope() {
        assert_eq!(error_body_text(br#"{"error":{"message":"busy","code":503}}"#), "busy");
        assert_eq!(error_body_text(br#"{"object":"error","message":"full"}"#), "full");
        assert_eq!(error_body_text(br#"{"detail":"odd"}"#), r#"{"detail":"odd"}"#);
        assert_eq!(error_body_text(b"upstream gone"), "upstream gone");
    }
}
