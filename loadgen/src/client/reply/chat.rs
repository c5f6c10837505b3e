//! Events of `/v1/chat/completions` and `/v1/completions`.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::parse::{self, ChatUsage, Text, Timings, Unread};
use super::{Meaning, Reply};
use crate::client::fault::{Fault, FaultKind};
use crate::client::sse::Event;

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default, deserialize_with = "parse::first")]
    choices: Option<Choice<'a>>,
    #[serde(default)]
    usage: Option<ChatUsage>,
    #[serde(default)]
    timings: Option<Timings>,
    #[serde(default)]
    error: Option<Value>,
    /// `"error"` in SGLang's envelope-free errors.
    #[serde(borrow, default)]
    object: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow, default)]
    delta: Option<Delta<'a>>,
    /// The whole piece, in `/v1/completions`.
    #[serde(borrow, default)]
    text: Option<Text<'a>>,
    #[serde(borrow, default)]
    finish_reason: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, default)]
    content: Option<Text<'a>>,
    #[serde(borrow, default)]
    reasoning_content: Option<Text<'a>>,
    #[serde(borrow, default)]
    reasoning: Option<Text<'a>>,
    #[serde(default)]
    tool_calls: Option<IgnoredAny>,
}

pub(super) fn meaning<'a>(reply: &mut Reply, event: Event<'a>) -> Meaning<'a> {
    if event.data == b"[DONE]" {
        return Meaning::End;
    }
    let chunk: Chunk<'a> = match parse::event(event.data) {
        Ok(chunk) => chunk,
        Err(Unread::Unknown) => return Meaning::Other,
        Err(Unread::Malformed(fault)) => return Meaning::Fault(fault),
    };
    if let Some(error) = &chunk.error {
        return Meaning::Fault(parse::error_event(error));
    }
    if chunk.object.is_some_and(|object| object.0 == "error") {
        return Meaning::Fault(Fault::new(FaultKind::ErrorEvent, "an error object"));
    }
    take_counts(reply, chunk.usage, chunk.timings);
    chunk.choices.map_or(Meaning::Other, |choice| choice_meaning(reply, choice))
}

/// Running counts come with each event on some engines; the last ones are the sum.
fn take_counts(reply: &mut Reply, usage: Option<ChatUsage>, timings: Option<Timings>) {
    let usage = usage.filter(|usage| usage.reports_cached() || timings.is_none());
    let reported = usage.and_then(ChatUsage::counts).or(timings.map(Timings::counts));
    reply.tokens = reported.or(reply.tokens);
}

