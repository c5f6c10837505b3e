//! Where a request ends: Content-Length, Transfer-Encoding, and every way to make two readers
//! disagree about them.

use proxy::http::HeadError::*;
use proxy::http::{HeadErrorKind, RequestFraming, RequestHead};
use proxy::limits::REQUEST_HEAD;

use crate::support::{assert_requests_accepted, assert_requests_refused, post, request};

#[test]
fn a_content_length_is_a_plain_decimal_number() {
    let framed = |value: &str| post(&format!("Content-Length:{value}\r\n"));
    assert_requests_accepted(&[
        (framed(" 4"), RequestFraming::Length(4)),
        (framed("4"), RequestFraming::Length(4)),
        (framed("   4   "), RequestFraming::Length(4)),
        (framed(" 0"), RequestFraming::Length(0)),
        (framed(" 18446744073709551615"), RequestFraming::Length(u64::MAX)),
    ]);
    let refused = [
        "",
        " ",
        " 4, 4",
        " 4, 5",
        " 4,",
        " +4",
        " -0",
        " -48",
        " 0x10",
        " 1_0",
        " 010",
        " 00",
        " 1Z",
        " 4 4",
        " 4 ,",
        " 4;",
        " 4.0",
        " 1e3",
        " \"4\"",
        " 18446744073709551616",
        "\t4",
        " 4\t",
        " \u{ff14}",
        " 99999999999999999999999999999999999999",
    ];
    let rows: Vec<_> = refused.iter().map(|value| (framed(value), BadContentLength)).collect();
    assert_requests_refused(&rows);
}

#[test]
fn two_content_lengths_are_refused_even_when_equal() {
    assert_requests_refused(&[
        (post("Content-Length: 4\r\nContent-Length: 4\r\n"), DuplicateContentLength),
        (post("Content-Length: 4\r\nContent-Length: 5\r\n"), DuplicateContentLength),
        (post("Content-Length: 0\r\nX: y\r\ncontent-LENGTH: 4\r\n"), DuplicateContentLength),
    ]);
}

#[test]
fn a_transfer_encoding_is_exactly_one_chunked() {
    let coded = |value: &str| post(&format!("Transfer-Encoding:{value}\r\n"));
    assert_requests_accepted(&[
        (coded(" chunked"), RequestFraming::Chunked),
        (coded("chunked"), RequestFraming::Chunked),
        (coded(" CHUNKED "), RequestFraming::Chunked),
    ]);
    let without_certain_end = [
        "",
        " ",
        " ,",
        " chunked,",
        " ,chunked",
        " chunked, chunked",
        " chunked, gzip",
        " chunked,identity",
        " chunked;q=1",
        " chu nked",
        " \"chunked\"",
        " gzip, chunked, chunked",
        "\tchunked",
        " chunked\t",
        " chunked\u{a0}",
    ];
    let rows: Vec<_> =
        without_certain_end.iter().map(|value| (coded(value), BadTransferEncoding)).collect();
    assert_requests_refused(&rows);
    let of_unknown_coding = [
        " xchunked",
        " gzip",
        " gzip, chunked",
        " identity",
        " chunkedx",
        " br, gzip",
        " x",
        " 'chunked",
    ];
    let rows: Vec<_> =
        of_unknown_coding.iter().map(|value| (coded(value), UnknownCoding)).collect();
    assert_requests_refused(&rows);
    assert_eq!(UnknownCoding.kind(), HeadErrorKind::UnknownCoding);
}

#[test]
fn two_transfer_encodings_are_refused_whatever_they_say() {
    assert_requests_refused(&[
        (post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), BadTransferEncoding),
        (
            post("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"),
            BadTransferEncoding,
        ),
        (post("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n"), UnknownCoding),
        (post("Transfer-Encoding:\r\nTransfer-Encoding: chunked\r\n"), BadTransferEncoding),
    ]);
}

#[test]
fn a_control_character_in_a_framing_value_is_refused() {
    let mut rows = Vec::new();
    for name in ["Transfer-Encoding", "Content-Length"] {
        let value = if name == "Content-Length" { "4" } else { "chunked" };
        for control in ['\x00', '\x01', '\x08', '\x0b', '\x0c', '\x1b', '\x1f', '\x7f'] {
            rows.push((post(&format!("{name}: {control}{value}\r\n")), BadHeaderValue));
            rows.push((post(&format!("{name}: {value}{control}\r\n")), BadHeaderValue));
            rows.push((post(&format!("{name}{control}: {value}\r\n")), BadHeaderName));
        }
        rows.push((post(&format!("{name}:\r\n {value}\r\n")), ObsFold));
        rows.push((post(&format!("{name}: {value}\r\n \r\n")), ObsFold));
        rows.push((post(&format!("{name} : {value}\r\n")), BadHeaderName));
        rows.push((post(&format!("{name}\t: {value}\r\n")), BadHeaderName));
        rows.push((post(&format!(" {name}: {value}\r\n")), ObsFold));
        rows.push((post(&format!("X: y\r\n\t{name}: {value}\r\n")), ObsFold));
        rows.push((post(&format!("X: y\n{name}: {value}\r\n")), BareLf));
        rows.push((post(&format!("X: y\r{name}: {value}\r\n")), BareCr));
        rows.push((post(&format!("{name}: {value}\r\r\n")), BareCr));
    }
    assert_requests_refused(&rows);
}

