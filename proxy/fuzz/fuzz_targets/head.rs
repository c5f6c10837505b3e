//! Heads: no bytes panic, no cut changes a verdict, and what is written for an accepted head reads
//! back as the same one. The first byte of the input chooses the cut.

#![no_main]

use libfuzzer_sys::fuzz_target;
use proxy::http::{
    Downstream, HeadLimits, Method, RequestHead, ResponseHead, Version, write_request_head,
    write_response_head,
};
use proxy::limits::{ADDED_HEADERS_MAX, HEAD_FIELDS_CEILING, REQUEST_HEAD, RESPONSE_HEAD};

/// What is written may be a little larger than what was read.
const WIDE: HeadLimits =
    HeadLimits { bytes_max: 1 << 19, line_bytes_max: 1 << 18, headers_max: HEAD_FIELDS_CEILING };
/// An engine's head with room for what we add to it.
const NARROW: HeadLimits =
    HeadLimits { headers_max: HEAD_FIELDS_CEILING - ADDED_HEADERS_MAX, ..RESPONSE_HEAD };

fuzz_target!(|data: &[u8]| {
    let Some((&choice, input)) = data.split_first() else { return };
    let cut = input.len() * usize::from(choice) / 255;
    check_request(input, cut);
    check_response(input, cut, if choice % 2 == 0 { Method::Post } else { Method::Head });
});

fn check_request(input: &[u8], cut: usize) {
    let mut head = RequestHead::new();
    let part = head.parse(&input[..cut], &REQUEST_HEAD);
    let whole = head.parse(input, &REQUEST_HEAD);
    assert!(part == Ok(None) || part == whole, "{part:?}, then {whole:?}");
    if !matches!(whole, Ok(Some(_))) {
        assert_eq!(head.headers().count(), 0);
        return;
    }
    let body = head.method().may_have_body().then_some(7);
    let mut written = Vec::new();
    // A client without Host spoke HTTP/1.0; the engine's name goes in its place, as the proxy does.
    let extra: &[(&str, &[u8])] = if head.host().is_none() { &[("host", b"engine")] } else { &[] };
    write_request_head(&mut written, &head, body, extra);
    let mut again = RequestHead::new();
    assert_eq!(again.parse(&written, &WIDE), Ok(Some(written.len())));
    assert_eq!((again.target(), again.method_bytes()), (head.target(), head.method_bytes()));
    let mut twice = Vec::new();
    write_request_head(&mut twice, &again, body, extra);
    assert_eq!(written.len(), twice.len());
}

fn check_response(input: &[u8], cut: usize, method: Method) {
    let mut head = ResponseHead::new();
    let part = head.parse(&input[..cut], &NARROW, method);
    let whole = head.parse(input, &NARROW, method);
    assert!(part == Ok(None) || part == whole, "{part:?}, then {whole:?}");
    if !matches!(whole, Ok(Some(_))) {
        return;
    }
    let to = Downstream { version: Version::Http11, keep_alive: head.keep_alive() };
    let mut written = Vec::new();
    write_response_head(&mut written, &head, to, to.framing_for(head.framing()), &[]);
    let mut again = ResponseHead::new();
    assert_eq!(again.parse(&written, &WIDE, method), Ok(Some(written.len())));
    assert_eq!(again.status(), head.status());
}
