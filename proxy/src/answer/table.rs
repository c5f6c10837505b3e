//! The one table of what the proxy answers: a row for every situation, a status for every dialect. No status is written
//! anywhere else.
//!
//! Why the dialects differ: Codex stops for good at 429, and treats 503 with the codes `server_is_overloaded` and
//! `slow_down` as fatal; it shows the text of a 400 only. Claude Code repeats a 401 for ever, replaces the text of a 404 by
//! one of its own, and shows that of 400 and 403. 529 is Anthropic's own status for "overloaded".

use crate::api::Dialect;

/// Why the proxy answers a request itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Situation {
    /// No backend had room within the time a request may wait, or too many wait already.
    NoRoom,
    /// Backends exist, but none is enabled, healthy and behind a closed breaker.
    NoHealthyBackend,
    /// The proxy is shutting down.
    Draining,
    /// The caller has used up its own quota.
    RateLimited,
    /// The caller's key is missing or wrong.
    BadKey,
    /// No pool serves the model.
    UnknownModel,
    /// The prompt is larger than any backend can hold. Never for a backend that is merely full.
    PromptTooLarge,
    /// The body is larger than the limit.
    BodyTooLarge,
    /// The body is not the JSON it should be.
    BadJson,
    /// The head or the framing of the request is wrong.
    BadRequest,
    /// A compressed body that does not decode.
    UnsupportedEncoding,
    /// The head is larger than the limit.
    HeadTooLarge,
    /// The request target is longer than the limit.
    UriTooLong,
    /// A body without a length where one is needed.
    LengthRequired,
    /// The request did not arrive in time.
    RequestTimeout,
    /// A transfer coding other than chunked.
    UnsupportedTransferCoding,
    /// Another version of HTTP than 1.0 and 1.1.
    UnsupportedVersion,
    /// An `Expect` other than `100-continue`.
    UnsupportedExpectation,
    /// Nothing is served under this path.
    NotFound,
    /// The path is served, but not with this method.
    MethodNotAllowed,
    /// A backend failed and nothing is left to try.
    UpstreamFailed,
    /// No first byte in time.
    FirstByteTimeout,
    /// A fault of the proxy itself.
    Internal,
}

/// What an answer says about trying again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    /// Later, and when.
    Later,
    /// Repeating cannot mend it.
    Never,
    /// Whatever the status means to the client.
    Unsaid,
}

/// One row of the table.
#[derive(Debug)]
pub(super) struct Row {
    chat: u16,
    responses: u16,
    messages: u16,
    /// `error.type` for OpenAI's dialects.
    pub(super) kind: &'static str,
    /// `error.code` for OpenAI's dialects.
    pub(super) code: &'static str,
    /// `error.type` for Messages.
    pub(super) messages_kind: &'static str,
    pub(super) retry: Retry,
    pub(super) message: &'static str,
}

impl Row {
    /// The status for a dialect; engines' own APIs get that of chat.
    pub(super) fn status(&self, dialect: Dialect) -> u16 {
        match dialect {
            Dialect::Chat | Dialect::Plain => self.chat,
            Dialect::Responses => self.responses,
            Dialect::Messages => self.messages,
        }
    }
}

const fn busy(code: &'static str, message: &'static str) -> Row {
    Row {
        chat: 503,
        responses: 503,
        messages: 529,
        kind: "server_error",
        code,
        messages_kind: "overloaded_error",
        retry: Retry::Later,
        message,
    }
}

const fn refused(status: u16, code: &'static str, message: &'static str) -> Row {
    Row {
        chat: status,
        responses: status,
        messages: status,
        kind: "invalid_request_error",
        code,
        messages_kind: "invalid_request_error",
        retry: Retry::Never,
        message,
    }
}

const fn failed(status: u16, code: &'static str, message: &'static str) -> Row {
    Row {
        chat: status,
        responses: status,
        messages: status,
        kind: "server_error",
        code,
        messages_kind: "api_error",
        retry: Retry::Unsaid,
        message,
    }
}

static NO_ROOM: Row = busy("backends_busy", "All backends are busy.");
static NO_HEALTHY_BACKEND: Row =
    busy("no_healthy_backend", "No backend for this model is available at the moment.");
static DRAINING: Row = busy("draining", "This server is shutting down.");
static RATE_LIMITED: Row = Row {
    chat: 429,
    responses: 429,
    messages: 429,
    kind: "rate_limit_error",
    code: "rate_limit_exceeded",
    messages_kind: "rate_limit_error",
    retry: Retry::Later,
    message: "Your quota is used up.",
};
static BAD_KEY: Row = Row {
    messages: 403,
    messages_kind: "permission_error",
    ..refused(401, "invalid_api_key", "The API key is missing or not accepted.")
};
static UNKNOWN_MODEL: Row = Row {
    chat: 404,
    ..refused(400, "model_not_found", "The model is not served here; see /v1/models.")
};
static PROMPT_TOO_LARGE: Row =
    refused(400, "context_length_exceeded", "The prompt is larger than any backend can hold.");
