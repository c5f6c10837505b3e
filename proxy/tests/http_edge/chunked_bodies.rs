//! Chunked bodies: a table of bytes and verdicts at every cut, limits, and a naive twin under
//! random damage.

use proxy::http::ChunkError::{self, *};
use proxy::http::{CHUNK_END, ChunkLimits, ChunkedReader, LAST_CHUNK, write_chunk_head};
use proxy::limits::REQUEST_CHUNKS;

use crate::support::shown;

/// Payload, bytes consumed, and whether the body was complete.
type Read = Result<(Vec<u8>, usize, bool), ChunkError>;

/// Feeds `pieces` one after the other.
fn read_pieces<'a>(limits: ChunkLimits, pieces: impl IntoIterator<Item = &'a [u8]>) -> Read {
    let mut reader = ChunkedReader::new(limits);
    let (mut payload, mut consumed, mut done) = (Vec::new(), 0, false);
    for piece in pieces {
        let fed = reader.feed(piece, |run| payload.extend_from_slice(run));
        match fed {
            Ok(fed) => {
                assert!(fed.done || fed.consumed == piece.len(), "left bytes of an open body");
                assert_eq!(fed.done, reader.is_done());
                consumed += fed.consumed;
                done = fed.done;
            }
            Err(error) => {
                assert_eq!(reader.feed(b"0\r\n\r\n", |_| ()), Err(error), "an error is forgotten");
                assert_eq!(reader.feed(b"", |_| ()), Err(error), "an error is forgotten");
                return Err(error);
            }
        }
    }
    assert_eq!(reader.payload_bytes(), payload.len() as u64);
    Ok((payload, consumed, done))
}

/// Reads `input` whole, in two pieces cut anywhere, and byte by byte; all agree.
fn read(limits: ChunkLimits, input: &[u8]) -> Read {
    let whole = read_pieces(limits, [input]);
    for cut in 0..=input.len() {
        let (left, right) = input.split_at(cut);
        assert_eq!(read_pieces(limits, [left, right]), whole, "cut at {cut} of {}", shown(input));
    }
    assert_eq!(read_pieces(limits, input.chunks(1)), whole, "byte by byte: {}", shown(input));
    whole
}

#[test]
fn whole_bodies_give_their_payload_and_leave_the_rest() {
    let rows: &[(&[u8], &[u8], usize)] = &[
        (b"0\r\n\r\n", b"", 5),
        (b"4\r\nwiki\r\n0\r\n\r\n", b"wiki", 14),
        (b"4\r\nwiki\r\n6\r\npedia \r\n0\r\n\r\n", b"wikipedia ", 25),
        (b"1\r\n\r\r\n1\r\n\n\r\n0\r\n\r\n", b"\r\n", 17),
        (b"a\r\n0123456789\r\n0\r\n\r\n", b"0123456789", 20),
        (b"A\r\n0123456789\r\n000\r\n\r\n", b"0123456789", 22),
        (b"000000000000000a\r\n0123456789\r\n0\r\n\r\n", b"0123456789", 35),
        (b"4;a\r\nwiki\r\n0;b=c\r\n\r\n", b"wiki", 20),
        (b"4; a=\"b;c\" ;d\r\nwiki\r\n0\r\n\r\n", b"wiki", 26),
        (b"0\r\nX: y\r\n\r\n", b"", 11),
        (b"0\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\nHost: b\r\nAuthorization:\r\n\r\n", b"",
            77),
        (b"0\r\n\r\n0\r\n\r\n", b"", 5),
        (b"0\r\n\r\nGET / HTTP/1.1\r\n", b"", 5),
    ];
    for (input, payload, consumed) in rows {
        let expected = Ok((payload.to_vec(), *consumed, true));
        assert_eq!(read(REQUEST_CHUNKS, input), expected, "{}", shown(input));
    }
}

