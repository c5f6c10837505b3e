//! What an engine means when it refuses or fails: whether it is full, whether the caller is at fault, or whether it is
//! broken. The breaker, failover and learning all follow from this one reading. A full engine is busy, never broken.

use crate::limits::ERROR_BODY_BYTES_MAX;
use crate::prompt::json::{Kind, Tape, Text, Value};
use std::borrow::Cow;

/// Why an engine did not serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// It takes no more at the moment (queue full, loading, rate limit): another backend may.
    Busy,
    /// Its KV pool ran out during the work. Busy too, and its budget was set too high.
    PoolExhausted,
    /// The prompt exceeds what this backend can ever hold: the caller's size, unless a larger backend exists.
    PromptTooLong,
    /// The request is wrong; any backend would say so.
    CallerFault,
    /// It failed.
    Broken,
}

impl Fault {
    /// Whether the engine merely had no room.
    pub fn is_busy(self) -> bool {
        matches!(self, Fault::Busy | Fault::PoolExhausted)
    }

    /// Whether the breaker counts it as a failure.
    pub fn counts_as_failure(self) -> bool {
        self == Fault::Broken
    }
}

/// What the status and the body of a reply amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReplyClass {
    /// The status is below 400; a stream may still say otherwise.
    Success,
    /// The request was not served.
    Fault(Fault),
}

/// Classifies a reply that is no stream. `body` may be cut off.
pub fn classify_reply(status: u16, body: &[u8]) -> ReplyClass {
    let body = body.get(..ERROR_BODY_BYTES_MAX).unwrap_or(body);
    let fault = match status {
        ..400 => return ReplyClass::Success,
        429 | 503 | 529 => match classify_error(body) {
            Fault::PoolExhausted => Fault::PoolExhausted,
            _ => Fault::Busy,
        },
        400..=499 => match classify_error(body) {
            Fault::PromptTooLong => Fault::PromptTooLong,
            _ => Fault::CallerFault,
        },
        501 => Fault::CallerFault,
        _ => classify_error(body),
    };
    ReplyClass::Fault(fault)
}

/// Classifies an error payload: the data of an error event, or the body of an error reply.
pub fn classify_error(data: &[u8]) -> Fault {
    with_details(data, |details| match details {
        Some(details) => details.fault(),
        // Cut off, or no JSON at all: what it says can still be known.
        None => Details { message: String::from_utf8_lossy(data), ..Details::default() }.fault(),
    })
}

/// Gives the details of an error payload to `look`, `None` if it is not JSON.
pub(super) fn with_details<R>(data: &[u8], look: impl FnOnce(Option<&Details<'_>>) -> R) -> R {
    let mut tape = Tape::default();
    if tape.parse(data).is_err() {
        return look(None);
    }
    look(Some(&Details::of(Value::root(data, tape.tokens()))))
}

/// What an engine says about an error, in whichever envelope.
#[derive(Debug, Default)]
pub(super) struct Details<'a> {
    pub(super) message: Cow<'a, str>,
    kind: Cow<'a, str>,
    code: Cow<'a, str>,
    param: Cow<'a, str>,
    number: Option<u64>,
    /// The payload's own `type`, which names the event in some dialects.
    pub(super) outer_kind: Cow<'a, str>,
    /// The details stood in an `error` of their own.
    pub(super) enveloped: bool,
}

const BUSY_KINDS: [&str; 9] = [
    "overloaded_error",
    "unavailable_error",
    "rate_limit_error",
    "rate_limit_exceeded",
    "server_is_overloaded",
    "slow_down",
    "service_unavailable",
    "service unavailable",
    "engine_overloaded",
];

const BUSY_MESSAGES: [&str; 5] = [
    "request queue is full",
    "aborted by a higher priority request",
    "Request waiting timeout reached",
    "currently busy and cannot accept",
    "no slot available",
];

const TOO_LONG_MESSAGES: [&str; 4] = [
    "maximum context length",
    "model's context length",
    "exceeds the available context size",
    "longer than the maximum model length",
];

const CALLER_KINDS: [&str; 8] = [
    "invalid_request_error",
    "badrequesterror",
    "bad request",
    "not_found_error",
    "notfounderror",
    "permission_error",
    "authentication_error",
    "not_supported_error",
];

// Templates and grammars come with the request or choke on its shape; engines report that as a fault of their own.
const CALLER_MESSAGES: [&str; 4] = ["chat template", "Jinja", "jinja", "grammar"];

