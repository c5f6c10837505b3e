//! A reply as it stands on the wire: head, framing, body. Pure, and never lenient: what a client could misread is an error.

/// What was received of one reply.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) status: u16,
    /// Names in lower case.
    headers: Vec<(String, String)>,
    /// The body, chunks taken off, as far as it came.
    pub(crate) body: String,
    /// Whether the framing was complete and nothing came after it.
    pub(crate) framed: bool,
}

/// Why bytes are no reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// The head did not end.
    Head,
    /// A chunk's size is no number, or its line end is missing.
    Chunk,
    /// Bytes follow the end of the reply.
    Excess,
    /// The body is not UTF-8.
    Text,
}

impl Received {
    /// Reads what came on a connection since its request was sent.
    pub(crate) fn read(raw: &[u8]) -> Result<Received, Malformed> {
        let end = find(raw, b"\r\n\r\n").ok_or(Malformed::Head)? + 4;
        let (head, rest) = raw.split_at(end);
        let mut received = read_head(head).ok_or(Malformed::Head)?;
        let (body, used, framed) = if received.header("transfer-encoding") == Some("chunked") {
            read_chunks(rest)?
        } else {
            let length = received.header("content-length").and_then(|length| length.parse().ok());
            let length = length.ok_or(Malformed::Head)?;
            let here = rest.len().min(length);
            (rest[..here].to_vec(), here, here == length)
        };
        if framed && used < rest.len() {
            return Err(Malformed::Excess);
        }
        // A cut in the middle of a character is a cut, not another text.
        received.body = match String::from_utf8(body) {
            Ok(text) => text,
            Err(error) if error.utf8_error().error_len().is_none() => {
                let valid = error.utf8_error().valid_up_to();
                String::from_utf8_lossy(&error.as_bytes()[..valid]).into_owned()
            }
            Err(_) => return Err(Malformed::Text),
        };
        received.framed = framed;
        Ok(received)
    }

    /// A header's value.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Whether the connection may carry another request.
    pub(crate) fn keeps_open(&self) -> bool {
        self.framed && self.header("connection") != Some("close")
    }
}

/// Whether a reply may be whole by now: cheap, asked after every read, and never wrongly no.
pub(crate) fn may_be_whole(raw: &[u8]) -> bool {
    raw.ends_with(b"0\r\n\r\n")
        || find(raw, b"\r\n\r\n").is_some_and(|end| {
            let head = read_head(&raw[..end + 4]).unwrap_or_default();
            let length = head.header("content-length").and_then(|length| length.parse().ok());
            length.is_some_and(|length: usize| raw.len() >= end + 4 + length)
        })
}

fn read_head(head: &[u8]) -> Option<Received> {
    let head = std::str::from_utf8(head).ok()?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let lines = lines.filter_map(|line| line.split_once(':'));
    let headers =
        lines.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect();
    Some(Received { status, headers, ..Received::default() })
}

/// The body, how many bytes its chunks took, and whether the last one was there.
fn read_chunks(rest: &[u8]) -> Result<(Vec<u8>, usize, bool), Malformed> {
    let (mut body, mut at) = (Vec::new(), 0);
    while let Some(line) = find(&rest[at..], b"\r\n") {
        let size = std::str::from_utf8(&rest[at..at + line]).map_err(|_| Malformed::Chunk)?;
        let size = usize::from_str_radix(size, 16).map_err(|_| Malformed::Chunk)?;
        let begins = at + line + 2;
        let data = &rest[begins..];
        body.extend_from_slice(&data[..size.min(data.len())]);
        let Some(end) = data.get(size..size + 2) else { break };
        if end != b"\r\n" {
            return Err(Malformed::Chunk);
        }
        at = begins + size + 2;
        if size == 0 {
            return Ok((body, at, true));
        }
    }
    Ok((body, at, false))
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