#[test]
fn length_and_coding_together_are_refused_in_either_order() {
    assert_requests_refused(&[
        (post("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n"), LengthAndCoding),
        (post("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n"), LengthAndCoding),
        (post("Content-Length: 0\r\nTransfer-Encoding: chunked\r\n"), LengthAndCoding),
        (post("transfer-encoding: CHUNKED\r\ncontent-length: 0\r\n"), LengthAndCoding),
        (post("Content-Length: 4\r\nTransfer-Encoding: xchunked\r\n"), UnknownCoding),
        (
            post("Content-Length: 4\r\nTransfer-Encoding: chunked, identity\r\n"),
            BadTransferEncoding,
        ),
    ]);
}

#[test]
fn a_name_that_only_imitates_a_framing_field_is_refused() {
    let imitations = [
        "Transfer_Encoding: chunked",
        "transfer_encoding: chunked",
        "Transfer.Encoding: chunked",
        "Transfer--Encoding: chunked",
        "-Transfer-Encoding: chunked",
        "Transfer-Encoding-: chunked",
        "'Transfer-Encoding: chunked",
        "TransferEncoding: chunked",
        "Content_Length: 4",
        "Content+Length: 4",
        "content_length: 4",
        "Content-Length.: 4",
        "$Content-Length: 4",
        "Content9-Length: 4",
        "Keep_Alive: timeout=5",
        "HTTP2_Settings: x",
    ];
    let rows: Vec<_> =
        imitations.iter().map(|line| (post(&format!("{line}\r\n")), AliasedName)).collect();
    assert_requests_refused(&rows);
    // Clients of the field do send these.
    let head = request(&post("session_id: 7\r\nconversation_id: 8\r\nx_content_length: 9\r\n"));
    assert_eq!(head.header("session_id"), Some(&b"7"[..]));
    assert_eq!(head.header("conversation_id"), Some(&b"8"[..]));
    assert_eq!(head.framing(), RequestFraming::None);
}

#[test]
fn http_1_0_knows_lengths_and_no_codings() {
    let old = |lines: &str| format!("POST / HTTP/1.0\r\n{lines}\r\n").into_bytes();
    assert_requests_accepted(&[
        (old("Content-Length: 4\r\n"), RequestFraming::Length(4)),
        (old(""), RequestFraming::None),
    ]);
    assert_requests_refused(&[
        (old("Transfer-Encoding: chunked\r\n"), CodingOnHttp10),
        (old("Transfer-Encoding: identity\r\n"), UnknownCoding),
        (old("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n"), LengthAndCoding),
    ]);
}

#[test]
fn a_body_is_refused_on_methods_whose_bodies_some_engines_leave_unread() {
    let with = |method: &str, line: &str| {
        format!("{method} /v1/models HTTP/1.1\r\nHost: fleet\r\n{line}\r\n\r\n").into_bytes()
    };
    let mut refused = Vec::new();
    for method in ["GET", "HEAD", "OPTIONS", "PURGE"] {
        refused.push((with(method, "Content-Length: 1"), BodyNotAllowed));
        refused.push((with(method, "Transfer-Encoding: chunked"), BodyNotAllowed));
        assert_requests_accepted(&[
            (with(method, "Content-Length: 0"), RequestFraming::Length(0)),
            (with(method, "Accept: */*"), RequestFraming::None),
        ]);
    }
    assert_requests_refused(&refused);
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        assert_requests_accepted(&[
            (with(method, "Content-Length: 1"), RequestFraming::Length(1)),
            (with(method, "Transfer-Encoding: chunked"), RequestFraming::Chunked),
        ]);
    }
}

#[test]
fn bytes_after_a_request_are_the_next_one_and_judged_as_such() {
    let first = post("Content-Length: 0\r\n");
    let mut head = RequestHead::new();
    for (next, verdict) in [
        (get_models(), Ok(Some(get_models().len()))),
        (b"GET /v1/models HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".to_vec(), Err(DuplicateHost)),
        (b"\x00\x01\x02".to_vec(), Err(BadMethod)),
        (b"GE".to_vec(), Ok(None)),
        (Vec::new(), Ok(None)),
    ] {
        let both = [first.clone(), next.clone()].concat();
        assert_eq!(head.parse(&both, &REQUEST_HEAD), Ok(Some(first.len())));
        assert_eq!(head.parse(&both[first.len()..], &REQUEST_HEAD), verdict);
    }
}

fn get_models() -> Vec<u8> {
    crate::support::get("/v1/models")
}

#[test]
fn only_a_client_that_will_send_a_body_is_told_to_continue() {
    assert!(request(&post("Expect: 100-continue\r\nContent-Length: 4\r\n")).expects_continue());
    assert!(
        request(&post("expect: 100-Continue\r\nTransfer-Encoding: chunked\r\n")).expects_continue()
    );
    assert!(!request(&post("Expect: 100-continue\r\nContent-Length: 0\r\n")).expects_continue());
    assert!(!request(&post("Expect: 100-continue\r\n")).expects_continue());
    assert!(!request(&post("Content-Length: 4\r\n")).expects_continue());
    let old = b"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";
    assert!(!request(old).expects_continue());
    let refused = ["100-continue, x", "x", "", "100", "100-continue 100-continue"];
    let rows: Vec<_> = refused
        .iter()
        .map(|value| {
            (post(&format!("Expect: {value}\r\nContent-Length: 4\r\n")), UnknownExpectation)
        })
        .collect();
    assert_requests_refused(&rows);
    assert_eq!(UnknownExpectation.kind(), HeadErrorKind::ExpectationFailed);
}