impl<'a> Details<'a> {
    fn of(root: Value<'_, 'a>) -> Details<'a> {
        let [error, response, detail, kind] = root.pick(["error", "response", "detail", "type"]);
        let inner = error.or_else(|| response?.get("error")).filter(|error| !error.is_null());
        let mut details = match inner {
            Some(error) if error.kind() == Kind::Text => {
                Details { message: lossy(error.text()), ..Details::default() }
            }
            Some(error) => Details::of_object(error),
            None => Details::of_object(root),
        };
        if details.message.is_empty() {
            details.message = lossy(detail.and_then(|detail| detail.text()));
        }
        details.outer_kind = lossy(kind.and_then(|kind| kind.text()));
        details.enveloped = inner.is_some();
        details
    }

    fn of_object(error: Value<'_, 'a>) -> Details<'a> {
        let [message, kind, code, param] = error.pick(["message", "type", "code", "param"]);
        let text = |value: Option<Value<'_, 'a>>| lossy(value.and_then(|value| value.text()));
        let (kind, code_text) = (text(kind), text(code));
        let number = code.and_then(|code| code.as_u64());
        let number = number.or_else(|| code_text.parse().ok()).or_else(|| kind.parse().ok());
        Details {
            message: text(message),
            kind,
            code: code_text,
            param: text(param),
            number,
            ..Details::default()
        }
    }

    /// Whether the error names its kind.
    pub(super) fn has_kind(&self) -> bool {
        !self.kind.is_empty()
    }

    pub(super) fn fault(&self) -> Fault {
        let number = self.number.unwrap_or(0);
        if self.says(&["Context size has been exceeded"]) {
            Fault::PoolExhausted
        } else if self.is_too_long() && number < 500 {
            Fault::PromptTooLong
        } else if matches!(number, 429 | 503 | 529)
            || self.is_kind(&BUSY_KINDS)
            || self.says(&BUSY_MESSAGES)
        {
            Fault::Busy
        } else if (400..500).contains(&number)
            || self.is_kind(&CALLER_KINDS)
            || self.says(&CALLER_MESSAGES)
        {
            Fault::CallerFault
        } else {
            Fault::Broken
        }
    }

    fn is_too_long(&self) -> bool {
        self.is_kind(&["exceed_context_size_error", "context_length_exceeded"])
            || self.param == "input_tokens"
            || self.says(&TOO_LONG_MESSAGES)
    }

    fn is_kind(&self, kinds: &[&str]) -> bool {
        let named = |name: &str| kinds.iter().any(|kind| kind.eq_ignore_ascii_case(name));
        named(&self.kind) || named(&self.code)
    }

    fn says(&self, parts: &[&str]) -> bool {
        parts.iter().any(|part| self.message.contains(part))
    }
}

