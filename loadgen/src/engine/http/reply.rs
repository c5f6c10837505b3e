//! Reply heads as each engine prints them, and chunks.

use super::super::clock::http_date;
use super::super::persona::Persona;

/// How the end of a body is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// By its length, bytes.
    Length(usize),
    /// In chunks.
    Chunked,
    /// By closing (HTTP/1.0).
    UntilClose,
}

/// The head of a reply.
#[derive(Debug, Clone)]
pub(crate) struct Reply<'a> {
    pub(crate) persona: Persona,
    pub(crate) status: u16,
    pub(crate) content_type: &'a str,
    pub(crate) framing: Framing,
    pub(crate) extra: &'a [(&'a str, String)],
    /// Whether the connection ends with this reply and says so.
    pub(crate) close: bool,
    /// Seconds since 1970.
    pub(crate) now: u64,
}

/// Appends a reply's head.
pub(crate) fn push_head(reply: &Reply<'_>, out: &mut Vec<u8>) {
    let mut lines = Lines(out);
    lines.first(reply.status);
    match reply.persona {
        Persona::LlamaCpp => llama_head(reply, &mut lines),
        Persona::Vllm | Persona::Sglang | Persona::OpenAi => uvicorn_head(reply, &mut lines),
    }
    lines.0.extend_from_slice(b"\r\n");
}

/// cpp-httplib, as llama.cpp uses it: it promises keep-alive also where it will close.
fn llama_head(reply: &Reply<'_>, lines: &mut Lines<'_>) {
    lines.push("Server", "llama.cpp");
    lines.push("Access-Control-Allow-Origin", "");
    for (name, value) in reply.extra {
        lines.push(name, value);
    }
    if reply.content_type.starts_with("text/event-stream") {
        lines.push("X-Accel-Buffering", "no");
    }
    if !reply.content_type.is_empty() {
        lines.push("Content-Type", reply.content_type);
    }
    match reply.framing {
        Framing::Length(bytes) => lines.push("Content-Length", &bytes.to_string()),
        Framing::Chunked => lines.push("Transfer-Encoding", "chunked"),
        Framing::UntilClose => {}
    }
    if reply.close {
        lines.push("Connection", "close");
    } else {
        lines.push("Keep-Alive", "timeout=5, max=100");
    }
}

/// uvicorn, which vLLM and SGLang run on.
fn uvicorn_head(reply: &Reply<'_>, lines: &mut Lines<'_>) {
    lines.push("date", &http_date(reply.now));
    lines.push("server", if reply.persona == Persona::OpenAi { "simulated" } else { "uvicorn" });
    for (name, value) in reply.extra {
        lines.push(name, value);
    }
    if let Framing::Length(bytes) = reply.framing {
        lines.push("content-length", &bytes.to_string());
    }
    if !reply.content_type.is_empty() {
        lines.push("content-type", reply.content_type);
    }
    if reply.persona != Persona::OpenAi {
        lines.push("vary", "Origin");
    }
    if reply.close {
        lines.push("connection", "close");
    }
    if reply.framing == Framing::Chunked {
        lines.push("transfer-encoding", "chunked");
    }
}

struct Lines<'a>(&'a mut Vec<u8>);

impl Lines<'_> {
    fn first(&mut self, status: u16) {
        self.0.extend_from_slice(format!("HTTP/1.1 {status} {}\r\n", reason(status)).as_bytes());
    }

    fn push(&mut self, name: &str, value: &str) {
        for part in [name, ": ", value, "\r\n"] {
            self.0.extend_from_slice(part.as_bytes());
        }
    }
}

/// Appends one chunk. An empty one would end the body, so `data` must not be empty.
pub(crate) fn push_chunk(data: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        413 => "Content Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        _ => "Unknown",
    }
}
