//! What a reply says of its backend: whether it serves, is full, is broken, or was asked wrongly.
//!
//! An engine that is full is busy, not broken: it says so with 503 or 429, in a 200 whose first event is an
//! error, or, llama.cpp, in a 500 about its context. The caller's own mistakes say nothing of a backend.

/// What a reply means for its backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReplyClass {
    /// It does its work.
    Served,
    /// It has no room now: ask another, think no worse of it.
    Busy,
    /// It failed.
    Broken,
    /// The request is at fault; another backend would say the same.
    CallersFault,
}

/// Texts by which an engine says that it is full.
const BUSY_WORDS: [&[u8]; 8] = [
    b"Context size has been exceeded",
    b"queue is full",
    b"currently busy",
    b"overloaded_error",
    b"unavailable_error",
    b"SERVICE_UNAVAILABLE",
    b"Service Unavailable",
    b"waiting timeout reached",
];

/// Judges a reply by its status and, where that is ambiguous, by its body or the end of it.
pub fn classify_reply(status: u16, body: &[u8]) -> ReplyClass {
    match status {
        ..400 => ReplyClass::Served,
        TOO_MANY_REQUESTS | UNAVAILABLE | OVERLOADED => ReplyClass::Busy,
        INTERNAL if says_busy(body) => ReplyClass::Busy,
        NOT_IMPLEMENTED | 400..500 => ReplyClass::CallersFault,
        _ => ReplyClass::Broken,
    }
}

/// Judges the error that an event carries.
pub fn classify_error(data: &[u8]) -> ReplyClass {
    if says_busy(data) {
        return ReplyClass::Busy;
    }
    match code_in(data) {
        Some(code) => classify_reply(code.max(400), data),
        None => ReplyClass::Broken,
    }
}

use crate::answer::status::{
    INTERNAL, NOT_IMPLEMENTED, OVERLOADED, TOO_MANY_REQUESTS, UNAVAILABLE,
};

fn says_busy(body: &[u8]) -> bool {
    BUSY_WORDS.iter().any(|words| memchr::memmem::find(body, words).is_some())
}

/// The number behind `"code":`, which vLLM, SGLang and llama.cpp write as a number and some as a string.
fn code_in(data: &[u8]) -> Option<u16> {
    let at = memchr::memmem::find(data, b"\"code\"")?;
    let value = data.get(at + 6..)?.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
    let value = value.strip_prefix(b"\"").unwrap_or(value);
    let digits = value.iter().take(3).take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(value.get(..digits)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_engines_way_of_being_full_is_busy() {
        let vllm = br#"{"error":{"message":"The engine is currently busy","type":"Service Unavailable","param":null,"code":503}}"#;
        let llama = br#"{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}"#;
        assert_eq!(classify_reply(503, vllm), ReplyClass::Busy);
        assert_eq!(classify_reply(429, b""), ReplyClass::Busy);
        assert_eq!(classify_reply(500, llama), ReplyClass::Busy);
        assert_eq!(classify_error(llama), ReplyClass::Busy);
        assert_eq!(classify_error(br#"{"error":{"code":"503"}}"#), ReplyClass::Busy);
    }

    #[test]
    fn the_callers_mistakes_say_nothing_of_a_backend() {
        let too_long = br#"{"error":{"code":400,"message":"request exceeds the available context size","type":"exceed_context_size_error"}}"#;
        assert_eq!(classify_reply(400, too_long), ReplyClass::CallersFault);
        assert_eq!(classify_error(too_long), ReplyClass::CallersFault);
        assert_eq!(classify_reply(404, b""), ReplyClass::CallersFault);
    }

    #[test]
    fn what_is_left_is_broken() {
        assert_eq!(classify_reply(500, b"oops"), ReplyClass::Broken);
        assert_eq!(classify_reply(502, b""), ReplyClass::Broken);
        assert_eq!(classify_error(br#"{"error":{"message":"x"}}"#), ReplyClass::Broken);
    }
}
