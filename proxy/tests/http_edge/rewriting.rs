//! What is written in place of a parsed head: to engines, to clients, and answers of our own.

use proxy::http::{
    CONTINUE, Downstream, Method, ReplyFraming, RequestFraming, ResponseFraming, Version,
    write_own_response, write_request_head, write_response_head,
};

use crate::support::{get, post, request, response, shown};

const KEPT: Downstream = Downstream { version: Version::Http11, keep_alive: true };
const CLOSED: Downstream = Downstream { version: Version::Http11, keep_alive: false };
const OLD: Downstream = Downstream { version: Version::Http10, keep_alive: true };

fn upstream(input: &[u8], body: Option<u64>, extra: &[(&str, &[u8])]) -> String {
    let mut out = b"before".to_vec();
    write_request_head(&mut out, &request(input), body, extra);
    String::from_utf8(out).unwrap().strip_prefix("before").unwrap().to_owned()
}

fn downstream(input: &[u8], to: Downstream, extra: &[(&str, &[u8])]) -> String {
    let head = response(input);
    let mut out = Vec::new();
    write_response_head(&mut out, &head, to, to.framing_for(head.framing()), extra);
    String::from_utf8(out).unwrap()
}

#[test]
fn a_request_goes_on_with_its_fields_and_our_framing() {
    let input = b"\r\nPOST http://fleet/v1/messages?beta=true HTTP/1.0\r\nHOST:fleet\r\nX-Api-Key:   k \r\n\
        Accept: a\r\naccept: b\r\nX-Empty:\r\nContent-Length: 12\r\n\r\n";
    assert_eq!(
        upstream(input, Some(12), &[]),
        "POST /v1/messages?beta=true HTTP/1.1\r\nHOST: fleet\r\nX-Api-Key: k\r\nAccept: a\r\naccept: b\r\n\
         X-Empty: \r\nContent-Length: 12\r\n\r\n"
    );
}

#[test]
fn what_belongs_to_the_hop_stays_on_it() {
    let input = post(
        "Connection: Keep-Alive, X-Private, authorization\r\nKeep-Alive: timeout=5\r\nProxy-Connection: x\r\n\
         Proxy-Authorization: secret\r\nproxy_thing: x\r\nTE: trailers\r\nTrailer: x\r\nTransfer-Encoding: chunked\r\n\
         Upgrade: h2c\r\nHTTP2-Settings: x\r\nExpect: 100-continue\r\nx-private: x\r\nX-Private: y\r\nAuthorization: z\r\n\
         X-Private-Not: kept\r\n",
    );
    assert_eq!(
        upstream(&input, Some(3), &[]),
        "POST /v1/messages HTTP/1.1\r\nHost: fleet\r\nX-Private-Not: kept\r\nContent-Length: 3\r\n\r\n"
    );
}

#[test]
fn the_length_written_is_that_of_the_body_that_follows() {
    let length = |input: &[u8], body| {
        let written = upstream(input, body, &[]);
        let head = request(written.as_bytes());
        (
            head.framing(),
            head.headers().filter(|(name, _)| name.eq_ignore_ascii_case(b"content-length")).count(),
        )
    };
    assert_eq!(length(&post("Content-Length: 5\r\n"), Some(7)), (RequestFraming::Length(7), 1));
    assert_eq!(
        length(&post("Transfer-Encoding: chunked\r\n"), Some(7)),
        (RequestFraming::Length(7), 1)
    );
    assert_eq!(
        length(&post(""), None),
        (RequestFraming::Length(0), 1),
        "a POST says that it has no body"
    );
    assert_eq!(length(&post(""), Some(0)), (RequestFraming::Length(0), 1));
    assert_eq!(length(&get("/"), None), (RequestFraming::None, 0));
    assert_eq!(length(&get("/"), Some(0)), (RequestFraming::None, 0));
}

#[test]
fn fields_of_ours_replace_the_clients_of_that_name() {
    let input = post("x-request-id: theirs\r\nX-Request-Id: theirs too\r\nX-Other: kept\r\n");
    assert_eq!(
        upstream(&input, None, &[("x-request-id", b"ours"), ("host", b"engine:8000")]),
        "POST /v1/messages HTTP/1.1\r\nX-Other: kept\r\nContent-Length: 0\r\nx-request-id: ours\r\n\
         host: engine:8000\r\n\r\n"
    );
}

#[test]
fn an_empty_field_of_ours_takes_the_clients_away() {
    let input = post("Content-Encoding: gzip\r\nX-Other: kept\r\n");
    assert_eq!(
        upstream(&input, None, &[("content-encoding", b"")]),
        "POST /v1/messages HTTP/1.1\r\nHost: fleet\r\nX-Other: kept\r\nContent-Length: 0\r\n\r\n"
    );
}

#[test]
fn an_old_request_without_host_gets_one() {
    let input = b"GET / HTTP/1.0\r\n\r\n";
    assert_eq!(upstream(input, None, &[]), "GET / HTTP/1.1\r\nHost: \r\n\r\n");
    assert_eq!(
        upstream(input, None, &[("Host", b"engine")]),
        "GET / HTTP/1.1\r\nHost: engine\r\n\r\n"
    );
}