#[test]
fn bodies_cut_short_are_never_complete() {
    let rows: &[&[u8]] = &[
        b"",
        b"4",
        b"4\r",
        b"4\r\n",
        b"4\r\nwi",
        b"4\r\nwiki",
        b"4\r\nwiki\r",
        b"4\r\nwiki\r\n",
        b"4\r\nwiki\r\n0",
        b"0\r\n",
        b"0\r\n\r",
        b"0\r\nX: y\r\n",
        b"ffffffffffffffff\r\n",
    ];
    for input in rows {
        let (_, consumed, done) = read(REQUEST_CHUNKS, input).unwrap();
        assert_eq!((consumed, done), (input.len(), false), "{}", shown(input));
    }
}

#[test]
fn anything_else_is_refused() {
    let rows: &[(&[u8], ChunkError)] = &[
        (b"4\nwiki\r\n0\r\n\r\n", BadLineEnd),
        (b"4\rwiki\r\n0\r\n\r\n", BadLineEnd),
        (b"4\r\nwiki\n0\r\n\r\n", BadDataEnd),
        (b"4\r\nwiki\r0\r\n\r\n", BadDataEnd),
        (b"4\r\nwiki0\r\n\r\n", BadDataEnd),
        (b"4\r\nwikipedia\r\n0\r\n\r\n", BadDataEnd),
        (b"5\r\nwiki\r\n0\r\n\r\n", BadDataEnd),
        (b"0x4\r\nwiki\r\n0\r\n\r\n", BadSize),
        (b"4_0\r\nwiki\r\n", BadSize),
        (b"+4\r\nwiki\r\n", BadSize),
        (b"-4\r\nwiki\r\n", BadSize),
        (b" 4\r\nwiki\r\n", BadSize),
        (b"4 \r\nwiki\r\n", BadSize),
        (b"4\t\r\nwiki\r\n", BadSize),
        (b"4 ;a\r\nwiki\r\n", BadSize),
        (b"g\r\n", BadSize),
        (b"\"4\"\r\nwiki\r\n", BadSize),
        (b"4,4\r\nwiki\r\n", BadSize),
        (b"4.0\r\nwiki\r\n", BadSize),
        (b"\0\r\n", BadSize),
        (b"\r\n", BadSize),
        (b"\r\n0\r\n\r\n", BadSize),
        (b"\n", BadLineEnd),
        (b";a\r\n", BadSize),
        (b"4\r\nwiki\r\n\r\n0\r\n\r\n", BadSize),
        (b"00000000000000004\r\nwiki\r\n", SizeOverflow),
        (b"10000000000000000\r\n", SizeOverflow),
        (b"fffffffffffffffff\r\n", SizeOverflow),
        (b"4;\r\nwiki\r\n0\r\n\r\n", BadExtension),
        (b"4; \r\nwiki\r\n0\r\n\r\n", BadExtension),
        (b"4;=\r\nwiki\r\n", BadExtension),
        (b"4;;a\r\nwiki\r\n", BadExtension),
        (b"4;a\nwiki\r\n", BadLineEnd),
        (b"4;\nwiki\r\n", BadLineEnd),
        (b"4;a=\"\n\"\r\nwiki\r\n", BadLineEnd),
        (b"4;a=\"\r\"\r\nwiki\r\n", BadLineEnd),
        (b"4;a\rwiki\r\n", BadLineEnd),
        (b"4;a\0\r\nwiki\r\n", BadExtension),
        (b"4;a\x7f\r\nwiki\r\n", BadExtension),
        (b"0\r\nXX\r\n\r\n", BadTrailer),
        (b"0\r\nXX\n\r\n", BadLineEnd),
        (b"0\r\n: y\r\n\r\n", BadTrailer),
        (b"0\r\nX : y\r\n\r\n", BadTrailer),
        (b"0\r\n X: y\r\n\r\n", BadTrailer),
        (b"0\r\nX: y\r\n z\r\n\r\n", BadTrailer),
        (b"0\r\nX: \0\r\n\r\n", BadTrailer),
        (b"0\r\nX: y\n\r\n", BadLineEnd),
        (b"0\r\nX: y\rz\r\n\r\n", BadLineEnd),
        (b"0\r\n\n", BadLineEnd),
        (b"0\r\n\rX", BadLineEnd),
        (b"0\n\r\n", BadLineEnd),
        (b"0\r\nGET / HTTP/1.1\r\n", BadTrailer),
    ];
    for (input, error) in rows {
        assert_eq!(read(REQUEST_CHUNKS, input), Err(*error), "{}", shown(input));
    }
}

