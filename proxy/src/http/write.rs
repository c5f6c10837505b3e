//! What is written in place of a parsed head. Everything that frames a message is ours: what a peer
//! said about framing, about the connection, and what it listed in Connection never passes. Names
//! and values that could end a line early are not written, wherever they come from.

use super::field::{FieldClass, FieldTable};
use super::grammar::{is_token, is_value};
use super::request::RequestHead;
use super::response::{ResponseFraming, ResponseHead, has_no_body};
use super::start_line::Version;

/// Tells a client that waits for it to send its body.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// How the reply goes to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Downstream {
    /// The version the client spoke.
    pub version: Version,
    /// Whether its connection is kept after this reply.
    pub keep_alive: bool,
}

/// How the body of a reply is delimited towards the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReplyFraming {
    /// No body: the answer to HEAD, 1xx, 204, 304.
    None,
    /// So many bytes.
    Length(u64),
    /// Chunks; the caller writes them.
    Chunked,
    /// Until we close.
    UntilClose,
}

impl Downstream {
    /// The framing this client can be given for a reply that came with `upstream`: a body without a
    /// length becomes chunks for HTTP/1.1 and lasts until close for HTTP/1.0, which knows no
    /// chunks.
    #[must_use]
    pub fn framing_for(&self, upstream: ResponseFraming) -> ReplyFraming {
        match (upstream, self.version) {
            (ResponseFraming::None, _) => ReplyFraming::None,
            (ResponseFraming::Length(bytes), _) => ReplyFraming::Length(bytes),
            (_, Version::Http11) => ReplyFraming::Chunked,
            (_, Version::Http10) => ReplyFraming::UntilClose,
        }
    }
}

/// Appends the head to send upstream: the request line in origin-form and HTTP/1.1, the client's
/// end-to-end fields in their order and spelling, then our own.
///
/// `body` is the length of the body that follows. `Content-Length` is written when there is one,
/// and as 0 for methods that usually have one. A field of `extra` replaces the client's fields of
/// that name, an empty one (but for Host) only takes them away; names that frame a message or belong to the hop (all but `Connection` and
/// `Keep-Alive`), and values that are none, are left out. An HTTP/1.0 request without Host
/// gets an empty one (RFC 9112, 3.2) unless `extra` has it.
pub fn write_request_head(
    out: &mut Vec<u8>,
    head: &RequestHead,
    body: Option<u64>,
    extra: &[(&str, &[u8])],
) {
    out.extend_from_slice(head.method_bytes());
    out.push(b' ');
    out.extend_from_slice(head.target());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    write_end_to_end(out, head.table(), extra);
    let is_host = |(name, _): &&(&str, &[u8])| name.eq_ignore_ascii_case("host");
    if head.host().is_none() && extra.iter().find(is_host).is_none() {
        write_field(out, b"Host", b"");
    }
    if head.method().may_have_body() || body.is_some_and(|bytes| bytes > 0) {
        write_content_length(out, body.unwrap_or(0));
    }
    write_extra(out, extra, FieldClass::Connection);
    out.extend_from_slice(b"\r\n");
}

/// Appends the head of a relayed reply: the engine's status, reason and end-to-end fields, then the
/// framing towards the client. `extra` is treated as in [`write_request_head`], except that
/// `Connection` is ours.
///
/// With [`ReplyFraming::None`] the engine's Content-Length passes where it describes a body that is
/// not sent (HEAD, 304). [`ReplyFraming::UntilClose`], and chunks towards HTTP/1.0, always close.
pub fn write_response_head(
    out: &mut Vec<u8>,
    head: &ResponseHead,
    to: Downstream,
    framing: ReplyFraming,
    extra: &[(&str, &[u8])],
) {
    write_status_line(out, head.status(), head.reason());
    write_end_to_end(out, head.table(), extra);
    write_extra(out, extra, FieldClass::KeepAlive);
    let close = match framing {
        ReplyFraming::None => {
            let described = if no_length(head.status()) { None } else { head.content_length() };
            if let Some(bytes) = described {
                write_content_length(out, bytes);
            }
            false
        }
        ReplyFraming::Length(bytes) => {
            write_content_length(out, bytes);
            false
        }
        ReplyFraming::Chunked if to.version == Version::Http11 => {
            write_field(out, b"Transfer-Encoding", b"chunked");
            false
        }
        ReplyFraming::Chunked | ReplyFraming::UntilClose => true,
    };
    if !head.is_informational() {
        write_connection(out, to, close);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends a whole reply of our own. With `head_only` (the answer to HEAD) the body is described
/// and not written; for 1xx, 204 and 304 there is none.
pub fn write_own_response(
    out: &mut Vec<u8>,
    status: u16,
    to: Downstream,
    headers: &[(&str, &[u8])],
    body: &[u8],
    head_only: bool,
) {
    write_status_line(out, status, reason_phrase(status).as_bytes());
    write_extra(out, headers, FieldClass::KeepAlive);
    if !has_no_body(status) {
        write_content_length(out, body.len() as u64);
    }
    if !(100..200).contains(&status) {
        write_connection(out, to, false);
    }
    out.extend_from_slice(b"\r\n");
    if !head_only && !has_no_body(status) {
        out.extend_from_slice(body);
    }
}

/// Statuses whose head may not even describe a body (RFC 9110, 8.6).
fn no_length(status: u16) -> bool {
    has_no_body(status) && status != 304
}

fn write_status_line(out: &mut Vec<u8>, status: u16, reason: &[u8]) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(itoa::Buffer::new().format(status).as_bytes());
    out.push(b' ');
    out.extend_from_slice(reason);
    out.extend_from_slice(b"\r\n");
}

/// The fields that go on to the next hop and that `extra` does not replace.
fn write_end_to_end(out: &mut Vec<u8>, table: &FieldTable, extra: &[(&str, &[u8])]) {
    for field in table.fields() {
        if field.listed || field.class.is_hop_by_hop() {
            continue;
        }
        let name = table.text(field.name);
        let replaced = |(other, value): &(&str, &[u8])| {
            other.as_bytes().eq_ignore_ascii_case(name) && is_value(value)
        };
        if !extra.iter().any(replaced) {
            write_field(out, name, table.text(field.value));
        }
    }
}

/// The caller's fields, those of the hop only where the class is `allowed` or Keep-Alive.
fn write_extra(out: &mut Vec<u8>, extra: &[(&str, &[u8])], allowed: FieldClass) {
    for (name, value) in extra {
        let class = FieldClass::of(name.as_bytes());
        let takes_away = value.is_empty() && !name.eq_ignore_ascii_case("host");
        let hop = class.is_hop_by_hop() && class != allowed && class != FieldClass::KeepAlive;
        if !takes_away && !hop && is_token(name.as_bytes()) && is_value(value) {
            write_field(out, name.as_bytes(), value);
        }
    }
}

fn write_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn write_content_length(out: &mut Vec<u8>, bytes: u64) {
    write_field(out, b"Content-Length", itoa::Buffer::new().format(bytes).as_bytes());
}

fn write_connection(out: &mut Vec<u8>, to: Downstream, close: bool) {
    match (to.keep_alive && !close, to.version) {
        (false, _) => write_field(out, b"Connection", b"close"),
        (true, Version::Http10) => write_field(out, b"Connection", b"keep-alive"),
        (true, Version::Http11) => {}
    }
}

/// The reason phrases of RFC 9110, section 15, for the statuses the product answers with.
fn reason_phrase(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        200 => "OK",
        204 => "No Content",
        304 => "Not Modified",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        411 => "Length Required",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        529 => "Overloaded",
        _ => "",
    }
}