#[test]
fn fields_that_would_break_the_message_are_not_written() {
    let hostile: &[(&str, &[u8])] = &[
        ("x-a", b"1\r\nTransfer-Encoding: chunked"),
        ("x-b", b"1\n2"),
        ("x-c", b"1\0"),
        ("x-d\r\nx-e", b"1"),
        ("x f", b"1"),
        ("", b"1"),
        ("Content-Length", b"9"),
        ("transfer-encoding", b"chunked"),
        ("Upgrade", b"h2c"),
        ("x-fine", b"1"),
    ];
    let clean =
        "POST /v1/messages HTTP/1.1\r\nHost: fleet\r\nContent-Length: 0\r\nx-fine: 1\r\n\r\n";
    assert_eq!(upstream(&post(""), None, hostile), clean);
    let clean = "HTTP/1.1 200 OK\r\nx-fine: 1\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(downstream(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", KEPT, hostile), clean);
    let mut own = Vec::new();
    write_own_response(&mut own, 200, KEPT, hostile, b"", false);
    assert_eq!(shown(&own), clean.escape_default().to_string());
    // A value of ours that cannot be written does not take the client's away.
    let kept = upstream(&post("x-a: theirs\r\n"), None, &[("x-a", b"1\r\n2")]);
    assert!(kept.contains("x-a: theirs\r\n"));
}

#[test]
fn only_the_pool_may_say_that_an_upstream_connection_ends() {
    let written = upstream(&post("Connection: close\r\n"), None, &[]);
    assert!(!written.contains("Connection"));
    let written = upstream(&post(""), None, &[("Connection", b"close")]);
    assert!(written.ends_with("\r\nConnection: close\r\n\r\n"));
}

#[test]
fn a_reply_goes_on_in_a_framing_its_client_knows() {
    let chunked = b"HTTP/1.1 200 OK\r\nX: y\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive, x-hop\r\n\
        Keep-Alive: timeout=5\r\nX-Hop: 1\r\nProxy-Authenticate: x\r\nTrailer: z\r\nUpgrade: h2c\r\n\r\n";
    let until_close = b"HTTP/1.1 200 OK\r\nX: y\r\nConnection: close\r\n\r\n";
    let sized = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nX: y\r\n\r\n";
    for input in [&chunked[..], until_close] {
        assert_eq!(
            downstream(input, KEPT, &[]),
            "HTTP/1.1 200 OK\r\nX: y\r\nTransfer-Encoding: chunked\r\n\r\n"
        );
        assert_eq!(
            downstream(input, CLOSED, &[]),
            "HTTP/1.1 200 OK\r\nX: y\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        );
        assert_eq!(
            downstream(input, OLD, &[]),
            "HTTP/1.1 200 OK\r\nX: y\r\nConnection: close\r\n\r\n"
        );
    }
    assert_eq!(
        downstream(sized, KEPT, &[]),
        "HTTP/1.1 200 OK\r\nX: y\r\nContent-Length: 4\r\n\r\n"
    );
    assert_eq!(
        downstream(sized, OLD, &[]),
        "HTTP/1.1 200 OK\r\nX: y\r\nContent-Length: 4\r\nConnection: keep-alive\r\n\r\n"
    );
}

#[test]
fn chunks_towards_an_old_client_are_never_announced() {
    let head = response(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    let mut out = Vec::new();
    write_response_head(&mut out, &head, OLD, ReplyFraming::Chunked, &[]);
    assert_eq!(shown(&out), r"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
}

#[test]
fn a_length_passes_only_where_it_describes_a_body() {
    let not_modified = b"HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\nETag: \"a\"\r\n\r\n";
    assert_eq!(
        downstream(not_modified, KEPT, &[]),
        "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nContent-Length: 4\r\n\r\n"
    );
    assert_eq!(
        downstream(b"HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\n", KEPT, &[]),
        "HTTP/1.1 204 No Content\r\n\r\n"
    );
    assert_eq!(
        downstream(
            b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nConnection: close\r\n\r\n",
            CLOSED,
            &[]
        ),
        "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    );
    let mut head = proxy::http::ResponseHead::new();
    let input = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n";
    head.parse(input, &proxy::limits::RESPONSE_HEAD, Method::Head).unwrap().unwrap();
    let mut out = Vec::new();
    write_response_head(&mut out, &head, KEPT, KEPT.framing_for(head.framing()), &[]);
    assert_eq!(out, input);
}

#[test]
fn our_own_answers_are_whole_and_honest_about_the_connection() {
    let own = |status, to, head_only| {
        let mut out = Vec::new();
        write_own_response(
            &mut out,
            status,
            to,
            &[("Content-Type", b"text/plain")],
            b"busy",
            head_only,
        );
        String::from_utf8(out).unwrap()
    };
    let head =
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n";
    assert_eq!(own(503, KEPT, false), format!("{head}\r\nbusy"));
    assert_eq!(own(503, CLOSED, false), format!("{head}Connection: close\r\n\r\nbusy"));
    assert_eq!(own(503, OLD, false), format!("{head}Connection: keep-alive\r\n\r\nbusy"));
    assert_eq!(own(503, KEPT, true), format!("{head}\r\n"));
    assert_eq!(
        own(204, KEPT, false),
        "HTTP/1.1 204 No Content\r\nContent-Type: text/plain\r\n\r\n"
    );
    assert_eq!(
        own(599, KEPT, true),
        "HTTP/1.1 599 \r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\n"
    );
    for status in [400, 405, 413, 414, 417, 429, 431, 500, 501, 502, 503, 504, 505, 529] {
        let written = own(status, KEPT, true);
        let head = response(written.as_bytes());
        assert_eq!((head.status(), head.framing()), (status, ResponseFraming::Length(4)));
        assert!(!head.reason().is_empty(), "{status}");
    }
    assert!(response(CONTINUE).is_informational());
}
