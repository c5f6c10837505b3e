//! Each limit at its last allowed value and one beyond, for a head that came whole and for one that
//! never ends.

use proxy::http::HeadError::{self, *};
use proxy::http::{HeadErrorKind, HeadLimits, Method, RequestHead, ResponseHead};
use proxy::limits::{
    ADDED_HEADERS_MAX, CONNECTION_OPTIONS_MAX, HEAD_BYTES_CEILING, HEAD_FIELDS_CEILING,
    METHOD_BYTES_MAX, REQUEST_HEAD, RESPONSE_HEAD,
};

use crate::support::{limits_with, post};

const OPENING: &str = "GET / HTTP/1.1\r\nHost: a\r\n";

/// A request head of exactly `bytes` bytes, in about twenty lines.
fn head_of(bytes: usize) -> Vec<u8> {
    let mut head = OPENING.to_owned();
    let line = format!("x: {}\r\n", "y".repeat(bytes / 20));
    while bytes - head.len() > 2 * line.len() {
        head.push_str(&line);
    }
    let rest = bytes - head.len() - "x: \r\n\r\n".len();
    head.push_str(&format!("x: {}\r\n\r\n", "y".repeat(rest)));
    assert_eq!(head.len(), bytes);
    head.into_bytes()
}

fn parse(input: &[u8], limits: &HeadLimits) -> Result<Option<usize>, HeadError> {
    RequestHead::new().parse(input, limits)
}

#[test]
fn a_head_may_have_so_many_bytes() {
    let limits = limits_with(|limits| limits.bytes_max = 1000);
    assert_eq!(parse(&head_of(1000), &limits), Ok(Some(1000)));
    assert_eq!(parse(&head_of(1001), &limits), Err(HeadTooLarge));
    assert_eq!(parse(&head_of(1001)[..999], &limits), Ok(None));
    assert_eq!(parse(&head_of(1001)[..1000], &limits), Err(HeadTooLarge));
    // The body that follows does not count, and what comes before it does.
    assert_eq!(parse(&[head_of(1000), vec![b'z'; 5000]].concat(), &limits), Ok(Some(1000)));
    assert_eq!(parse(&[b"\r\n".to_vec(), head_of(998)].concat(), &limits), Ok(Some(1000)));
    assert_eq!(parse(&[b"\r\n".to_vec(), head_of(999)].concat(), &limits), Err(HeadTooLarge));
    assert_eq!(HeadTooLarge.kind(), HeadErrorKind::TooLarge);
}

#[test]
fn the_default_head_limits_hold_at_their_edges() {
    let most = REQUEST_HEAD.bytes_max;
    let long = limits_with(|limits| limits.bytes_max = most);
    assert_eq!(parse(&head_of(most), &long), Ok(Some(most)));
    assert_eq!(parse(&head_of(most + 1), &long), Err(HeadTooLarge));
    let fields = |count: usize| post(&"x: y\r\n".repeat(count - 1));
    let most = REQUEST_HEAD.headers_max;
    assert_eq!(parse(&fields(most), &REQUEST_HEAD), Ok(Some(fields(most).len())));
    assert_eq!(parse(&fields(most + 1), &REQUEST_HEAD), Err(TooManyHeaders));
    assert_eq!(most + ADDED_HEADERS_MAX, 100, "what llama.cpp's server takes");
}

#[test]
fn no_configuration_lifts_the_ceilings() {
    let boundless =
        HeadLimits { bytes_max: usize::MAX, line_bytes_max: usize::MAX, headers_max: usize::MAX };
    let huge = |bytes: usize| {
        let rest = bytes - OPENING.len() - "x: \r\n\r\n".len();
        format!("{OPENING}x: {}\r\n\r\n", "y".repeat(rest)).into_bytes()
    };
    assert_eq!(parse(&huge(HEAD_BYTES_CEILING), &boundless), Ok(Some(HEAD_BYTES_CEILING)));
    assert_eq!(parse(&huge(HEAD_BYTES_CEILING + 1), &boundless), Err(HeadTooLarge));
    let fields = |count: usize| post(&"x: y\r\n".repeat(count - 1));
    assert!(parse(&fields(HEAD_FIELDS_CEILING), &boundless).is_ok());
    assert_eq!(parse(&fields(HEAD_FIELDS_CEILING + 1), &boundless), Err(TooManyHeaders));
}

#[test]
fn a_head_may_have_so_many_fields() {
    let limits = limits_with(|limits| limits.headers_max = 40);
    let fields = |count: usize| post(&"x: y\r\n".repeat(count - 1));
    assert_eq!(parse(&fields(40), &limits), Ok(Some(fields(40).len())));
    assert_eq!(parse(&fields(41), &limits), Err(TooManyHeaders));
    let endless = fields(60);
    let last_fine = endless.len() - 2 - 20 * "x: y\r\n".len();
    assert_eq!(parse(&endless[..last_fine], &limits), Ok(None));
    assert_eq!(
        parse(&endless[..=last_fine], &limits),
        Err(TooManyHeaders),
        "as its first byte comes"
    );
    let none = limits_with(|limits| limits.headers_max = 0);
    assert_eq!(parse(b"GET / HTTP/1.0\r\n\r\n", &none), Ok(Some(18)));
    assert_eq!(parse(b"GET / HTTP/1.0\r\nx", &none), Err(TooManyHeaders));
}