fn choice_meaning<'a>(reply: &mut Reply, choice: Choice<'a>) -> Meaning<'a> {
    if let Some(reason) = &choice.finish_reason {
        reply.finished = true;
        if reason.0 == "abort" {
            let fault = Fault::new(FaultKind::Aborted, "finish_reason is abort");
            return Meaning::Fault(fault);
        }
    }
    let piece = |text: Option<Text<'a>>| text.filter(|text| !text.is_empty()).map(|text| text.0);
    let Some(delta) = choice.delta else {
        return piece(choice.text).map_or(Meaning::Other, |text| Meaning::Content(Some(text)));
    };
    if let Some(text) = piece(delta.content) {
        return Meaning::Content(Some(text));
    }
    let reasoning: Option<Cow<'_, str>> =
        piece(delta.reasoning_content).or_else(|| piece(delta.reasoning));
    let shown = reasoning.is_some() || delta.tool_calls.is_some();
    if shown { Meaning::Content(None) } else { Meaning::Other }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{counts, kind, read};
    use super::*;
    use crate::client::options::Dialect;

    const TEXT: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\\n\"},\"finish_reason\":null}]}\n\n";
    const STOP: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    const DONE: &str = "data: [DONE]\n\n";

    fn chat(stream: &str) -> (Reply, Result<(), Fault>) {
        read(Dialect::Openai, stream)
    }

    #[test]
    fn a_whole_stream_gives_its_text_and_its_counts() {
        let role =
            "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
        let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":42,\"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":41}}}\n\n";
        let (reply, verdict) = chat(&[role, TEXT, TEXT, STOP, usage, DONE].concat());
        verdict.expect("whole");
        assert_eq!((reply.text.as_str(), reply.content_events), ("a\na\n", 2));
        assert_eq!(counts(&reply), (41, 1, 2));
    }

    #[test]
    fn llama_cpps_timings_count_when_usage_was_not_asked_for() {
        let timings = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}],\"timings\":{\"cache_n\":41,\"prompt_n\":1,\"predicted_n\":3}}\n\n";
        let (reply, verdict) = chat(&[TEXT, timings, DONE].concat());
        verdict.expect("whole");
        assert_eq!(counts(&reply), (41, 1, 3));
    }

    #[test]
    fn an_engine_silent_about_its_cache_is_taken_to_have_computed_all() {
        let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":42,\"completion_tokens\":2,\"prompt_tokens_details\":null}}\n\n";
        let (reply, _) = chat(&[TEXT, usage, DONE].concat());
        assert_eq!(counts(&reply), (0, 42, 2));
        assert_eq!(reply.tokens.expect("counts").replies_reporting, 0);
    }

    #[test]
    fn a_stream_without_done_has_no_end() {
        assert_eq!(kind(chat(&[TEXT, STOP].concat()).1), FaultKind::NoTerminator);
        assert_eq!(kind(chat("").1), FaultKind::NoTerminator);
        assert_eq!(kind(chat(&[TEXT, DONE, "data: x"].concat()).1), FaultKind::BadEvent);
    }

    #[test]
    fn an_error_event_is_an_error_even_before_done() {
        let error = "data: {\"error\":{\"message\":\"engine is busy\",\"code\":503}}\n\n";
        let fault = chat(&[error, DONE].concat()).1.expect_err("an error");
        assert_eq!(fault, Fault::new(FaultKind::ErrorEvent, "engine is busy"));
        let bare = "data: {\"object\":\"error\",\"message\":\"full\"}\n\n";
        assert_eq!(kind(chat(&[bare, DONE].concat()).1), FaultKind::ErrorEvent);
    }

    #[test]
    fn an_aborted_generation_is_no_success() {
        let abort = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"abort\"}]}\n\n";
        assert_eq!(kind(chat(&[TEXT, abort, DONE].concat()).1), FaultKind::Aborted);
    }

    #[test]
    fn data_must_be_json() {
        let broken = "data: {\"choices\":[{\"delta\":{\"con\n\n";
        assert_eq!(kind(chat(&[TEXT, broken, DONE].concat()).1), FaultKind::BadEvent);
        let latin1 = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]} trailing\n\n";
        assert_eq!(kind(chat(&[latin1, DONE].concat()).1), FaultKind::BadEvent);
    }

    #[test]
    fn events_of_unknown_shape_are_passed_over() {
        let unknown = "data: {\"choices\":{\"odd\":1}}\n\ndata: [1,2]\n\n";
        let (reply, verdict) = chat(&[unknown, TEXT, DONE].concat());
        verdict.expect("whole");
        assert_eq!(reply.content_events, 1);
    }

    #[test]
    fn nothing_may_follow_the_end_marker() {
        assert_eq!(kind(chat(&[TEXT, DONE, TEXT].concat()).1), FaultKind::BadEvent);
    }

    #[test]
    fn reasoning_and_tool_calls_are_content_but_not_text() {
        let reasoning = "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"hm\"}}]}\n\n";
        let call = "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0}]}}]}\n\n";
        let (reply, verdict) = chat(&[reasoning, call, DONE].concat());
        verdict.expect("whole");
        assert_eq!((reply.text.as_str(), reply.content_events), ("", 2));
    }

    #[test]
    fn completions_may_end_with_the_reason_alone() {
        let piece = "data: {\"choices\":[{\"text\":\"b\",\"finish_reason\":null}]}\n\n";
        let last = "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}]}\n\n";
        let (reply, verdict) = read(Dialect::Completions, &[piece, last].concat());
        verdict.expect("llama.cpp sends no [DONE] here");
        assert_eq!(reply.text, "b");
        assert_eq!(kind(read(Dialect::Completions, piece).1), FaultKind::NoTerminator);
    }
}
