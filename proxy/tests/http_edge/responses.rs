//! Heads of responses: what an engine, or whoever sits in front of it, may say, and when its
//! connection is used again.

use proxy::http::HeadError::*;
use proxy::http::{Method, ResponseFraming, ResponseHead, Version};
use proxy::limits::RESPONSE_HEAD;

use crate::support::{
    assert_responses_accepted, assert_responses_refused, response, response_at_every_cut,
};

#[test]
fn a_stream_head_is_read_as_it_was_meant() {
    let input = b"HTTP/1.1 200 OK\r\ndate: Tue, 06 Jan 2026 10:00:00 GMT\r\nserver: uvicorn\r\n\
        content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\
        Keep-Alive: timeout=5, max=100\r\n\r\n5\r\n";
    let mut head = ResponseHead::new();
    let consumed = response_at_every_cut(&mut head, input, Method::Post).unwrap().unwrap();
    assert_eq!(&input[consumed..], b"5\r\n");
    assert_eq!((head.status(), head.reason()), (200, &b"OK"[..]));
    assert_eq!((head.version(), head.framing()), (Version::Http11, ResponseFraming::Chunked));
    assert!(head.is_event_stream() && !head.is_json() && !head.is_informational());
    assert!(head.keep_alive());
    assert_eq!((head.keep_alive_timeout_s(), head.keep_alive_max()), (Some(5), Some(100)));
    assert_eq!(head.header("server"), Some(&b"uvicorn"[..]));
    assert_eq!(head.headers().count(), 5);
}

