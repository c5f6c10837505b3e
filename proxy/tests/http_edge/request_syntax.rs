//! The grammar of a request head: lines, names, values, targets, Host, methods, versions,
//! Connection.

use proxy::http::HeadError::*;
use proxy::http::{HeadErrorKind, Method, RequestFraming, RequestHead, Version};
use proxy::limits::REQUEST_HEAD;

use crate::support::{
    assert_requests_accepted, assert_requests_refused, get, post, request, request_at_every_cut,
    shown,
};

const NONE: RequestFraming = RequestFraming::None;

fn raw(input: &str) -> Vec<u8> {
    input.as_bytes().to_vec()
}

#[test]
fn a_plain_request_is_read_as_it_was_meant() {
    let input = b"POST /v1/messages?beta=true&x=? HTTP/1.1\r\nHost: fleet:8080\r\nContent-Type: application/json\r\n\
        X-Empty:\r\nx-twice: 1\r\nX-Twice:\t 2 \t\r\nX-Utf8: caf\xc3\xa9\r\ncontent-length: 12\r\n\r\nbody";
    let mut head = RequestHead::new();
    let consumed = request_at_every_cut(&mut head, input).unwrap().unwrap();
    assert_eq!(&input[consumed..], b"body");
    assert_eq!((head.method(), head.method_bytes()), (Method::Post, &b"POST"[..]));
    assert_eq!(head.target(), b"/v1/messages?beta=true&x=?");
    assert_eq!(head.path(), b"/v1/messages");
    assert_eq!(head.query(), Some(&b"beta=true&x=?"[..]));
    assert_eq!((head.version(), head.framing()), (Version::Http11, RequestFraming::Length(12)));
    assert_eq!(head.host(), Some(&b"fleet:8080"[..]));
    assert_eq!(head.content_type(), Some(&b"application/json"[..]));
    assert_eq!(head.header("x-empty"), Some(&b""[..]));
    assert_eq!(head.header("x-twice"), Some(&b"1"[..]), "the first of two");
    assert_eq!(head.header("x-utf8"), Some("café".as_bytes()));
    assert_eq!(head.header("x-missing"), None);
    let names: Vec<_> = head.headers().map(|(name, _)| name).collect();
    let sent: [&[u8]; 7] = [
        b"Host",
        b"Content-Type",
        b"X-Empty",
        b"x-twice",
        b"X-Twice",
        b"X-Utf8",
        b"content-length",
    ];
    assert_eq!(names, sent);
    assert_eq!(head.headers().nth(4), Some((&b"X-Twice"[..], &b"2"[..])));
}

#[test]
fn every_line_ends_in_crlf_and_nothing_else() {
    assert_requests_refused(&[
        (raw("GET / HTTP/1.1\nHost: a\n\n"), BareLf),
        (raw("GET / HTTP/1.1\r\nHost: a\n\r\n"), BareLf),
        (raw("GET / HTTP/1.1\r\nHost: a\r\n\n"), BareLf),
        (raw("GET / HTTP/1.1\r\nHost: a\r\nX: y\nZ: w\r\n\r\n"), BareLf),
        (raw("GET / HTTP/1.1\r\n\nHost: a\r\n\r\n"), BareLf),
        (raw("GET / HTTP/1.1\rHost: a\r\n\r\n"), BareCr),
        (raw("GET / HTTP/1.1\r\r\nHost: a\r\n\r\n"), BareCr),
        (raw("GET / HTTP/1.1\r\nHost: a\r\n\rX"), BareCr),
        (raw("GET / HTTP/1.1\r\nHost: a\r\nX: y\rZ\r\n\r\n"), BareCr),
        (raw("GET / HTTP/1.1\r\nHost: a\r\nX\r: y\r\n\r\n"), BareCr),
        (raw("GET / HTTP/1.1\r\nHost: a\r\n\r\r\n"), BareCr),
    ]);
}