#[test]
fn extensions_have_a_limit_over_the_whole_body() {
    let limits = ChunkLimits { extension_bytes_max: 10, ..REQUEST_CHUNKS };
    assert!(read(limits, b"1;aaaa\r\nx\r\n0;bbbb\r\n\r\n").is_ok());
    assert_eq!(read(limits, b"1;aaaa\r\nx\r\n0;bbbbb\r\n\r\n"), Err(ExtensionTooLong));
    let endless = [b"1;".to_vec(), vec![b'a'; 64 * 1024]].concat();
    assert_eq!(read_pieces(REQUEST_CHUNKS, [&endless[..]]), Err(ExtensionTooLong));
    let blanks = [b"1;".to_vec(), vec![b' '; 64 * 1024]].concat();
    assert_eq!(read_pieces(REQUEST_CHUNKS, [&blanks[..]]), Err(ExtensionTooLong));
    let none = ChunkLimits { extension_bytes_max: 0, ..REQUEST_CHUNKS };
    assert!(read(none, b"1\r\nx\r\n0\r\n\r\n").is_ok());
    assert_eq!(read(none, b"1;a\r\nx\r\n0\r\n\r\n"), Err(ExtensionTooLong));
}

#[test]
fn trailers_have_limits_in_bytes_and_fields() {
    let bytes = ChunkLimits { trailer_bytes_max: 12, ..REQUEST_CHUNKS };
    assert!(read(bytes, b"0\r\nX: y\r\nZ: w\r\n\r\n").is_ok());
    assert_eq!(read(bytes, b"0\r\nX: y\r\nZ: ww\r\n\r\n"), Err(TrailersTooLarge));
    let fields = ChunkLimits { trailers_max: 2, ..REQUEST_CHUNKS };
    assert!(read(fields, b"0\r\nX: y\r\nZ: w\r\n\r\n").is_ok());
    assert_eq!(read(fields, b"0\r\nX: y\r\nZ: w\r\nV: u\r\n\r\n"), Err(TrailersTooLarge));
}

#[test]
fn the_position_inside_a_body_is_known_at_every_byte() {
    let input = b"3\r\nabc\r\n0\r\n\r\n";
    let mut reader = ChunkedReader::new(REQUEST_CHUNKS);
    let mut seen = vec![(reader.payload_left_in_chunk(), reader.at_chunk_boundary())];
    for byte in input {
        reader.feed(&[*byte], |_| ()).unwrap();
        seen.push((reader.payload_left_in_chunk(), reader.at_chunk_boundary()));
    }
    let inside = |left| (Some(left), false);
    let neither = (None, false);
    let expected = [
        (None, true),
        neither,
        neither,
        inside(3),
        inside(2),
        inside(1),
        inside(0),
        neither,
        (None, true),
        neither,
        neither,
        neither,
        neither,
        neither,
    ];
    assert_eq!(seen, expected);
    assert!(reader.is_done());
}

#[test]
fn a_relay_learns_of_what_it_should_drop() {
    let mut reader = ChunkedReader::new(REQUEST_CHUNKS);
    reader.feed(b"1\r\na\r\n", |_| ()).unwrap();
    assert_eq!((reader.extension_bytes(), reader.trailer_fields()), (0, 0));
    reader.feed(b"1;x=y\r\na\r\n0\r\nA: b\r\nC:\r\n\r\n", |_| ()).unwrap();
    assert_eq!((reader.extension_bytes(), reader.trailer_fields()), (4, 2));
}

