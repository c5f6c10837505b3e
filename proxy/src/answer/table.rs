//! The table: what each situation comes to in each dialect, and why.
//!
//! The choices follow how clients were seen to react. Busy is never 429: it stops Codex and reads as the
//! caller's own fault. An unknown model is a 400 where a 404's text would be thrown away. `Retry-After`
//! stays below a minute, because one client gives up above it.

use super::status::{
    BAD_GATEWAY, BAD_REQUEST, CONTENT_TOO_LARGE, EXPECTATION_FAILED, GATEWAY_TIMEOUT,
    HEAD_TOO_LARGE, METHOD_NOT_ALLOWED, NOT_FOUND, NOT_IMPLEMENTED, OVERLOADED, UNAVAILABLE,
    UNSUPPORTED_ENCODING, URI_TOO_LONG, VERSION_NOT_SUPPORTED,
};
use crate::api::Dialect;

/// Why the proxy answers by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Situation {
    /// Every backend that could take it is full, and it waited for as long as it may.
    NoRoom,
    /// Bodies and replies take all the memory they may.
    NoMemory,
    /// No backend of the model is up.
    NoHealthyBackend,
    /// The process stops, and the request has no reply yet.
    Draining,
    /// No backend serves this model.
    UnknownModel,
    /// The prompt is larger than any backend can hold, and would wait in vain.
    PromptTooLarge,
    /// The body is larger than allowed.
    BodyTooLarge,
    /// The body is not the JSON it should be.
    BadJson,
    /// The request is not HTTP as it should be.
    BadRequest,
    /// The body's encoding cannot be undone, or is a bomb.
    BadEncoding,
    /// There is no such path, and other paths are not passed through.
    UnknownPath,
    /// Not with this method.
    MethodNotAllowed,
    /// The head is too large.
    HeadTooLarge,
    /// The target is too long.
    UriTooLong,
    /// An expectation besides `100-continue`.
    ExpectationFailed,
    /// A transfer coding besides `chunked`.
    UnknownCoding,
    /// A version of HTTP besides 1.0 and 1.1.
    UnsupportedVersion,
    /// Backends failed, and nothing is left to try.
    UpstreamFailed,
    /// No byte of a reply came in time.
    FirstByteTimeout,
    /// A request that must not be sent twice was sent, and nobody knows whether it was carried out.
    OutcomeUnknown,
    /// An engine finds the request at fault, and says so where a status was no longer possible.
    EngineRefused,
}

/// What a situation comes to.
#[derive(Debug)]
pub struct Row {
    /// For OpenAI's chat and completions, and for engines' own APIs.
    pub chat: u16,
    /// For OpenAI's Responses.
    pub responses: u16,
    /// For Anthropic's messages.
    pub messages: u16,
    /// OpenAI's `type`.
    pub openai_type: &'static str,
    /// Anthropic's `type`.
    pub anthropic_type: &'static str,
    /// OpenAI's `code`; never one that makes a client give up on what may mend.
    pub code: &'static str,
    /// What happened and what to do.
    pub message: &'static str,
    /// Seconds to wait, where waiting helps; 1 to 59.
    pub retry_after_s: Option<u32>,
    /// Whether repeating may mend it.
    pub may_mend: bool,
}

impl Row {
    /// The status in a dialect.
    pub fn status(&self, dialect: Dialect) -> u16 {
        match dialect {
            Dialect::Chat | Dialect::Plain => self.chat,
            Dialect::Responses => self.responses,
            Dialect::Messages => self.messages,
        }
    }
}

const INVALID: &str = "invalid_request_error";
const SERVER: &str = "server_error";
const API: &str = "api_error";

/// The caller's mistake: the same status everywhere, and no use in repeating it.
const fn mistake(status: u16, code: &'static str, message: &'static str) -> Row {
    Row {
        chat: status,
        responses: status,
        messages: status,
        openai_type: INVALID,
        anthropic_type: INVALID,
        code,
        message,
        retry_after_s: None,
        may_mend: false,
    }
}

/// A full or missing fleet: worth waiting for.
const fn busy(code: &'static str, message: &'static str, retry_after_s: u32) -> Row {
    Row {
        chat: UNAVAILABLE,
        responses: UNAVAILABLE,
        messages: OVERLOADED,
        openai_type: SERVER,
        anthropic_type: "overloaded_error",
        code,
        message,
        retry_after_s: Some(retry_after_s),
        may_mend: true,
    }
}

/// A backend's failure: the client's own retry may meet a better one.
const fn failure(status: u16, code: &'static str, message: &'static str) -> Row {
    Row {
        chat: status,
        responses: status,
        messages: status,
        openai_type: SERVER,
        anthropic_type: API,
        code,
        message,
        retry_after_s: None,
        may_mend: true,
    }
}

const NO_ROOM: Row = busy("backends_busy", "All backends are busy. Retry in 5 s.", 5);
const NO_MEMORY: Row =
    busy("proxy_busy", "This proxy holds as many requests as its memory allows. Retry in 2 s.", 2);
const NO_HEALTHY_BACKEND: Row =
    busy("no_healthy_backend", "No backend for this model is up. Retry in 10 s.", 10);