#[test]
fn header_lines_are_name_colon_value() {
    let mut rows = vec![
        (post("X : y\r\n"), BadHeaderName),
        (post("X\t: y\r\n"), BadHeaderName),
        (post("no colon\r\n"), BadHeaderName),
        (post("nocolon\r\n"), BadHeaderName),
        (post(": empty\r\n"), BadHeaderName),
        (post(":\r\n"), BadHeaderName),
        (post("X Y: z\r\n"), BadHeaderName),
        (post("X\u{e9}: y\r\n"), BadHeaderName),
        (post("X\u{0}: y\r\n"), BadHeaderName),
        (post(" X: y\r\n"), ObsFold),
        (post("X: y\r\n z\r\n"), ObsFold),
        (post("X: y\r\n\tz\r\n"), ObsFold),
        (raw("GET / HTTP/1.1\r\n Host: a\r\n\r\n"), ObsFold),
    ];
    for byte in b"\"(),/;<=>?@[\\]{}" {
        rows.push((post(&format!("X{}: y\r\n", *byte as char)), BadHeaderName));
    }
    for control in (0..0x20).chain([0x7f]).filter(|byte| !matches!(byte, b'\t' | b'\r' | b'\n')) {
        rows.push((post(&format!("X: a{}b\r\n", control as char)), BadHeaderValue));
        rows.push((post(&format!("X{}: ab\r\n", control as char)), BadHeaderName));
    }
    assert_requests_refused(&rows);
    let every_token = "!#$%&'*+-.^_`|~09azAZ";
    assert_requests_accepted(&[
        (post(&format!("{every_token}: y\r\n")), NONE),
        (post("X:y\r\n"), NONE),
        (post("X:\r\n"), NONE),
        (post("X:   \t \r\n"), NONE),
        (post("X: a\tb \"c\" :d\r\n"), NONE),
    ]);
}

