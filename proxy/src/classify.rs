//! What an answer says of its backend: whether it serves, is full, keeps somebody out, is broken, or was asked wrongly.
//!
//! An engine that is full is busy, not broken: it says so with 503, in a 200 whose first event is an error, or, llama.cpp,
//! in a 500 about its context. A caller's own mistakes, quotas and keys say nothing of a backend. What an engine says in
//! words is read out of its error's own members and believed of the engine that is known to say it; it is never searched
//! for in what a caller wrote.

use serde_json::Value;

use crate::answer::status::{
    BAD_REQUEST, FORBIDDEN, INTERNAL, NOT_IMPLEMENTED, OVERLOADED, TOO_MANY_REQUESTS, UNAUTHORIZED,
    UNAVAILABLE,
};
use crate::limits::ENGINE_ERROR_BYTES_MAX;
use crate::published::EngineKind;
use crate::upstream::Failed;

/// What an answer, or none, means for its backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReplyClass {
    /// It does its work.
    Served,
    /// The request is at fault; another backend would say the same.
    CallersFault,
    /// It has no room now: ask another, think no worse of it.
    Busy,
    /// It does not take this caller's key: another backend may have another list of keys.
    KeyRefused,
    /// This caller has used up its share there for a while.
    RateLimited,
    /// It failed.
    Broken,
    /// Nobody knows whether it did the work: it had the whole request and said nothing.
    UnknownOutcome,
}

impl ReplyClass {
    /// Whether the backend said that it did not begin: then anybody may be asked next, whatever was asked for.
    pub fn is_refusal(self) -> bool {
        matches!(self, ReplyClass::Busy | ReplyClass::KeyRefused | ReplyClass::RateLimited)
    }
}

/// Words in an engine's error message, and what they mean where a status alone would mislead.
const SAYINGS: [(EngineKind, &str, ReplyClass); 8] = [
    // Its shared pool ran out under work, and everybody in it fails at once, with 500.
    (EngineKind::Llamacpp, "Context size has been exceeded", ReplyClass::Busy),
    // Requests its templates and grammars cannot take, also with 500.
    (EngineKind::Llamacpp, "' is required", ReplyClass::CallersFault),
    (EngineKind::Llamacpp, "Jinja Exception", ReplyClass::CallersFault),
    (EngineKind::Llamacpp, "parse grammar", ReplyClass::CallersFault),
    (EngineKind::Sglang, "queue is full", ReplyClass::Busy),
    (EngineKind::Sglang, "by a higher priority request", ReplyClass::Busy),
    (EngineKind::Sglang, "waiting timeout reached", ReplyClass::Busy),
    (EngineKind::Vllm, "currently busy", ReplyClass::Busy),
];

/// An error's `type`, or its `code` in words, as engines and the two APIs spell them.
const NAMES: [(&str, ReplyClass); 22] = [
    ("overloaded_error", ReplyClass::Busy),
    ("unavailable_error", ReplyClass::Busy),
    ("SERVICE_UNAVAILABLE", ReplyClass::Busy),
    ("Service Unavailable", ReplyClass::Busy),
    ("server_is_overloaded", ReplyClass::Busy),
    ("overloaded", ReplyClass::Busy),
    ("rate_limit_error", ReplyClass::RateLimited),
    ("rate_limit_exceeded", ReplyClass::RateLimited),
    ("insufficient_quota", ReplyClass::RateLimited),
    ("authentication_error", ReplyClass::KeyRefused),
    ("permission_error", ReplyClass::KeyRefused),
    ("invalid_api_key", ReplyClass::KeyRefused),
    ("exceed_context_size_error", ReplyClass::CallersFault),
    ("context_length_exceeded", ReplyClass::CallersFault),
    ("invalid_request_error", ReplyClass::CallersFault),
    ("invalid_prompt", ReplyClass::CallersFault),
    ("not_supported_error", ReplyClass::CallersFault),
    ("not_found_error", ReplyClass::CallersFault),
    ("request_too_large", ReplyClass::CallersFault),
    ("BadRequestError", ReplyClass::CallersFault),
    ("Bad Request", ReplyClass::CallersFault),
    ("NotFoundError", ReplyClass::CallersFault),
];