const DRAINING: Row = busy("draining", "This proxy is shutting down. Retry in 1 s.", 1);
const UNKNOWN_MODEL: Row = Row {
    responses: BAD_REQUEST,
    messages: BAD_REQUEST,
    ..mistake(
        NOT_FOUND,
        "model_not_found",
        "No backend serves this model. GET /v1/models lists those that are served.",
    )
};
const PROMPT_TOO_LARGE: Row = mistake(
    BAD_REQUEST,
    "context_length_exceeded",
    "The prompt is larger than any backend can hold. Shorten it.",
);
const BODY_TOO_LARGE: Row = Row {
    anthropic_type: "request_too_large",
    ..mistake(CONTENT_TOO_LARGE, "body_too_large", "The request's body is larger than allowed.")
};
const BAD_JSON: Row =
    mistake(BAD_REQUEST, "invalid_json", "The request's body is not the JSON this API expects.");
const BAD_REQUEST_ROW: Row =
    mistake(BAD_REQUEST, "malformed_request", "The request is not well-formed HTTP.");
const BAD_ENCODING: Row = mistake(
    UNSUPPORTED_ENCODING,
    "bad_content_encoding",
    "The request's body could not be decoded. Send it plain, gzip or zstd.",
);
const UNKNOWN_PATH: Row =
    mistake(NOT_FOUND, "unknown_path", "There is no such path, and others are not passed through.");
const METHOD_NOT_ALLOWED_ROW: Row =
    mistake(METHOD_NOT_ALLOWED, "method_not_allowed", "This method is not served.");
const HEAD_TOO_LARGE_ROW: Row =
    mistake(HEAD_TOO_LARGE, "head_too_large", "The request's headers are larger than allowed.");
const URI_TOO_LONG_ROW: Row =
    mistake(URI_TOO_LONG, "uri_too_long", "The request's target is longer than allowed.");
const EXPECTATION_FAILED_ROW: Row =
    mistake(EXPECTATION_FAILED, "expectation_failed", "Only `100-continue` may be expected.");
const UNKNOWN_CODING: Row =
    mistake(NOT_IMPLEMENTED, "unknown_transfer_coding", "Only the chunked coding is understood.");
const UNSUPPORTED_VERSION: Row =
    mistake(VERSION_NOT_SUPPORTED, "unsupported_version", "Only HTTP/1.0 and HTTP/1.1 are spoken.");
const UPSTREAM_FAILED: Row =
    failure(BAD_GATEWAY, "upstream_error", "The backend failed. Retry the request.");
const FIRST_BYTE_TIMEOUT: Row =
    failure(GATEWAY_TIMEOUT, "upstream_timeout", "The backend did not answer in time.");

const OUTCOME_UNKNOWN: Row = Row {
    // A client that repeats it by itself may have it done twice.
    may_mend: false,
    ..failure(
        BAD_GATEWAY,
        "outcome_unknown",
        "The backend broke off without an answer. The request may have been carried out: look before repeating it.",
    )
};
const ENGINE_REFUSED: Row =
    mistake(BAD_REQUEST, "engine_refused", "The engine does not accept the request.");

impl Situation {
    /// All of them, for tests and metrics.
    pub const ALL: [Situation; 21] = [
        Situation::NoRoom,
        Situation::NoMemory,
        Situation::NoHealthyBackend,
        Situation::Draining,
        Situation::UnknownModel,
        Situation::PromptTooLarge,
        Situation::BodyTooLarge,
        Situation::BadJson,
        Situation::BadRequest,
        Situation::BadEncoding,
        Situation::UnknownPath,
        Situation::MethodNotAllowed,
        Situation::HeadTooLarge,
        Situation::UriTooLong,
        Situation::ExpectationFailed,
        Situation::UnknownCoding,
        Situation::UnsupportedVersion,
        Situation::UpstreamFailed,
        Situation::FirstByteTimeout,
        Situation::OutcomeUnknown,
        Situation::EngineRefused,
    ];

    /// What it comes to.
    pub fn row(self) -> &'static Row {
        match self {
            Situation::NoRoom => &NO_ROOM,
            Situation::NoMemory => &NO_MEMORY,
            Situation::NoHealthyBackend => &NO_HEALTHY_BACKEND,
            Situation::Draining => &DRAINING,
            Situation::UnknownModel => &UNKNOWN_MODEL,
            Situation::PromptTooLarge => &PROMPT_TOO_LARGE,
            Situation::BodyTooLarge => &BODY_TOO_LARGE,
            Situation::BadJson => &BAD_JSON,
            Situation::BadRequest => &BAD_REQUEST_ROW,
            Situation::BadEncoding => &BAD_ENCODING,
            Situation::UnknownPath => &UNKNOWN_PATH,
            Situation::MethodNotAllowed => &METHOD_NOT_ALLOWED_ROW,
            Situation::HeadTooLarge => &HEAD_TOO_LARGE_ROW,
            Situation::UriTooLong => &URI_TOO_LONG_ROW,
            Situation::ExpectationFailed => &EXPECTATION_FAILED_ROW,
            Situation::UnknownCoding => &UNKNOWN_CODING,
            Situation::UnsupportedVersion => &UNSUPPORTED_VERSION,
            Situation::UpstreamFailed => &UPSTREAM_FAILED,
            Situation::FirstByteTimeout => &FIRST_BYTE_TIMEOUT,
            Situation::OutcomeUnknown => &OUTCOME_UNKNOWN,
            Situation::EngineRefused => &ENGINE_REFUSED,
        }
    }
}