#[test]
fn at_most_two_empty_lines_may_come_first() {
    let mut head = RequestHead::new();
    for input in [
        &b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
        b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        assert_eq!(request_at_every_cut(&mut head, input), Ok(Some(input.len())));
        assert_eq!((head.method(), head.path()), (Method::Get, &b"/"[..]));
        assert_eq!(head.host(), Some(&b"a"[..]));
    }
    assert_requests_refused(&[
        (raw("\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), EmptyStartLine),
        (raw("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), BadMethod),
        (raw("\r\n\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), BadMethod),
        (raw("\rGET / HTTP/1.1\r\nHost: a\r\n\r\n"), BadMethod),
        (raw(" GET / HTTP/1.1\r\nHost: a\r\n\r\n"), BadMethod),
        (raw("\tGET / HTTP/1.1\r\nHost: a\r\n\r\n"), BadMethod),
        (raw("\r\n GET / HTTP/1.1\r\nHost: a\r\n\r\n"), BadMethod),
    ]);
}

#[test]
fn the_request_line_has_two_blanks_and_a_known_version() {
    let line = |line: &str| format!("{line}\r\nHost: a\r\n\r\n").into_bytes();
    assert_requests_refused(&[
        (line("GET"), BadMethod),
        (line("GET /"), BadVersion),
        (line("GET  HTTP/1.1"), BadTarget),
        (line("GET  / HTTP/1.1"), BadVersion),
        (line("GET /  HTTP/1.1"), BadVersion),
        (line("GET / HTTP/1.1 "), BadVersion),
        (line("GET / a HTTP/1.1"), BadVersion),
        (line("GET\t/\tHTTP/1.1"), BadMethod),
        (line("GET /\tHTTP/1.1"), BadVersion),
        (line("GET / "), BadVersion),
        (line("GET / HTTP/1"), BadVersion),
        (line("GET / HTTP/1.32"), BadVersion),
        (line("GET / HTTP/11"), BadVersion),
        (line("GET / http/1.1"), BadVersion),
        (line("GET / HTTP/1.1x"), BadVersion),
        (line("GET / HTTP/+1.1"), BadVersion),
        (line("GET / ICY/1.1"), BadVersion),
        (line("GET / HTTP/0.9"), UnsupportedVersion),
        (line("GET / HTTP/1.2"), UnsupportedVersion),
        (line("GET / HTTP/2.0"), UnsupportedVersion),
        (line("GET / HTTP/9.9"), UnsupportedVersion),
        (raw("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), UnsupportedVersion),
    ]);
    assert_eq!(UnsupportedVersion.kind(), HeadErrorKind::UnsupportedVersion);
}

#[test]
fn methods_are_known_upper_case_tokens_and_never_tunnels() {
    let of = |method: &str| format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes();
    for (name, method) in [
        ("GET", Method::Get),
        ("HEAD", Method::Head),
        ("POST", Method::Post),
        ("PUT", Method::Put),
        ("PATCH", Method::Patch),
        ("DELETE", Method::Delete),
        ("OPTIONS", Method::Options),
        ("PROPFIND", Method::Other),
        ("M-SEARCH", Method::Other),
    ] {
        let head = request(&of(name));
        assert_eq!((head.method(), head.method_bytes()), (method, name.as_bytes()));
    }
    assert_requests_refused(&[
        (of("CONNECT"), MethodRefused),
        (raw("CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n"), MethodRefused),
        (of("TRACE"), MethodRefused),
        (of("get"), BadMethod),
        (of("Post"), BadMethod),
        (of("G\u{0}T"), BadMethod),
        (of("GET,POST"), BadMethod),
        (of("(GET)"), BadMethod),
        (of("G\u{c9}T"), BadMethod),
        (of(&"A".repeat(5000)), BadMethod),
        (raw("\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\u{0}\u{1}\u{fc}\u{3}\u{3}"), BadMethod),
    ]);
    assert_eq!(MethodRefused.kind(), HeadErrorKind::MethodNotAllowed);
}

#[test]
fn a_hopeless_start_is_refused_before_its_line_ends() {
    let mut head = RequestHead::new();
    for start in [&b"\x16\x03\x01"[..], b"<html>", b" ", b"get\0", b"SSH-2.0\r", &[b'A'; 33]] {
        assert_eq!(head.parse(start, &REQUEST_HEAD), Err(BadMethod), "{}", shown(start));
    }
}

#[test]
fn targets_hold_no_byte_a_uri_may_not_hold() {
    let mut rows = vec![
        (get("/a#b"), BadTarget),
        (get("/#"), BadTarget),
        (get("/a\\b"), BadTarget),
        (get("\\"), BadTarget),
        (get("/caf\u{e9}"), BadTarget),
        (get("/\u{0}"), BadTarget),
        (get("/\u{7f}"), BadTarget),
        (get("*"), BadTarget),
        (get("v1/models"), BadTarget),
        (get("fleet:80"), BadTarget),
        (get("?a"), BadTarget),
        (get("http:/fleet/a"), BadTarget),
        (get("ftp://fleet/a"), BadTarget),
        (get("://fleet/a"), BadTarget),
        (get("http://"), BadTarget),
        (get("http:///a"), BadTarget),
        (get("http://user@fleet/a"), BadTarget),
        (get("http://fleet:99999/a"), BadTarget),
        (raw("POST * HTTP/1.1\r\nHost: a\r\n\r\n"), BadTarget),
        (raw("OPTIONS ** HTTP/1.1\r\nHost: a\r\n\r\n"), BadTarget),
    ];
    // Overlong spellings of `/` and raw bytes of UTF-8 are no different from any other byte above
    // 0x7f.
    for byte in [0x80_u8, 0xc0, 0xaf, 0xff] {
        let mut input = get("/aXb");
        input[6] = byte;
        rows.push((input, BadTarget));
    }
    assert_requests_refused(&rows);
    assert_requests_accepted(&[
        (get("/a%20b?c=%0d%0a&d={e|f}"), NONE),
        (get("/v1/models/org~name:7b.gguf"), NONE),
        (get("//double//slash"), NONE),
        (raw("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"), NONE),
    ]);
}

#[test]
fn paths_that_two_readers_resolve_differently_are_refused() {
    let ambiguous = [
        "/v1/../metrics",
        "/..",
        "/.",
        "/./v1",
        "/v1/.",
        "/v1/..?a=b",
        "/v1/%2e%2e/metrics",
        "/v1/.%2E/x",
        "/%2e",
        "/v1%0d%0aX:y",
        "/v1/%00",
        "/v1/%0A",
        "http://fleet/v1/../metrics",
    ];
    let rows: Vec<_> = ambiguous.iter().map(|target| (get(target), AmbiguousPath)).collect();
    assert_requests_refused(&rows);
    let plain = [
        "/...",
        "/v1/..x",
        "/v1/x..",
        "/v1.5/a.b",
        "/%2e%2e%2e",
        "/a?b=../c",
        "/%20",
        "/%",
        "/%0",
        "/%2",
    ];
    let rows: Vec<_> = plain.iter().map(|target| (get(target), NONE)).collect();
    assert_requests_accepted(&rows);
}

#[test]
fn an_absolute_target_becomes_origin_form_when_host_agrees() {
    for (method, target, origin) in [
        ("GET", "http://fleet/v1/models", "/v1/models"),
        ("GET", "HTTPS://FLEET/v1/models?a=b", "/v1/models?a=b"),
        ("GET", "http://fleet", "/"),
        ("GET", "http://fleet?a=/b", "/?a=/b"),
        ("OPTIONS", "http://fleet", "*"),
        ("OPTIONS", "http://fleet/", "/"),
    ] {
        let head = request(format!("{method} {target} HTTP/1.1\r\nHost: fleet\r\n\r\n").as_bytes());
        assert_eq!(shown(head.target()), origin);
        assert_eq!(head.headers().count(), 1);
    }
    assert_eq!(request(&get("http://fleet?a=/b")).path(), b"/");
    assert_eq!(request(&get("http://fleet?a=/b")).query(), Some(&b"a=/b"[..]));
    assert_requests_refused(&[
        (get("http://other/v1/models"), HostMismatch),
        (get("http://fleet:80/v1/models"), HostMismatch),
        (get("http://fleet.example/v1/models"), HostMismatch),
        (raw("GET http://fleet/ HTTP/1.1\r\n\r\n"), MissingHost),
    ]);
}

#[test]
fn there_is_one_host_and_it_is_an_authority() {
    let host = |value: &str| format!("GET / HTTP/1.1\r\nHost:{value}\r\n\r\n").into_bytes();
    assert_requests_refused(&[
        (raw("GET / HTTP/1.1\r\n\r\n"), MissingHost),
        (raw("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"), DuplicateHost),
        (raw("GET / HTTP/1.1\r\nHost: a\r\nhOST: b\r\n\r\n"), DuplicateHost),
        (raw("GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n"), DuplicateHost),
        (raw("GET / HTTP/1.0\r\nHost: a b\r\n\r\n"), BadHost),
    ]);
    let bad = [
        "",
        " ",
        " a, b",
        " a,b",
        " user@a",
        " user:pw@a",
        " a/b",
        " a/",
        " a?b",
        " a#b",
        " http://a",
        " a:",
        " a:x",
        " a:99999",
        " a:000080",
        " a:-1",
        " :80",
        " a b",
        " [::1",
        " []",
        " [::1]x",
        " [::1]80",
        " [gg::1]",
        " ::1",
        " a\\b",
        " caf\u{e9}",
        " a%00b",
        " \"a\"",
    ];
    let rows: Vec<_> = bad.iter().map(|value| (host(value), BadHost)).collect();
    assert_requests_refused(&rows);
    let good = [
        " a",
        "a",
        " fleet.example.com",
        " fleet:8080",
        " 127.0.0.1:80",
        " [::1]",
        " [::1]:8080",
        " my_host-1~x.svc:65535",
        " FLEET",
        " a.",
    ];
    let rows: Vec<_> = good.iter().map(|value| (host(value), NONE)).collect();
    assert_requests_accepted(&rows);
    assert_eq!(request(b"GET / HTTP/1.0\r\n\r\n").host(), None);
}

#[test]
fn connections_persist_as_version_and_options_say() {
    let kept = |version: &str, connection: &str| {
        request(format!("GET / HTTP/{version}\r\nHost: a\r\n{connection}\r\n").as_bytes())
            .keep_alive()
    };
    assert!(kept("1.1", ""));
    assert!(kept("1.1", "Connection: keep-alive\r\n"));
    assert!(kept("1.1", "Connection: Upgrade\r\nUpgrade: h2c\r\n"));
    assert!(kept("1.1", "Connection: , ,\r\n"));
    assert!(!kept("1.1", "Connection: close\r\n"));
    assert!(!kept("1.1", "Connection: keep-alive\r\nConnection: Close\r\n"));
    assert!(!kept("1.1", "connection: x, CLOSE ,keep-alive\r\n"));
    assert!(!kept("1.0", ""));
    assert!(kept("1.0", "Connection: Keep-Alive\r\n"));
    assert!(!kept("1.0", "Connection: keep-alive, close\r\n"));
    assert_requests_refused(&[
        (post("Connection: close host\r\n"), BadConnection),
        (post("Connection: \"close\"\r\n"), BadConnection),
        (post("Connection: Host\r\n"), BadConnection),
        (post("Connection: x, content-length\r\n"), BadConnection),
        (post("Connection: transfer-encoding\r\n"), BadConnection),
    ]);
}

#[test]
fn upgrades_are_ignored_and_trailers_are_heard() {
    let upgrade =
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n";
    assert_requests_accepted(&[(post(upgrade), NONE)]);
    assert!(request(&post("TE: trailers\r\n")).accepts_trailers());
    assert!(request(&post("te: deflate;q=0.5 , Trailers\r\n")).accepts_trailers());
    assert!(!request(&post("TE: deflate\r\n")).accepts_trailers());
}

#[test]
fn no_error_repeats_what_the_client_sent() {
    for (input, secret) in [(get("/secret#"), "secret"), (post("X : secret\r\n"), "secret")] {
        let error = RequestHead::new().parse(&input, &REQUEST_HEAD).unwrap_err();
        assert!(!error.to_string().contains(secret));
        assert!(!format!("{error:?}").contains(secret));
    }
}