static BODY_TOO_LARGE: Row = Row {
    messages_kind: "request_too_large",
    ..refused(413, "request_too_large", "The request body is too large.")
};
static BAD_JSON: Row = refused(400, "invalid_json", "The request body cannot be read.");
static BAD_REQUEST: Row = refused(400, "bad_request", "The request is malformed.");
static UNSUPPORTED_ENCODING: Row =
    refused(400, "unsupported_encoding", "The compressed request body cannot be decoded.");
static HEAD_TOO_LARGE: Row = refused(431, "head_too_large", "The request's headers are too large.");
static URI_TOO_LONG: Row = refused(414, "uri_too_long", "The request's target is too long.");
static LENGTH_REQUIRED: Row = refused(411, "length_required", "The request body has no length.");
static REQUEST_TIMEOUT: Row = Row {
    retry: Retry::Unsaid,
    ..refused(408, "request_timeout", "The request did not arrive in time.")
};
static UNSUPPORTED_TRANSFER_CODING: Row =
    refused(501, "unsupported_transfer_coding", "The only transfer coding accepted is chunked.");
static UNSUPPORTED_VERSION: Row =
    refused(505, "unsupported_version", "The HTTP version is not supported.");
static UNSUPPORTED_EXPECTATION: Row =
    refused(417, "unsupported_expectation", "The only expectation accepted is 100-continue.");
static NOT_FOUND: Row = Row {
    messages_kind: "not_found_error",
    ..refused(404, "not_found", "Nothing is served under this path.")
};
static METHOD_NOT_ALLOWED: Row =
    refused(405, "method_not_allowed", "This path is not served with this method.");
static UPSTREAM_FAILED: Row = failed(502, "upstream_error", "The backend failed.");
static FIRST_BYTE_TIMEOUT: Row =
    failed(504, "upstream_timeout", "The backend did not answer in time.");
static INTERNAL: Row = failed(500, "internal_error", "The proxy failed to handle the request.");

impl Situation {
    /// Every situation, for tables and metrics.
    pub const ALL: [Situation; 23] = [
        Situation::NoRoom,
        Situation::NoHealthyBackend,
        Situation::Draining,
        Situation::RateLimited,
        Situation::BadKey,
        Situation::UnknownModel,
        Situation::PromptTooLarge,
        Situation::BodyTooLarge,
        Situation::BadJson,
        Situation::BadRequest,
        Situation::UnsupportedEncoding,
        Situation::HeadTooLarge,
        Situation::UriTooLong,
        Situation::LengthRequired,
        Situation::RequestTimeout,
        Situation::UnsupportedTransferCoding,
        Situation::UnsupportedVersion,
        Situation::UnsupportedExpectation,
        Situation::NotFound,
        Situation::MethodNotAllowed,
        Situation::UpstreamFailed,
        Situation::FirstByteTimeout,
        Situation::Internal,
    ];

    /// The code that names the situation in answers, metrics and logs.
    pub fn code(self) -> &'static str {
        self.row().code
    }

    pub(super) fn row(self) -> &'static Row {
        match self {
            Situation::NoRoom => &NO_ROOM,
            Situation::NoHealthyBackend => &NO_HEALTHY_BACKEND,
            Situation::Draining => &DRAINING,
            Situation::RateLimited => &RATE_LIMITED,
            Situation::BadKey => &BAD_KEY,
            Situation::UnknownModel => &UNKNOWN_MODEL,
            Situation::PromptTooLarge => &PROMPT_TOO_LARGE,
            Situation::BodyTooLarge => &BODY_TOO_LARGE,
            Situation::BadJson => &BAD_JSON,
            Situation::BadRequest => &BAD_REQUEST,
            Situation::UnsupportedEncoding => &UNSUPPORTED_ENCODING,
            Situation::HeadTooLarge => &HEAD_TOO_LARGE,
            Situation::UriTooLong => &URI_TOO_LONG,
            Situation::LengthRequired => &LENGTH_REQUIRED,
            Situation::RequestTimeout => &REQUEST_TIMEOUT,
            Situation::UnsupportedTransferCoding => &UNSUPPORTED_TRANSFER_CODING,
            Situation::UnsupportedVersion => &UNSUPPORTED_VERSION,
            Situation::UnsupportedExpectation => &UNSUPPORTED_EXPECTATION,
            Situation::NotFound => &NOT_FOUND,
            Situation::MethodNotAllowed => &METHOD_NOT_ALLOWED,
            Situation::UpstreamFailed => &UPSTREAM_FAILED,
            Situation::FirstByteTimeout => &FIRST_BYTE_TIMEOUT,
            Situation::Internal => &INTERNAL,
        }
    }
}

/// The reason phrase of a status (RFC 9110, section 15; 529 is Anthropic's).
pub(super) fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        411 => "Length Required",
        413 => "Content Too Large",
        414 => "URI Too Long",
        417 => "Expectation Failed",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        529 => "Overloaded",
        _ => "Unknown",
    }
}