#[test]
fn payload_is_handed_on_in_place_and_in_one_run() {
    let body = [b"2000\r\n".to_vec(), vec![b'x'; 0x2000], b"\r\n0\r\n\r\n".to_vec()].concat();
    let mut runs = Vec::new();
    let mut reader = ChunkedReader::new(REQUEST_CHUNKS);
    reader.feed(&body, |run| runs.push((run.as_ptr(), run.len()))).unwrap();
    assert_eq!(runs, [(body[6..].as_ptr(), 0x2000)]);
}

#[test]
fn what_is_written_is_read_back() {
    for len in [1, 9, 10, 15, 16, 255, 256, 4096, 65_537] {
        let mut out = Vec::new();
        write_chunk_head(&mut out, len);
        assert_eq!(out, format!("{len:x}\r\n").as_bytes());
        out.extend(std::iter::repeat_n(b'x', len));
        out.extend_from_slice(CHUNK_END);
        out.extend_from_slice(LAST_CHUNK);
        assert_eq!(read_pieces(REQUEST_CHUNKS, [&out[..]]), Ok((vec![b'x'; len], out.len(), true)));
    }
    let mut out = Vec::new();
    write_chunk_head(&mut out, usize::MAX);
    assert_eq!(out, format!("{:x}\r\n", usize::MAX).as_bytes());
    out.clear();
    write_chunk_head(&mut out, 0);
    assert!(out.is_empty(), "a chunk of nothing would end the body");
}

/// The same grammar over a whole body, written for clarity: payload and bytes consumed, `Ok(None)`
/// when it is cut short.
fn read_naively(input: &[u8]) -> Result<Option<(Vec<u8>, usize)>, ()> {
    let mut payload = Vec::new();
    let mut at = 0;
    loop {
        let Some(line) = naive_line(&input[at..])? else { return Ok(None) };
        at += line.len() + 2;
        let size = naive_size(line)?;
        if size == 0 {
            break;
        }
        let Some(end) = at.checked_add(size).filter(|end| *end + 2 <= input.len()) else {
            return Ok(None);
        };
        payload.extend_from_slice(&input[at..end]);
        if &input[end..end + 2] != b"\r\n" {
            return Err(());
        }
        at = end + 2;
    }
    loop {
        let Some(line) = naive_line(&input[at..])? else { return Ok(None) };
        at += line.len() + 2;
        if line.is_empty() {
            return Ok(Some((payload, at)));
        }
        let colon = line.iter().position(|&byte| byte == b':').ok_or(())?;
        if colon == 0 || !line[..colon].iter().all(is_token) || !line[colon..].iter().all(is_text) {
            return Err(());
        }
    }
}

fn naive_line(rest: &[u8]) -> Result<Option<&[u8]>, ()> {
    match rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
        Some(stop) if rest[stop..].starts_with(b"\r\n") => Ok(Some(&rest[..stop])),
        Some(stop) if rest[stop..] == *b"\r" => Ok(None),
        Some(_) => Err(()),
        None => Ok(None),
    }
}

fn naive_size(line: &[u8]) -> Result<usize, ()> {
    let text = String::from_utf8_lossy(line).into_owned();
    let (size, extension) = match text.split_once(';') {
        Some((size, extension)) => (size, Some(extension)),
        None => (text.as_str(), None),
    };
    if let Some(extension) = extension {
        let name = extension.trim_start_matches([' ', '\t']);
        let named = name.bytes().next().is_some_and(|byte| is_token(&byte));
        let clean = line.iter().skip(size.len() + 1).all(is_text);
        if !named || !clean {
            return Err(());
        }
    }
    let digits =
        (1..=16).contains(&size.len()) && size.bytes().all(|byte| byte.is_ascii_hexdigit());
    if digits { usize::from_str_radix(size, 16).map_err(drop) } else { Err(()) }
}

fn is_token(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte)
}

fn is_text(byte: &u8) -> bool {
    *byte == b'\t' || (*byte >= 0x20 && *byte != 0x7f)
}

