//! Events of `/v1/responses`.

use serde::Deserialize;
use serde_json::Value;

use super::parse::{self, ResponsesUsage, Text, Unread};
use super::{Meaning, Reply};
use crate::client::fault::{Fault, FaultKind};
use crate::client::sse::Event;

#[derive(Deserialize)]
struct ResponseEvent<'a> {
    #[serde(borrow, default)]
    r#type: Option<Text<'a>>,
    #[serde(borrow, default)]
    delta: Option<Text<'a>>,
    #[serde(default)]
    response: Option<Response>,
    #[serde(default)]
    error: Option<Value>,
    #[serde(borrow, default)]
    message: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Response {
    #[serde(default)]
    usage: Option<ResponsesUsage>,
    #[serde(default)]
    error: Option<Value>,
}

pub(super) fn meaning<'a>(reply: &mut Reply, event: Event<'a>) -> Meaning<'a> {
    if event.data == b"[DONE]" {
        return Meaning::Other;
    }
    let read: ResponseEvent<'a> = match parse::event(event.data) {
        Ok(read) => read,
        Err(Unread::Unknown) => return Meaning::Other,
        Err(Unread::Malformed(fault)) => return Meaning::Fault(fault),
    };
    if let Some(error) = &read.error {
        return Meaning::Fault(parse::error_event(error));
    }
    let Some(name) = read.r#type else {
        // Codex passes over events without a type, so what they say is lost to it.
        return Meaning::Fault(Fault::new(FaultKind::BadEvent, "an event without a type"));
    };
    let usage = read.response.as_ref().and_then(|response| response.usage);
    reply.tokens = usage.and_then(ResponsesUsage::counts).or(reply.tokens);
    match &*name.0 {
        "response.output_text.delta" => {
            let text = read.delta.filter(|text| !text.is_empty());
            text.map_or(Meaning::Other, |text| Meaning::Content(Some(text.0)))
        }
        "response.completed" | "response.incomplete" => {
            reply.finished = true;
            Meaning::End
        }
        "response.failed" => Meaning::Fault(failed(read.response)),
        "error" => {
            let message = read.message.map_or("error".into(), |message| message.0);
            Meaning::Fault(Fault::new(FaultKind::ErrorEvent, message))
        }
        // Reasoning and tool calls: tokens, but not the assistant's text.
        other if other.ends_with(".delta") => Meaning::Content(None),
        _ => Meaning::Other,
    }
}

fn failed(response: Option<Response>) -> Fault {
    match response.and_then(|response| response.error) {
        Some(error) => parse::error_event(&error),
        None => Fault::new(FaultKind::ErrorEvent, "response.failed"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{counts, kind, read};
    use super::*;
    use crate::client::options::Dialect;

    const CREATED: &str = "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"r\",\"usage\":null,\"error\":null}}\n\n";
    const TEXT: &str = "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"hi\"}\n\n";
    const COMPLETED: &str = "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":14,\"output_tokens\":3,\"input_tokens_details\":{\"cached_tokens\":13}}}}\n\n";

    fn responses(stream: &str) -> (Reply, Result<(), Fault>) {
        read(Dialect::Responses, stream)
    }

    #[test]
    fn a_whole_stream_ends_with_response_completed_and_its_counts() {
        let (reply, verdict) = responses(&[CREATED, TEXT, TEXT, COMPLETED].concat());
        verdict.expect("whole");
        assert_eq!((reply.text.as_str(), reply.content_events), ("hihi", 2));
        assert_eq!(counts(&reply), (13, 1, 3));
        responses(&[TEXT, COMPLETED, "data: [DONE]\n\n"].concat()).1.expect("[DONE] does no harm");
    }

    #[test]
    fn a_stream_without_response_completed_has_no_end() {
        assert_eq!(kind(responses(&[CREATED, TEXT].concat()).1), FaultKind::NoTerminator);
    }

    #[test]
    fn response_failed_is_an_error_with_its_message() {
        let failed = "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"x\",\"message\":\"lost\"}}}\n\n";
        let fault = responses(&[TEXT, failed].concat()).1.expect_err("an error");
        assert_eq!(fault, Fault::new(FaultKind::ErrorEvent, "lost"));
        let bare = "data: {\"error\":{\"code\":500,\"message\":\"size\"}}\n\n";
        assert_eq!(kind(responses(&[TEXT, bare].concat()).1), FaultKind::ErrorEvent);
    }

    #[test]
    fn an_event_without_a_type_is_malformed() {
        let untyped = "data: {\"delta\":\"x\"}\n\n";
        assert_eq!(kind(responses(&[untyped, COMPLETED].concat()).1), FaultKind::BadEvent);
    }
}
