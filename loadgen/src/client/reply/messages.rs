//! Events of `/v1/messages`.

use serde::Deserialize;
use serde_json::Value;

use super::parse::{self, MessagesUsage, Text, Unread};
use super::{Meaning, Reply};
use crate::client::fault::{Fault, FaultKind};
use crate::client::sse::Event;

#[derive(Deserialize)]
struct MessageEvent<'a> {
    #[serde(borrow, default)]
    r#type: Option<Text<'a>>,
    #[serde(default)]
    message: Option<MessageStart>,
    #[serde(borrow, default)]
    delta: Option<Delta<'a>>,
    #[serde(default)]
    usage: Option<MessagesUsage>,
}

#[derive(Deserialize)]
struct MessageStart {
    #[serde(default)]
    usage: Option<MessagesUsage>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, default)]
    text: Option<Text<'a>>,
    #[serde(borrow, default)]
    thinking: Option<Text<'a>>,
    #[serde(borrow, default)]
    partial_json: Option<Text<'a>>,
    #[serde(borrow, default)]
    stop_reason: Option<Text<'a>>,
}

pub(super) fn meaning<'a>(reply: &mut Reply, event: Event<'a>) -> Meaning<'a> {
    if event.data == b"[DONE]" {
        return Meaning::Other;
    }
    if event.name == b"error" {
        return Meaning::Fault(error(event.data));
    }
    let read: MessageEvent<'a> = match parse::event(event.data) {
        Ok(read) => read,
        Err(Unread::Unknown) => return Meaning::Other,
        Err(Unread::Malformed(fault)) => return Meaning::Fault(fault),
    };
    // The vendor's SDKs go by the event line alone and drop events without one.
    let name = read.r#type.as_ref().map(|name| name.0.as_bytes());
    if name != Some(event.name) {
        let fault = Fault::new(FaultKind::BadEvent, "the event line does not name the type");
        return Meaning::Fault(fault);
    }
    for usage in [read.message.and_then(|start| start.usage), read.usage].into_iter().flatten() {
        let sum = reply.messages_usage.unwrap_or_default().updated(usage);
        reply.messages_usage = Some(sum);
        reply.tokens = sum.counts().or(reply.tokens);
    }
    match event.name {
        b"message_stop" => Meaning::End,
        b"content_block_delta" => read.delta.map_or(Meaning::Other, delta_meaning),
        b"message_delta" => {
            reply.finished |= read.delta.is_some_and(|delta| delta.stop_reason.is_some());
            Meaning::Other
        }
        _ => Meaning::Other,
    }
}

fn delta_meaning(delta: Delta<'_>) -> Meaning<'_> {
    if let Some(text) = delta.text.filter(|text| !text.is_empty()) {
        return Meaning::Content(Some(text.0));
    }
    let shown = |text: &Option<Text<'_>>| text.as_ref().is_some_and(|text| !text.is_empty());
    if shown(&delta.thinking) || shown(&delta.partial_json) {
        return Meaning::Content(None);
    }
    Meaning::Other
}

fn error(data: &[u8]) -> Fault {
    match serde_json::from_slice::<Value>(data) {
        Ok(error) => parse::error_event(&error),
        Err(error) => Fault::new(FaultKind::BadEvent, format!("an error that is no JSON: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{counts, kind, read};
    use super::*;
    use crate::client::options::Dialect;

    const START: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"content\":[],\"usage\":{\"cache_read_input_tokens\":13,\"input_tokens\":1,\"output_tokens\":0}}}\n\n";
    const TEXT: &str = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\" item\"}}\n\n";
    const DELTA: &str = "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"max_tokens\"},\"usage\":{\"output_tokens\":2}}\n\n";
    const STOP: &str = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    const PING: &str = "event: ping\ndata: {\"type\":\"ping\"}\n\n";

    fn messages(stream: &str) -> (Reply, Result<(), Fault>) {
        read(Dialect::Anthropic, stream)
    }

    #[test]
    fn counts_come_from_two_events_and_exclude_the_cached_tokens() {
        let (reply, verdict) = messages(&[START, PING, TEXT, TEXT, DELTA, STOP].concat());
        verdict.expect("whole");
        assert_eq!((reply.text.as_str(), reply.content_events), (" item item", 2));
        assert_eq!(counts(&reply), (13, 1, 2));
    }

    #[test]
    fn a_stream_without_message_stop_has_no_end() {
        assert_eq!(kind(messages(&[START, TEXT, DELTA].concat()).1), FaultKind::NoTerminator);
    }

    #[test]
    fn an_error_event_counts_with_and_without_its_envelope() {
        let full = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"full\"}}\n\n";
        let fault = messages(&[START, full, STOP].concat()).1.expect_err("an error");
        assert_eq!(fault, Fault::new(FaultKind::ErrorEvent, "full"));
        let bare =
            "event: error\ndata: {\"code\":500,\"message\":\"size\",\"type\":\"server_error\"}\n\n";
        let fault = messages(&[START, bare].concat()).1.expect_err("an error");
        assert_eq!(fault, Fault::new(FaultKind::ErrorEvent, "size"));
    }

    #[test]
    fn an_event_without_its_name_is_malformed() {
        let nameless = TEXT.strip_prefix("event: content_block_delta\n").expect("has a name");
        assert_eq!(kind(messages(&[START, nameless, STOP].concat()).1), FaultKind::BadEvent);
    }
}