fn random_body(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut body = Vec::new();
    let extensions: [&str; 5] = ["", "", ";a", "; name=\"a;b\"", ";x=y;z"];
    for _ in 0..random.usize(0..5) {
        let size = if random.u8(..4) == 0 { random.usize(1..200) } else { random.usize(1..8) };
        let text = if random.bool() { format!("{size:x}") } else { format!("{size:04X}") };
        body.extend_from_slice(text.as_bytes());
        body.extend_from_slice(extensions[random.usize(..5)].as_bytes());
        body.extend_from_slice(b"\r\n");
        body.extend((0..size).map(|_| b"ab\r\n0;"[random.usize(..6)]));
        body.extend_from_slice(b"\r\n");
    }
    let ends: [&[u8]; 4] =
        [b"0\r\n\r\n", b"0\r\n\r\nsurplus", b"0\r\nX: y\r\nZ:\r\n\r\n", b"00;e\r\n\r\n"];
    body.extend_from_slice(ends[random.usize(..4)]);
    body
}

fn damage(random: &mut fastrand::Rng, body: &mut Vec<u8>) {
    const BYTES: &[u8] = b"\r\n\r\n0123456789abcfgxX;:= \t\"\0\x7f\xff-+_";
    for _ in 0..random.usize(0..4) {
        if body.is_empty() {
            return;
        }
        let at = random.usize(..body.len());
        let byte = BYTES[random.usize(..BYTES.len())];
        match random.u8(..4) {
            0 => body[at] = byte,
            1 => body.insert(at, byte),
            2 => drop(body.remove(at)),
            _ => body.truncate(at + 1),
        }
    }
}

/// Bytes that might have followed. If none of them makes a whole body of the twin's "cut short", it
/// was bad already.
const CONTINUATIONS: [&[u8]; 9] = [
    b"\r\n0\r\n\r\n",
    b"\n0\r\n\r\n",
    b"0\r\n\r\n",
    b"\r\n\r\n",
    b"\n\r\n",
    b"\n",
    b":\r\n\r\n",
    b"a\r\n0\r\n\r\n",
    b"a\r\n\r\n",
];

#[test]
fn reader_and_naive_twin_agree_on_damaged_bodies() {
    for seed in 0..20_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut body = random_body(&mut random);
        damage(&mut random, &mut body);
        let cut = random.usize(..=body.len());
        let (left, right) = body.split_at(cut);
        let ours = read_pieces(REQUEST_CHUNKS, [left, right]);
        let said = || format!("seed {seed}: {} gave {ours:?}", shown(&body));
        match read_naively(&body) {
            Ok(Some((payload, consumed))) => {
                assert_eq!(ours, Ok((payload, consumed, true)), "{}", said())
            }
            Err(()) => assert!(ours.is_err(), "{}", said()),
            // The twin judges whole lines; the reader may refuse one before its end, when nothing
            // can save it.
            Ok(None) => match ours {
                Ok((_, _, done)) => assert!(!done, "{}", said()),
                Err(_) => {
                    assert!(CONTINUATIONS.iter().all(|more| !completes(&body, more)), "{}", said())
                }
            },
        }
    }
}

fn completes(body: &[u8], more: &[u8]) -> bool {
    matches!(read_naively(&[body, more].concat()), Ok(Some(_)))
}

#[test]
fn bytes_given_back_are_not_consumed_and_stand_next() {
    let mut reader = ChunkedReader::new(REQUEST_CHUNKS);
    let body = b"3\r\nabc\r\n5\r\ndefgh\r\n0\r\n\r\n";
    let mut seen = Vec::new();
    let fed = reader
        .feed_until(body, |run| {
            seen.push(run.to_vec());
            if run == b"defgh" { 4 } else { 0 }
        })
        .unwrap();
    assert_eq!((fed.consumed, fed.done), (b"3\r\nabc\r\n5\r\nd".len(), false));
    assert_eq!(seen, [b"abc".to_vec(), b"defgh".to_vec()]);
    assert_eq!(reader.payload_left_in_chunk(), Some(4));
    let rest = reader.feed(&body[fed.consumed..], |run| seen.push(run.to_vec())).unwrap();
    assert!(rest.done && seen[2] == b"efgh");
}
