//! What a line says, and how it is spelled.
//!
//! Moments are milliseconds since the request's head was complete; a moment that was not reached is
//! left out. It copies nothing from a body or a header.

use std::fmt::Write as _;

use serde::Serialize;

use crate::answer;
use crate::clock::{Micros, rfc3339};
use crate::explain;
use crate::published::Upstream;
use crate::record::Record;

/// One request in a log.
#[derive(Debug, Serialize)]
pub struct Line {
    time: String,
    request_id: String,
    method: &'static str,
    path: String,
    api: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backend: Option<String>,
    status: u16,
    end: &'static str,
    attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conversation: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    placed_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connected_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sent_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_head_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_byte_ms: Option<f64>,
    end_ms: f64,
    waited_ms: u64,
    request_bytes: u64,
    reply_bytes: u64,
    streamed: bool,
    events: u64,
    prompt_tokens_estimated: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cached_tokens_predicted: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cached_tokens: Option<u64>,
    shard: u16,
}

impl Line {
    /// A record's line. `wall_ms` is when it ended.
    pub fn of(record: &Record, wall_ms: u64, upstreams: &[Upstream]) -> Line {
        let times = &record.times;
        let at = |moment: Micros| ms(moment.since(times.head));
        let usage = record.usage.as_ref();
        let decision = record.decision.as_deref();
        Line {
            time: rfc3339(wall_ms),
            request_id: answer::request_id(record.request_id),
            method: record.method,
            path: record.path.to_string(),
            api: record.api.name(),
            model: record.model.as_deref().map(str::to_owned),
            backend: record.backend.map(|id| explain::name_of(upstreams, id)),
            status: record.status,
            end: record.end.name(),
            attempts: record.attempts,
            reason: decision.map(|decision| decision.reason.name()),
            conversation: record.conversation.map(|key| explain::short_hash(key.0)),
            body_ms: times.body.map(at),
            placed_ms: times.placed.map(at),
            connected_ms: times.connected.map(at),
            sent_ms: times.sent.map(at),
            reply_head_ms: times.reply_head.map(at),
            first_byte_ms: times.first_byte.map(at),
            end_ms: at(times.end),
            waited_ms: record.waited_ms,
            request_bytes: record.request_bytes,
            reply_bytes: record.reply_bytes,
            streamed: record.streamed,
            events: record.events,
            prompt_tokens_estimated: record.prompt_tokens_estimate,
            prompt_tokens: usage.map(|usage| usage.prompt_tokens),
            output_tokens: usage.map(|usage| usage.output_tokens),
            cached_tokens_predicted: decision.map(|decision| decision.predicted_cached_tokens),
            cached_tokens: usage.and_then(|usage| usage.cached_tokens),
            shard: record.shard,
        }
    }

    /// Adds it as one JSON object.
    pub fn append_json(&self, out: &mut Vec<u8>) {
        // Writing to memory cannot fail, and neither can these types.
        let _ = serde_json::to_writer(&mut *out, self);
        out.push(b'\n');
    }

    /// Adds it as `key=value` pairs, in the same order.
    pub fn append_text(&self, out: &mut Vec<u8>) {
        let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(self) else { return };
        let mut text = String::new();
        for (key, value) in &fields {
            let bare = value.as_str().filter(|word| is_bare(word));
            // Anything else is spelled as in JSON: numbers as they are, other strings quoted and escaped.
            let spelled = bare.map_or_else(|| value.to_string(), str::to_owned);
            let gap = if text.is_empty() { "" } else { " " };
            // Writing to a string cannot fail.
            let _ = write!(text, "{gap}{key}={spelled}");
        }
        text.push('\n');
        out.extend_from_slice(text.as_bytes());
    }
}

fn is_bare(word: &str) -> bool {
    !word.is_empty()
        && word.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"=\\".contains(&byte))
}

// A request's age in microseconds is far below 2^52, so the quotient is exact enough for three digits.
#[allow(clippy::cast_precision_loss)]
fn ms(micros: u64) -> f64 {
    micros as f64 / 1000.0
}
