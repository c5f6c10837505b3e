//! An independent judge, made to find requests that two servers would read differently, looks at
//! what we send upstream.

use http_desync_guardian::RequestSafetyTier;
use http_desync_guardian::request_analyzer::HttpRequestData;
use proxy::http::{RequestHead, write_request_head};
use proxy::limits::REQUEST_HEAD;

use crate::support::{get, post, shown};

/// Whether the judge sees one way to read these bytes, lines with a stump for a name aside.
fn is_unambiguous(written: &[u8]) -> bool {
    let lines = written.split_inclusive(|&byte| byte == b'\n');
    let judged: Vec<u8> = lines.filter(|line| !is_stump(line)).flatten().copied().collect();
    HttpRequestData::analyze_raw_request(&judged).tier <= RequestSafetyTier::Acceptable
}

/// Whether the name of this line is the beginning of a framing field's, ended by punctuation. The
/// judge takes those for imitations (`Content-Lengt.`), though no server would complete them.
fn is_stump(line: &[u8]) -> bool {
    let name = line.split(|&byte| byte == b':').next().unwrap_or_default();
    let letters = name.iter().filter(|byte| byte.is_ascii_alphanumeric());
    let letters: Vec<u8> = letters.map(u8::to_ascii_lowercase).collect();
    let begins = |field: &[u8]| letters.len() < field.len() && field.starts_with(&letters);
    letters.len() >= 7 && (begins(b"contentlength") || begins(b"transferencoding"))
}

/// What goes upstream for `head` with a body of `body` bytes, seen by the judge.
pub(crate) fn upstream_and_judged(head: &RequestHead, body: Option<u64>) -> Vec<u8> {
    let mut written = Vec::new();
    write_request_head(&mut written, head, body, &[("x-request-id", b"0123456789abcdef")]);
    assert!(is_unambiguous(&written), "ambiguous to the judge: {}", shown(&written));
    written
}

#[test]
fn the_judge_objects_to_what_is_ambiguous() {
    for input in [
        post("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n"),
        post("Content-Length: 4\r\nContent-Length: 5\r\n"),
        post("Transfer-Encoding: xchunked\r\n"),
        post("Transfer_Encoding: chunked\r\n"),
        post("Content_Length: 4\r\n"),
        get("/a\0b"),
    ] {
        assert!(!is_unambiguous(&input), "{}", shown(&input));
    }
}

#[test]
fn whatever_is_accepted_goes_on_unambiguously() {
    let stretch = "Content-Length , Transfer-Encoding ; TE : x".replace(' ', "\t");
    let inputs = [
        post("Content-Length: 4\r\n"),
        post("Transfer-Encoding: chunked\r\nTE: trailers\r\nConnection: TE, close\r\n"),
        post(
            "X-Content-Length: 4\r\nX-Transfer-Encoding: chunked\r\nContent-Lengths: 9\r\nContent: 1\r\nLength: 2\r\n",
        ),
        post("Content-Encoding: gzip\r\nAccept-Encoding: chunked\r\nContent-Language: de\r\n"),
        post(&format!("X: {stretch}\r\nX-Utf8: caf\u{e9}\r\n")),
        post("session_id: 1\r\n_: 2\r\n.: 3\r\nt: 4\r\nc: 5\r\n"),
        get("/v1/models?x=%0d%0aContent-Length:%204&{a|b}=`c`<>\"^"),
        get("//x:y@z/?Transfer-Encoding:chunked"),
        b"OPTIONS * HTTP/1.1\r\nHost: [::1]:80\r\n\r\n".to_vec(),
        b"GET http://fleet HTTP/1.1\r\nHost: fleet\r\n\r\n".to_vec(),
        b"POST / HTTP/1.0\r\nContent-Length: 4\r\nConnection: keep-alive\r\n\r\n".to_vec(),
        b"HEAD / HTTP/1.0\r\nContent-Length: 0\r\n\r\n".to_vec(),
        b"DELETE /x HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n".to_vec(),
    ];
    let mut head = RequestHead::new();
    for input in inputs {
        let consumed = head.parse(&input, &REQUEST_HEAD);
        assert_eq!(consumed, Ok(Some(input.len())), "{}", shown(&input));
        for body in [None, Some(0), Some(4)] {
            if body != Some(4) || head.method().may_have_body() {
                upstream_and_judged(&head, body);
            }
        }
    }
}
