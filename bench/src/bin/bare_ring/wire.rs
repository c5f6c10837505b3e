//! As much of HTTP/1.1 as a relay that trusts both sides needs: where a request ends, and where a reply ends.
//!
//! It judges nothing. A real proxy must refuse what this takes for granted.

use memchr::memmem;

/// How many bytes the request at the start of `bytes` has, head and body; `None` before its head is whole.
pub(crate) fn request_length(bytes: &[u8]) -> Option<usize> {
    let head = memmem::find(bytes, b"\r\n\r\n")? + 4;
    Some(head + content_length(&bytes[..head]).unwrap_or(0))
}

/// The end of a reply, found while its bytes pass by.
#[derive(Debug, Default)]
pub(crate) struct ReplyEnd {
    body: Body,
    /// The last bytes that passed, because an end may be cut anywhere.
    tail: [u8; LAST_CHUNK.len()],
}

#[derive(Debug, Default)]
enum Body {
    /// The head is not whole; what there is of it.
    #[default]
    Unknown,
    Partial(Vec<u8>),
    Chunked,
    /// Bytes to come.
    Length(usize),
}

/// What a chunked body ends with. Events contain no CR LF, so nothing else looks like it.
const LAST_CHUNK: &[u8; 7] = b"\r\n0\r\n\r\n";

impl ReplyEnd {
    /// Takes the next bytes of the reply; true if it ends with them.
    pub(crate) fn passes(&mut self, bytes: &[u8]) -> bool {
        let ended = match &mut self.body {
            Body::Chunked => self.ends_chunked(bytes),
            Body::Length(left) => {
                *left = left.saturating_sub(bytes.len());
                *left == 0
            }
            Body::Unknown | Body::Partial(_) => self.head(bytes),
        };
        if ended {
            *self = ReplyEnd::default();
        }
        ended
    }

    fn head(&mut self, bytes: &[u8]) -> bool {
        let before = std::mem::take(&mut self.body);
        if let (Body::Unknown, Some(length)) = (&before, memmem::find(bytes, b"\r\n\r\n")) {
            return self.begin(&bytes[..length + 4], &bytes[length + 4..]);
        }
        let mut whole = if let Body::Partial(held) = before { held } else { Vec::new() };
        whole.extend_from_slice(bytes);
        match memmem::find(&whole, b"\r\n\r\n") {
            Some(length) => self.begin(&whole[..length + 4], &whole[length + 4..]),
            None => {
                self.body = Body::Partial(whole);
                false
            }
        }
    }

    fn begin(&mut self, head: &[u8], rest: &[u8]) -> bool {
        let left = content_length(head).map(|length| length.saturating_sub(rest.len()));
        self.body = left.map_or(Body::Chunked, Body::Length);
        match left {
            Some(left) => left == 0,
            None => self.ends_chunked(rest),
        }
    }

    fn ends_chunked(&mut self, bytes: &[u8]) -> bool {
        let kept = self.tail.len();
        if bytes.len() >= kept {
            self.tail.copy_from_slice(&bytes[bytes.len() - kept..]);
        } else {
            self.tail.rotate_left(bytes.len());
            self.tail[kept - bytes.len()..].copy_from_slice(bytes);
        }
        self.tail == *LAST_CHUNK
    }
}

fn content_length(head: &[u8]) -> Option<usize> {
    const NAME: &[u8] = b"content-length:";
    let line = head.split(|byte| *byte == b'\n').find(|line| {
        line.get(..NAME.len()).is_some_and(|start| start.eq_ignore_ascii_case(NAME))
    })?;
    std::str::from_utf8(&line[NAME.len()..]).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_ends_after_its_body() {
        assert_eq!(request_length(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n"), None);
        let bytes = b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET";
        assert_eq!(request_length(bytes), Some(bytes.len() - 3));
        assert_eq!(request_length(b"GET / HTTP/1.1\r\n\r\n"), Some(18));
    }

    #[test]
    fn a_reply_ends_with_its_last_chunk_or_its_length_however_it_is_cut() {
        let chunked =
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nab\n\r\n0\r\n\r\n";
        let sized = b"HTTP/1.1 503 Busy\r\ncontent-length: 4\r\n\r\nfull";
        for reply in [&chunked[..], &sized[..]] {
            for cut in 1..reply.len() {
                let mut end = ReplyEnd::default();
                assert!(!end.passes(&reply[..cut]), "cut at {cut}");
                assert!(end.passes(&reply[cut..]), "cut at {cut}");
                assert!(end.passes(reply), "the next one on the same connection");
            }
        }
    }
}
