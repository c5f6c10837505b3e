//! Helpers of the tables: a verdict on bytes, tried at every cut.

use proxy::http::{
    HeadError, HeadLimits, Method, RequestFraming, RequestHead, ResponseFraming, ResponseHead,
};
use proxy::limits::{REQUEST_HEAD, RESPONSE_HEAD};

/// Bytes as a reader of a failed test can read them.
pub(crate) fn shown(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string().chars().take(300).collect()
}

/// A POST with these header lines (each with its CRLF) after a good Host.
pub(crate) fn post(lines: &str) -> Vec<u8> {
    format!("POST /v1/messages HTTP/1.1\r\nHost: fleet\r\n{lines}\r\n").into_bytes()
}

/// A GET of this target with a good Host.
pub(crate) fn get(target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: fleet\r\n\r\n").into_bytes()
}

/// Parses `input` with the default limits, after having tried every shorter prefix of it on the
/// same head.
///
/// A prefix may ask for more, or say what the whole says; it never says something else, and never
/// takes anything back.
pub(crate) fn request_at_every_cut(
    head: &mut RequestHead,
    input: &[u8],
) -> Result<Option<usize>, HeadError> {
    at_every_cut(input, |prefix| head.parse(prefix, &REQUEST_HEAD))
}

/// The same for the response to a request of `method`.
pub(crate) fn response_at_every_cut(
    head: &mut ResponseHead,
    input: &[u8],
    method: Method,
) -> Result<Option<usize>, HeadError> {
    at_every_cut(input, |prefix| head.parse(prefix, &RESPONSE_HEAD, method))
}

fn at_every_cut(
    input: &[u8],
    mut parse: impl FnMut(&[u8]) -> Result<Option<usize>, HeadError>,
) -> Result<Option<usize>, HeadError> {
    let whole = parse(input);
    let mut decided = false;
    for cut in 0..input.len() {
        let part = parse(&input[..cut]);
        decided |= part != Ok(None);
        let expected = if decided { whole } else { Ok(None) };
        assert_eq!(part, expected, "cut at {cut} of {}", shown(input));
        if let Ok(Some(consumed)) = part {
            assert!(consumed <= cut, "consumed bytes that were not there: {}", shown(input));
        }
    }
    parse(input)
}

/// Every row is refused with its error, at every cut, and leaves nothing behind.
pub(crate) fn assert_requests_refused(rows: &[(Vec<u8>, HeadError)]) {
    let mut head = RequestHead::new();
    for (input, error) in rows {
        assert_eq!(request_at_every_cut(&mut head, input), Err(*error), "{}", shown(input));
        assert_eq!(head.headers().count(), 0, "{}", shown(input));
        assert_eq!((head.target(), head.framing()), (&b""[..], RequestFraming::None));
        assert!(head.host().is_none() && head.header("host").is_none());
    }
}

/// Every row is accepted whole, at every cut, with its framing.
pub(crate) fn assert_requests_accepted(rows: &[(Vec<u8>, RequestFraming)]) {
    let mut head = RequestHead::new();
    for (input, framing) in rows {
        let consumed = request_at_every_cut(&mut head, input);
        assert_eq!(consumed, Ok(Some(input.len())), "{}", shown(input));
        assert_eq!(head.framing(), *framing, "{}", shown(input));
    }
}

/// Every row, as the answer to `method`, is refused with its error at every cut.
pub(crate) fn assert_responses_refused(method: Method, rows: &[(&[u8], HeadError)]) {
    let mut head = ResponseHead::new();
    for (input, error) in rows {
        let verdict = response_at_every_cut(&mut head, input, method);
        assert_eq!(verdict, Err(*error), "{}", shown(input));
        assert_eq!((head.status(), head.keep_alive()), (0, false), "{}", shown(input));
    }
}

/// Every row, as the answer to `method`, is accepted whole at every cut, with its framing and
/// reuse.
pub(crate) fn assert_responses_accepted(method: Method, rows: &[(&[u8], ResponseFraming, bool)]) {
    let mut head = ResponseHead::new();
    for (input, framing, keep_alive) in rows {
        let consumed = response_at_every_cut(&mut head, input, method);
        assert_eq!(consumed, Ok(Some(input.len())), "{}", shown(input));
        assert_eq!(
            (head.framing(), head.keep_alive()),
            (*framing, *keep_alive),
            "{}",
            shown(input)
        );
    }
}

/// A parsed request head.
pub(crate) fn request(input: &[u8]) -> RequestHead {
    let mut head = RequestHead::new();
    let consumed = head.parse(input, &REQUEST_HEAD);
    assert_eq!(consumed, Ok(Some(input.len())), "{}", shown(input));
    head
}

/// A parsed response head, the answer to a POST.
pub(crate) fn response(input: &[u8]) -> ResponseHead {
    let mut head = ResponseHead::new();
    let consumed = head.parse(input, &RESPONSE_HEAD, Method::Post);
    assert_eq!(consumed, Ok(Some(input.len())), "{}", shown(input));
    head
}

/// Limits that only `change` makes narrow.
pub(crate) fn limits_with(change: impl FnOnce(&mut HeadLimits)) -> HeadLimits {
    let mut limits = HeadLimits { bytes_max: 1 << 20, line_bytes_max: 1 << 19, headers_max: 128 };
    change(&mut limits);
    limits
}
