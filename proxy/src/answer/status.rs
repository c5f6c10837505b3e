//! The status codes the proxy gives or tells apart, by name. No other file spells one.

/// Fine.
pub const OK: u16 = 200;
/// The request is malformed.
pub const BAD_REQUEST: u16 = 400;
/// Without a key, or with one that is not taken.
pub const UNAUTHORIZED: u16 = 401;
/// Not with this key.
pub const FORBIDDEN: u16 = 403;
/// There is no such thing.
pub const NOT_FOUND: u16 = 404;
/// Not with this method.
pub const METHOD_NOT_ALLOWED: u16 = 405;
/// The body is too large.
pub const CONTENT_TOO_LARGE: u16 = 413;
/// The target is too long.
pub const URI_TOO_LONG: u16 = 414;
/// The body's encoding is not understood.
pub const UNSUPPORTED_ENCODING: u16 = 415;
/// An expectation that is not known.
pub const EXPECTATION_FAILED: u16 = 417;
/// A limit of requests was reached.
pub const TOO_MANY_REQUESTS: u16 = 429;
/// The head is too large.
pub const HEAD_TOO_LARGE: u16 = 431;
/// Something broke.
pub const INTERNAL: u16 = 500;
/// Not built.
pub const NOT_IMPLEMENTED: u16 = 501;
/// The backend broke.
pub const BAD_GATEWAY: u16 = 502;
/// No room.
pub const UNAVAILABLE: u16 = 503;
/// The backend was silent for too long.
pub const GATEWAY_TIMEOUT: u16 = 504;
/// A version of HTTP that is not spoken here.
pub const VERSION_NOT_SUPPORTED: u16 = 505;
/// Anthropic's word for no room.
pub const OVERLOADED: u16 = 529;

/// Whether a status tells of neither side's failure.
pub fn is_success(status: u16) -> bool {
    status < BAD_REQUEST
}

/// Whether a status blames the caller.
pub fn is_callers(status: u16) -> bool {
    (BAD_REQUEST..INTERNAL).contains(&status)
}