#[test]
fn the_body_ends_where_its_framing_says() {
    use ResponseFraming::{Chunked, Length, UntilClose};
    assert_responses_accepted(
        Method::Post,
        &[
            (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n", Length(4), true),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Length(0), true),
            (b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", Length(0), true),
            (b"HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n", Length(0), true),
            (b"HTTP/1.1 503 caf\xc3\xa9 gone\r\nContent-Length: 0\r\n\r\n", Length(0), true),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n", Chunked, true),
            (b"HTTP/1.1 200 OK\r\n\r\n", UntilClose, false),
            (b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n\r\n", UntilClose, false),
            (
                b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\n",
                Length(4),
                false,
            ),
            (b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\n", Length(4), false),
            (
                b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 4\r\n\r\n",
                Length(4),
                true,
            ),
            (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n", UntilClose, false),
            (b"HTTP/1.0 200 OK\r\n\r\n", UntilClose, false),
        ],
    );
}

#[test]
fn some_responses_have_no_body_whatever_they_announce() {
    use ResponseFraming::None;
    assert_responses_accepted(
        Method::Post,
        &[
            (b"HTTP/1.1 204 No Content\r\n\r\n", None, true),
            (b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", None, true),
            (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\n", None, true),
            (b"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n", None, true),
            (b"HTTP/1.1 100 Continue\r\n\r\n", None, true),
            (b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", None, true),
            // A peer that announces a body where none can be may well send one.
            (b"HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\n", None, false),
            (b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n", None, false),
            (b"HTTP/1.1 103 Early Hints\r\nContent-Length: 4\r\n\r\n", None, false),
        ],
    );
    assert_responses_accepted(
        Method::Head,
        &[
            (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n", None, true),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", None, true),
            (b"HTTP/1.1 200 OK\r\n\r\n", None, true),
            (b"HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n", None, false),
        ],
    );
}

#[test]
fn a_head_that_can_be_read_in_two_ways_is_refused_also_from_an_engine() {
    assert_responses_refused(Method::Post, &[
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n", LengthAndCoding),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\n", DuplicateContentLength),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4, 4\r\n\r\n", BadContentLength),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", BadContentLength),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", UnknownCoding),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\n", BadTransferEncoding),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\n", UnknownCoding),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", BadTransferEncoding),
        (b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", CodingOnHttp10),
        (b"HTTP/1.1 200 OK\r\nTransfer_Encoding: chunked\r\n\r\n", AliasedName),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n", UnaskedUpgrade),
    ]);
    assert_responses_refused(
        Method::Head,
        &[
            (
                b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
                LengthAndCoding,
            ),
            (b"HTTP/1.1 204 OK\r\nContent-Length: x\r\n\r\n", BadContentLength),
        ],
    );
}

#[test]
fn what_is_no_response_head_is_refused() {
    assert_responses_refused(
        Method::Post,
        &[
            (b"HTTP/1.1 200 OK\n\n", BareLf),
            (b"HTTP/1.1 200 OK\r\nX: y\n\r\n", BareLf),
            (b"HTTP/1.1 200 OK\r\nX: y\rz\r\n\r\n", BareCr),
            (b"HTTP/1.1 200 OK\r\nX: y\r\n z\r\n\r\n", ObsFold),
            (b"HTTP/1.1 200 OK\r\nX : y\r\n\r\n", BadHeaderName),
            (b"HTTP/1.1 200 OK\r\nX: \0\r\n\r\n", BadHeaderValue),
            (b"HTTP/1.1 200 O\0K\r\n\r\n", BadStatusLine),
            (b"HTTP/1.1 200OK\r\n\r\n", BadStatusLine),
            (b"HTTP/1.1  200 OK\r\n\r\n", BadStatusLine),
            (b"HTTP/1.1 20 OK\r\n\r\n", BadStatusLine),
            (b"HTTP/1.1 2000 OK\r\n\r\n", BadStatusLine),
            (b"HTTP/1.1 099 OK\r\n\r\n", BadStatusLine),
            (b"HTTP/1.1 +20 OK\r\n\r\n", BadStatusLine),
            (b"HTTP/1.1\r\n\r\n", BadStatusLine),
            (b"HTTP/1.2 200 OK\r\n\r\n", UnsupportedVersion),
            (b"HTTP/2.0 200 OK\r\n\r\n", UnsupportedVersion),
            (b"HTTP/2 200\r\n\r\n", BadVersion),
            (b"ICY 200 OK\r\n\r\n", BadStatusLine),
            (b"\r\nHTTP/1.1 200 OK\r\n\r\n", EmptyStartLine),
            (b"0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", BadStatusLine),
            (b"data: surplus\r\n\r\n", BadStatusLine),
        ],
    );
}

#[test]
fn a_chain_of_informational_heads_ends_in_the_final_one() {
    let input = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n\
        HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let (mut at, mut statuses) = (0, Vec::new());
    let mut head = ResponseHead::new();
    while at < input.len() {
        at += head.parse(&input[at..], &RESPONSE_HEAD, Method::Post).unwrap().unwrap();
        statuses.push((head.status(), head.is_informational()));
    }
    assert_eq!(statuses, [(100, true), (103, true), (200, false)]);
}

#[test]
fn keep_alive_promises_are_read_and_nonsense_in_them_is_not() {
    let promised = |value: &str| {
        let head = response(
            format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nKeep-Alive: {value}\r\n\r\n")
                .as_bytes(),
        );
        (head.keep_alive_timeout_s(), head.keep_alive_max())
    };
    assert_eq!(promised("timeout=5, max=100"), (Some(5), Some(100)));
    assert_eq!(promised("max=0,TIMEOUT=60"), (Some(60), Some(0)));
    assert_eq!(promised("timeout=5"), (Some(5), None));
    assert_eq!(promised("timeout"), (None, None));
    assert_eq!(promised("timeout=-1, max=99999999999"), (None, None));
    assert_eq!(promised("timeout=5; max=7"), (None, None));
    assert_eq!(promised("300"), (None, None));
}

#[test]
fn media_types_are_compared_without_parameters_and_case() {
    let typed = |value: &str| {
        let head = response(
            format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Type: {value}\r\n\r\n")
                .as_bytes(),
        );
        (head.is_event_stream(), head.is_json())
    };
    assert_eq!(typed("text/event-stream"), (true, false));
    assert_eq!(typed("Text/Event-Stream ;charset=UTF-8"), (true, false));
    assert_eq!(typed("application/json"), (false, true));
    assert_eq!(typed("application/json; charset=utf-8"), (false, true));
    assert_eq!(typed("application/jsonl"), (false, false));
    assert_eq!(typed("text/event-stream-not"), (false, false));
    assert_eq!(typed(""), (false, false));
}