/// Judges a reply by its status and, where that is ambiguous, by its body.
pub fn classify_reply(engine: EngineKind, status: u16, body: &[u8]) -> ReplyClass {
    match status {
        ..BAD_REQUEST => ReplyClass::Served,
        UNAUTHORIZED | FORBIDDEN => ReplyClass::KeyRefused,
        TOO_MANY_REQUESTS => ReplyClass::RateLimited,
        UNAVAILABLE | OVERLOADED => ReplyClass::Busy,
        NOT_IMPLEMENTED | BAD_REQUEST..INTERNAL => ReplyClass::CallersFault,
        INTERNAL => {
            let told = Told::of(body);
            // What a 500 is called says nothing but that it is busy: its name is the status in words.
            let named = told.by_name().filter(|class| *class == ReplyClass::Busy);
            told.by_message(engine).or(named).unwrap_or(ReplyClass::Broken)
        }
        _ => ReplyClass::Broken,
    }
}

/// Judges the error that an event carries: by what its message is known to mean, by the status it names, by its name.
pub fn classify_error(engine: EngineKind, data: &[u8]) -> ReplyClass {
    let told = Told::of(data);
    let status = told.status.filter(|status| *status >= BAD_REQUEST);
    let by_status = || status.map(|status| classify_reply(engine, status, data));
    told.by_message(engine)
        .or_else(by_status)
        .or_else(|| told.by_name())
        .unwrap_or(ReplyClass::Broken)
}

/// Judges an attempt that brought no reply. `None`: the backend has no part in it.
pub fn classify_failure(failed: Failed) -> Option<ReplyClass> {
    match failed {
        Failed::ClientGone | Failed::Exhausted => None,
        Failed::Connect | Failed::Unsent | Failed::BadReply => Some(ReplyClass::Broken),
        Failed::NoReply | Failed::Silent | Failed::Wedged | Failed::GaveWay => {
            Some(ReplyClass::UnknownOutcome)
        }
    }
}

/// An engine's error, read out of whichever shape it comes in: `{"error":{…}}`, `{"object":"error",…}`, Anthropic's
/// envelope, a failed response, or the bare members.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// The status it names.
    pub status: Option<u16>,
    /// Its `type`, then its `code` where that is a word.
    names: [String; 2],
    /// What it says to the caller.
    pub message: String,
}

impl Told {
    /// Reads an error's JSON; what is no such thing tells nothing.
    pub fn of(json: &[u8]) -> Told {
        if json.len() > ENGINE_ERROR_BYTES_MAX {
            return Told::default();
        }
        let Ok(value) = serde_json::from_slice::<Value>(json) else { return Told::default() };
        let inner = value.pointer("/response/error").or_else(|| value.get("error"));
        let inner = inner.filter(|inner| !inner.is_null()).unwrap_or(&value);
        let text =
            |key: &str| inner.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let message = inner.as_str().map_or_else(|| text("message"), str::to_owned);
        // vLLM and llama.cpp name the status as a number, SGLang as a number or a text, and as a type.
        let number = |key: &str| {
            let value = inner.get(key)?;
            let text = value.as_str().and_then(|text| text.parse().ok());
            value.as_u64().and_then(|number| u16::try_from(number).ok()).or(text)
        };
        let status = number("code").or_else(|| number("type"));
        Told { status, names: [text("type"), text("code")], message }
    }

    fn by_message(&self, engine: EngineKind) -> Option<ReplyClass> {
        // Behind an engine nobody knows, or another proxy, any of them may stand.
        let any = matches!(engine, EngineKind::Unknown | EngineKind::Openai);
        let said = SAYINGS
            .iter()
            .find(|(whose, words, _)| (any || *whose == engine) && self.message.contains(words));
        said.map(|(_, _, class)| *class)
    }

    fn by_name(&self) -> Option<ReplyClass> {
        let known = |name: &String| NAMES.iter().find(|(known, _)| name == known);
        self.names.iter().find_map(known).map(|(_, class)| *class)
    }
}

#[cfg(test)]
mod tests;
