//! Every bound of the product, with its reason. Nothing grows without one of these.

// --- Reading bodies and replies (prompt, conversation, encoding, sse, usage) ---

/// Nesting of a request body. JSON schemas of real tools stay below 30; Python's own parser gives up near 1,000 and some
/// readers overflow their stack near 100,000, so the bound is ours and small.
pub const JSON_DEPTH_MAX: usize = 128;

/// Values in a request body (an array of numbers counts as one). A conversation of 500k tokens with 30 tools has some
/// 30,000; a token costs 16 bytes while the body is read, so this also bounds that table at 16 MiB.
pub const JSON_VALUES_MAX: usize = 1 << 20;

/// Values for which the reading table keeps its memory between requests; beyond it the table is freed after use.
pub const JSON_VALUES_KEPT: usize = 1 << 16;

/// Memory kept between requests for decoding the arguments of one tool call.
pub const DECODED_ARGUMENTS_BYTES_KEPT: usize = 64 * 1024;

/// A conversation id longer than this counts as absent, so that nobody can make us hash megabytes of header.
pub const CONVERSATION_ID_BYTES_MAX: usize = 255;

/// A `metadata.user_id` longer than this is not looked into; real ones are below 300 bytes.
pub const USER_ID_BYTES_MAX: usize = 4096;

/// How much of the first system text and of the first user text identifies a conversation that brings no id.
pub const HEAD_TEXT_BYTES_MAX: usize = 16 * 1024;

/// Decoded size of a compressed request body that is always allowed, whatever its ratio.
pub const DECODED_BYTES_FREE: usize = 1 << 20;

/// How many times larger than its compressed form a body may grow beyond [`DECODED_BYTES_FREE`]. Repetitive JSON
/// reaches about 50; a bomb reaches 1,000.
pub const DECODED_RATIO_MAX: usize = 100;

/// Largest zstd window accepted, as a power of two: 8 MiB, what level 19 uses. The decoder allocates that much.
pub const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// Bytes kept of a stream event that arrives in pieces. Events are 100 to 300 bytes; only a Responses stream repeats the
/// whole reply in its last one, and of that the head (its type) and the tail (its usage) are enough.
pub const SSE_CARRY_BYTES_MAX: usize = 64 * 1024;

/// Bytes at the start of an oversized stream event that are kept for its type; the rest of the carry follows its end.
pub const SSE_CARRY_HEAD_BYTES: usize = 4 * 1024;

/// Last bytes of a JSON reply that are enough to find its usage: the usage object itself is below 600 bytes, and what
/// engines write behind it (timings, metadata, nulls) below 2 KiB.
pub const USAGE_TAIL_BYTES: usize = 16 * 1024;

/// Largest part of an error reply that is read to classify it.
pub const ERROR_BODY_BYTES_MAX: usize = 16 * 1024;

/// Longest text of an engine's error that is handed on in a rewritten frame.
pub const ERROR_TEXT_BYTES_MAX: usize = 1024;

/// `Retry-After` stays below a minute: one client gives up at once above 60 seconds.
pub const RETRY_AFTER_SECONDS_MAX: u64 = 59;

const _: () = assert!(SSE_CARRY_HEAD_BYTES * 2 < SSE_CARRY_BYTES_MAX);
const _: () = assert!(USAGE_TAIL_BYTES <= SSE_CARRY_BYTES_MAX - SSE_CARRY_HEAD_BYTES);
const _: () = assert!(JSON_VALUES_KEPT <= JSON_VALUES_MAX);
