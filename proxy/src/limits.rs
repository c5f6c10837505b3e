//! Every bound of the product, with its reason. Nothing grows without one of these.

use crate::http::{ChunkLimits, HeadLimits};

// ---- HTTP heads and chunks ----

/// Bytes a head may have, whatever is configured: a bound on what one connection can make us hold,
/// and far below what the 32-bit offsets of a parsed head can name.
pub const HEAD_BYTES_CEILING: usize = 1 << 20;

/// Fields a head may have, whatever is configured: the parser's table lives on the stack, 32 bytes
/// a field.
pub const HEAD_FIELDS_CEILING: usize = 128;

/// Fields the proxy may add to a request on its way (a request id, trace headers, a key, the length
/// of the body).
pub const ADDED_HEADERS_MAX: usize = 8;

/// A client's head. llama.cpp's server answers a bare 400 to a line (request line included) over
/// 8,192 bytes with its CRLF and to more than 100 fields, so no more than that may reach it, our
/// own fields included. 16 KiB in all is what HAProxy takes by default.
pub const REQUEST_HEAD: HeadLimits = HeadLimits {
    bytes_max: 16 * 1024,
    line_bytes_max: 8 * 1024,
    headers_max: 100 - ADDED_HEADERS_MAX,
};

/// An engine's head. Engines send about ten short fields; the room is for proxies between us and
/// them.
pub const RESPONSE_HEAD: HeadLimits = HeadLimits {
    bytes_max: 32 * 1024,
    line_bytes_max: 16 * 1024,
    headers_max: HEAD_FIELDS_CEILING,
};

/// Empty lines passed over before a request line. RFC 9112, 2.2 asks for one; old clients ended a
/// body with one CRLF, and some with two.
pub const LEADING_EMPTY_LINES_MAX: usize = 2;

/// Bytes of a method. The longest registered one has 17.
pub const METHOD_BYTES_MAX: usize = 32;

/// Options in all Connection fields of a head. Each costs a look at every field; honest heads have
/// one to three.
pub const CONNECTION_OPTIONS_MAX: usize = 16;

/// A client's chunked body. No client of the field uses extensions or trailers; the room is for
/// signing ones.
pub const REQUEST_CHUNKS: ChunkLimits =
    ChunkLimits { extension_bytes_max: 16 * 1024, trailer_bytes_max: 8 * 1024, trailers_max: 32 };

/// An engine's chunked body, which may last for hours: the same per line, more in all.
pub const RESPONSE_CHUNKS: ChunkLimits =
    ChunkLimits { extension_bytes_max: 1 << 20, trailer_bytes_max: 8 * 1024, trailers_max: 32 };