#[test]
fn a_line_may_have_so_many_bytes_crlf_included() {
    let limits = limits_with(|limits| limits.line_bytes_max = 200);
    let header = |bytes: usize| post(&format!("x: {}\r\n", "y".repeat(bytes - 5)));
    assert_eq!(parse(&header(200), &limits), Ok(Some(header(200).len())));
    assert_eq!(parse(&header(201), &limits), Err(LineTooLong));
    let line = |bytes: usize| {
        let target = "a".repeat(bytes - "GET / HTTP/1.1\r\n".len());
        format!("GET /{target} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes()
    };
    assert_eq!(parse(&line(200), &limits), Ok(Some(line(200).len())));
    assert_eq!(parse(&line(201), &limits), Err(TargetTooLong));
    assert_eq!(TargetTooLong.kind(), HeadErrorKind::UriTooLong);
    assert_eq!(LineTooLong.kind(), HeadErrorKind::TooLarge);
    // Without its end, a line is too long when no CRLF could follow any more.
    assert_eq!(parse(&line(300)[..198], &limits), Ok(None));
    assert_eq!(parse(&line(300)[..199], &limits), Err(TargetTooLong));
    let open = header(300);
    let start = post("").len() - 2;
    assert_eq!(parse(&open[..start + 198], &limits), Ok(None));
    assert_eq!(parse(&open[..start + 199], &limits), Err(LineTooLong));
}

#[test]
fn a_line_is_measured_as_it_will_be_written() {
    let limits = limits_with(|limits| limits.line_bytes_max = 100);
    let tight = |value: usize| post(&format!("x:{}\r\n", "y".repeat(value)));
    // Written with a blank after the colon, 95 bytes of value make a line of 100.
    assert!(parse(&tight(95), &limits).is_ok());
    assert_eq!(parse(&tight(96), &limits), Err(LineTooLong));
}

#[test]
fn methods_and_connection_options_have_their_limits() {
    let method =
        |bytes: usize| format!("{} / HTTP/1.1\r\nHost: a\r\n\r\n", "M".repeat(bytes)).into_bytes();
    assert!(parse(&method(METHOD_BYTES_MAX), &REQUEST_HEAD).is_ok());
    assert_eq!(parse(&method(METHOD_BYTES_MAX + 1), &REQUEST_HEAD), Err(BadMethod));
    let options = |count: usize| {
        let half = vec!["x"; count / 2].join(",");
        let rest = vec!["y"; count - count / 2].join(" , ");
        post(&format!("Connection: {half}\r\nConnection: ,{rest},\r\n"))
    };
    assert!(parse(&options(CONNECTION_OPTIONS_MAX), &REQUEST_HEAD).is_ok());
    assert_eq!(parse(&options(CONNECTION_OPTIONS_MAX + 1), &REQUEST_HEAD), Err(BadConnection));
}

#[test]
fn an_endless_response_head_is_refused_too() {
    let mut head = ResponseHead::new();
    let head_of = |bytes: usize| {
        let mut head = "HTTP/1.1 200 OK\r\n".to_owned();
        while bytes - head.len() > 1000 {
            head.push_str(&format!("x: {}\r\n", "y".repeat(500)));
        }
        let rest = bytes - head.len() - "x: \r\n\r\n".len();
        head + &format!("x: {}\r\n\r\n", "y".repeat(rest))
    };
    let most = RESPONSE_HEAD.bytes_max;
    let mut parse = |input: &str| head.parse(input.as_bytes(), &RESPONSE_HEAD, Method::Get);
    assert_eq!(parse(&head_of(most)), Ok(Some(most)));
    assert_eq!(parse(&head_of(most + 1)), Err(HeadTooLarge));
    let reason = |bytes: usize| format!("HTTP/1.1 200 {}\r\n\r\n", "y".repeat(bytes - 15));
    let most = RESPONSE_HEAD.line_bytes_max;
    assert!(parse(&reason(most)).is_ok());
    assert_eq!(parse(&reason(most + 1)), Err(LineTooLong));
    let fields = |count: usize| format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(count));
    assert!(parse(&fields(RESPONSE_HEAD.headers_max)).is_ok());
    assert_eq!(parse(&fields(RESPONSE_HEAD.headers_max + 1)), Err(TooManyHeaders));
}

#[test]
fn a_refused_head_leaves_the_parser_fit_for_the_next() {
    let mut head = RequestHead::new();
    for _ in 0..3 {
        assert_eq!(
            head.parse(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", &REQUEST_HEAD),
            Err(DuplicateHost)
        );
        assert_eq!(head.headers().count(), 0);
        let good = post("X: y\r\n");
        assert_eq!(head.parse(&good, &REQUEST_HEAD), Ok(Some(good.len())));
        assert_eq!(head.headers().count(), 2);
        assert_eq!(head.parse(&good[..good.len() - 1], &REQUEST_HEAD), Ok(None));
        assert_eq!(
            (head.headers().count(), head.host()),
            (0, None),
            "an incomplete head shows nothing"
        );
    }
}

#[test]
fn a_reused_head_keeps_its_memory() {
    let mut head = RequestHead::new();
    let large = post(&"x: yyyyyyyyyyyyyyyyyyyy\r\n".repeat(60));
    head.parse(&large, &REQUEST_HEAD).unwrap().unwrap();
    let place = head.target().as_ptr();
    for count in [0, 1, 40, 60] {
        let input = post(&"x: y\r\n".repeat(count));
        head.parse(&input, &REQUEST_HEAD).unwrap().unwrap();
        assert_eq!(head.target().as_ptr(), place, "the copy moved");
    }
}