fn lossy<'a>(text: Option<Text<'a>>) -> Cow<'a, str> {
    match text.map(|text| text.decode()) {
        Some(Cow::Borrowed(bytes)) => String::from_utf8_lossy(bytes),
        Some(Cow::Owned(bytes)) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        None => Cow::Borrowed(""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VLLM_BUSY: &str = r#"{"error":{"message":"The engine is currently busy and cannot accept new requests. Please try again later or on a different instance.","type":"Service Unavailable","param":null,"code":503}}"#;
    const SGLANG_BUSY: &str = r#"{"object":"error","message":"The request queue is full.","type":"503","param":null,"code":503}"#;
    const SGLANG_STREAM: &str = r#"{"error": {"object": "error", "message": "The request queue is full.", "type": "SERVICE_UNAVAILABLE", "param": null, "code": 503}}"#;
    const LLAMA_SLOT: &str =
        r#"{"error":{"code":503,"message":"no slot available","type":"unavailable_error"}}"#;
    const LLAMA_POOL: &str = r#"{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}"#;
    const LLAMA_LONG: &str = r#"{"error":{"code":400,"message":"request (2511 tokens) exceeds the available context size (2048 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":2511,"n_ctx":2048}}"#;
    const VLLM_LONG: &str = r#"{"error":{"message":"This model's maximum context length is 2048 tokens. However, …","type":"BadRequestError","param":"input_tokens","code":400}}"#;
    const SGLANG_LONG: &str = r#"{"object":"error","message":"The input (2511 tokens) is longer than the model's context length (2048 tokens).","type":"BadRequestError","param":null,"code":400}"#;
    const LLAMA_JSON: &str = r#"{"error":{"code":400,"message":"[json.exception.parse_error.101] …","type":"invalid_request_error"}}"#;

    #[test]
    fn error_payloads_of_every_engine_are_understood() {
        for (data, fault) in [
            (VLLM_BUSY, Fault::Busy),
            (SGLANG_BUSY, Fault::Busy),
            (SGLANG_STREAM, Fault::Busy),
            (LLAMA_SLOT, Fault::Busy),
            (LLAMA_POOL, Fault::PoolExhausted),
            (
                r#"{"code":500,"message":"Context size has been exceeded.","type":"server_error"}"#,
                Fault::PoolExhausted,
            ),
            (LLAMA_LONG, Fault::PromptTooLong),
            (VLLM_LONG, Fault::PromptTooLong),
            (SGLANG_LONG, Fault::PromptTooLong),
            (LLAMA_JSON, Fault::CallerFault),
            (r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#, Fault::Busy),
            (r#"{"type":"error","error":{"type":"internal_error","message":"m"}}"#, Fault::Broken),
            (
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"m"}}"#,
                Fault::CallerFault,
            ),
            (
                r#"{"type":"response.failed","response":{"error":{"code":"server_is_overloaded","message":"m"}}}"#,
                Fault::Busy,
            ),
            (r#"{"type":"error","code":"rate_limit_exceeded","message":"m"}"#, Fault::Busy),
            (
                r#"{"error":{"message":"aborted by a higher priority request","code":500}}"#,
                Fault::Busy,
            ),
            (r#"{"error":{"message":"Request waiting timeout reached.","type":"x"}}"#, Fault::Busy),
            (r#"{"error":"something"}"#, Fault::Broken),
            (r#"{"detail":"Not Found"}"#, Fault::Broken),
            (
                r#"{"error":{"message":"CUDA error","type":"InternalServerError","code":500}}"#,
                Fault::Broken,
            ),
            (
                r#"{"error":{"code":500,"message":"Failed to parse grammar","type":"server_error"}}"#,
                Fault::CallerFault,
            ),
            ("", Fault::Broken),
            ("oops", Fault::Broken),
            ("[]", Fault::Broken),
            ("null", Fault::Broken),
        ] {
            assert_eq!(classify_error(data.as_bytes()), fault, "{data}");
        }
    }

    #[test]
    fn replies_are_classified_by_status_and_body() {
        use Fault::*;
        for (status, body, fault) in [
            (503, VLLM_BUSY, Busy),
            (503, SGLANG_BUSY, Busy),
            (503, LLAMA_SLOT, Busy),
            (
                503,
                r#"{"error":{"message":"Loading model","type":"unavailable_error","code":503}}"#,
                Busy,
            ),
            (503, "", Busy),
            (429, "slow", Busy),
            (529, "", Busy),
            (500, LLAMA_POOL, PoolExhausted),
            (503, LLAMA_POOL, PoolExhausted),
            (400, LLAMA_LONG, PromptTooLong),
            (400, VLLM_LONG, PromptTooLong),
            (400, SGLANG_LONG, PromptTooLong),
            (400, LLAMA_JSON, CallerFault),
            (
                404,
                r#"{"error":{"message":"The model `x` does not exist.","type":"NotFoundError","code":404}}"#,
                CallerFault,
            ),
            (401, "", CallerFault),
            (422, r#"{"detail":[{"loc":["body"]}]}"#, CallerFault),
            (501, "", CallerFault),
            (500, "", Broken),
            (500, r#"{"error":{"message":"boom","type":"server_error","code":500}}"#, Broken),
            (500, r#"{"error":{"message":"busy","code":503}}"#, Busy),
            (502, "<html>", Broken),
            (504, "", Broken),
        ] {
            let class = classify_reply(status, body.as_bytes());
            assert_eq!(class, ReplyClass::Fault(fault), "{status} {body}");
        }
        for status in [200, 204, 304] {
            assert_eq!(classify_reply(status, LLAMA_POOL.as_bytes()), ReplyClass::Success);
        }
    }

    #[test]
    fn a_full_engine_is_never_a_failure() {
        for fault in [Fault::Busy, Fault::PoolExhausted] {
            assert!(fault.is_busy() && !fault.counts_as_failure());
        }
        assert!(Fault::Broken.counts_as_failure() && !Fault::Broken.is_busy());
        for fault in [Fault::PromptTooLong, Fault::CallerFault] {
            assert!(!fault.counts_as_failure() && !fault.is_busy());
        }
    }

    #[test]
    fn a_huge_error_body_is_read_to_its_bound() {
        let body = format!("{}{}", LLAMA_POOL, " ".repeat(1 << 20));
        assert_eq!(classify_reply(500, body.as_bytes()), ReplyClass::Fault(Fault::PoolExhausted));
        let cut = &LLAMA_POOL[..LLAMA_POOL.len() - 10];
        assert_eq!(classify_reply(500, cut.as_bytes()), ReplyClass::Fault(Fault::PoolExhausted));
    }
}
