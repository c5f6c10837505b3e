//! The scanner against a naive twin at every split, and the classification of what real engines send.

use super::*;
use EventKind::*;

#[derive(Debug, PartialEq, Eq, Clone)]
struct Seen {
    kind: EventKind,
    name: String,
    data: String,
    has_usage: bool,
    finish: Option<Finish>,
}

fn seen(event: Event<'_>) -> Seen {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let Event { kind, name, data, has_usage, finish, .. } = event;
    Seen { kind, name: text(name), data: text(data), has_usage, finish }
}

fn scan<'a>(dialect: Dialect, slices: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Seen>, bool) {
    let mut scanner = Scanner::new(dialect);
    let mut events = Vec::new();
    for slice in slices {
        let mut input = slice;
        while let Some(event) = scanner.next(&mut input) {
            events.push(seen(event));
        }
        assert!(input.is_empty());
    }
    assert_eq!(scanner.events(), events.len() as u64);
    (events, scanner.is_inside_event())
}

/// The same by splitting the whole text, without any state.
fn naive(dialect: Dialect, stream: &str) -> (Vec<Seen>, bool) {
    let plain = stream.replace("\r\n", "\n").replace('\r', "\n");
    let mut blocks: Vec<&str> = plain.split("\n\n").collect();
    let rest = blocks.pop().unwrap_or_default();
    let events = blocks.into_iter().map(|block| block.trim_start_matches('\n'));
    let events = events.filter(|block| !block.is_empty()).map(|block| naive_event(dialect, block));
    (events.collect(), !rest.trim_matches('\n').is_empty())
}

fn naive_event(dialect: Dialect, block: &str) -> Seen {
    let values = |field: &str| {
        block
            .lines()
            .filter_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
            .map(|value| value.strip_prefix(' ').unwrap_or(value))
            .collect::<Vec<_>>()
    };
    let name = values("event").pop().unwrap_or_default().to_owned();
    let data = values("data").join("\n");
    let Classified { kind, has_usage, finish } =
        kind::classify(dialect, name.as_bytes(), data.as_bytes(), false);
    Seen { kind, name, data, has_usage, finish }
}

const STREAM: &str = concat!(
    ": hello\n\n",
    "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"},\"finish_reason\":null}]}\n\n",
    "event: content_block_delta\r\ndata: {\"type\":\"x\"}\r\n\r\n",
    "\n\n\r\n",
    "id: 7\ndata:one\ndata: two\n\n",
    "data: {\"usage\":{\"prompt_tokens\":1}}\r\rdata\n\n",
    "retry: 5\n\ndata: [DONE]\n\ndata: cut",
);

#[test]
fn every_split_gives_what_the_naive_twin_gives() {
    for dialect in [Dialect::Chat, Dialect::Messages, Dialect::Responses, Dialect::Plain] {
        let expected = naive(dialect, STREAM);
        assert_eq!(expected.0.len(), 8);
        let bytes = STREAM.as_bytes();
        assert_eq!(scan(dialect, [bytes]), expected);
        assert_eq!(scan(dialect, bytes.chunks(1)), expected);
        for first in 0..=bytes.len() {
            for second in (first..=bytes.len()).step_by(3) {
                let slices = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                assert_eq!(scan(dialect, slices), expected, "split at {first} and {second}");
            }
        }
    }
}

#[test]
fn random_streams_in_random_slices_give_what_the_naive_twin_gives() {
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let pieces = [
        "data: x",
        "data:",
        "event: ping",
        ": c",
        "\n",
        "\n",
        "\n\n",
        "\r\n",
        "\r",
        "data: [DONE]",
        "é",
    ];
    for round in 0..2000 {
        let stream: String =
            (0..random.usize(1..25)).map(|_| pieces[random.usize(..pieces.len())]).collect();
        let bytes = stream.as_bytes();
        let mut cuts: Vec<usize> =
            (0..random.usize(..6)).map(|_| random.usize(..=bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let slices = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]);
        assert_eq!(
            scan(Dialect::Chat, slices),
            naive(Dialect::Chat, &stream),
            "seed {seed} round {round}: {stream:?}"
        );
    }
}

#[test]
fn a_complete_event_in_one_slice_is_read_in_place() {
    let mut scanner = Scanner::new(Dialect::Chat);
    let bytes: &[u8] = b"data: {\"a\":1}\n\ndata: rest";
    let mut input = bytes;
    let event = scanner.next(&mut input).expect("an event");
    assert!(bytes.as_ptr_range().contains(&event.data.as_ptr()));
    assert_eq!(scanner.carry.bytes.capacity(), 0);
}

#[test]
fn an_oversized_event_keeps_its_head_and_its_tail() {
    let head = "event: response.completed\ndata: {\"type\":\"response.completed\",\"text\":\"";
    let tail = "\",\"usage\":{\"input_tokens\":5,\"output_tokens\":7}}\n\n";
    for slice in [1000, 16 * 1024, 1 << 20] {
        let stream = format!("{head}{}{tail}", "x".repeat(1 << 20));
        let mut scanner = Scanner::new(Dialect::Responses);
        let mut events = 0;
        for mut input in stream.as_bytes().chunks(slice) {
            while let Some(event) = scanner.next(&mut input) {
                events += 1;
                assert!(event.truncated);
                assert_eq!(event.kind, End);
                assert!(event.has_usage);
                assert!(event.data.len() <= SSE_CARRY_BYTES_MAX);
                assert!(event.data.ends_with(b"\"output_tokens\":7}}"));
            }
            assert!(scanner.carry.bytes.len() <= SSE_CARRY_BYTES_MAX);
        }
        assert_eq!(events, 1);
        assert!(!scanner.is_inside_event());
    }
}

#[test]
fn the_scanner_knows_whether_it_stands_inside_an_event() {
    for (stream, inside) in [
        ("", false),
        ("data: x", true),
        ("data: x\n", true),
        ("data: x\n\n", false),
        ("data: x\r\n\r", false),
        ("data: x\r\n\r\n", false),
        (":\n\n", false),
        (":", true),
        ("\n", false),
    ] {
        assert_eq!(scan(Dialect::Chat, stream.as_bytes().chunks(1)).1, inside, "{stream:?}");
        assert_eq!(scan(Dialect::Chat, [stream.as_bytes()]).1, inside, "{stream:?}");
    }
}

fn kinds(dialect: Dialect, stream: &str) -> Vec<EventKind> {
    scan(dialect, [stream.as_bytes()]).0.into_iter().map(|event| event.kind).collect()
}

#[test]
fn a_chat_stream_is_content_until_its_end_marker() {
    let stream = concat!(
        "data: {\"choices\":[{\"finish_reason\":null,\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null}}],\"object\":\"chat.completion.chunk\"}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"say \\\"error\\\":{} and [DONE]\"},\"finish_reason\":null}]}\n\n",
        ": \n\n",
        "data: {\"choices\":[{\"finish_reason\":\"length\",\"index\":0,\"delta\":{}}],\"timings\":{\"cache_n\":41}}\n\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":13}}\n\n",
        "data: [DONE]\n\n",
    );
    let (events, _) = scan(Dialect::Chat, [stream.as_bytes()]);
    let kinds: Vec<_> = events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [Content, Content, Comment, Content, Content, End]);
    let usage: Vec<_> = events.iter().map(|event| event.has_usage).collect();
    assert_eq!(usage, [false, false, false, true, true, false]);
    assert_eq!(events[3].finish, Some(Finish::Normal));
    assert!(events.iter().filter(|event| event.finish.is_some()).count() == 1);
}

#[test]
fn the_end_marker_counts_only_as_a_whole_data_line() {
    for stream in [
        "data: [DONE] \n\n",
        "data: x[DONE]\n\n",
        "data: [DONE]\ndata: \n\n",
        "data: \"[DONE]\"\n\n",
    ] {
        assert_eq!(kinds(Dialect::Chat, stream), [Content], "{stream:?}");
    }
    assert_eq!(kinds(Dialect::Chat, "data:[DONE]\n\n"), [End]);
}

#[test]
fn error_events_of_every_engine_are_errors() {
    let busy = "data: {\"error\": {\"object\": \"error\", \"message\": \"The request queue is full.\", \"code\": 503}}\n\ndata: [DONE]\n\n";
    assert_eq!(kinds(Dialect::Chat, busy), [Error, End]);
    assert_eq!(kinds(Dialect::Plain, busy), [Error, End]);
    let bare = "data: {\"error\":{\"code\":500,\"message\":\"m\",\"type\":\"server_error\"}}\n\n";
    for dialect in [Dialect::Chat, Dialect::Plain, Dialect::Messages, Dialect::Responses] {
        assert_eq!(kinds(dialect, bare), [Error], "{dialect:?}");
    }
    assert_eq!(
        kinds(Dialect::Chat, "data: {\"id\":\"x\",\"error\":{\"message\":\"m\"}}\n\n"),
        [Error]
    );
    assert_eq!(
        kinds(Dialect::Chat, "data: {\"id\":\"x\",\"error\":null,\"choices\":[]}\n\n"),
        [Content]
    );
    assert_eq!(kinds(Dialect::Chat, "data: {\"choices\":[{\"error\":{}}]}\n\n"), [Content]);
    assert_eq!(kinds(Dialect::Plain, "error: {\"code\":500,\"message\":\"m\"}\n\n"), [Error]);
    let messages =
        "event: error\ndata: {\"code\":500,\"message\":\"m\",\"type\":\"server_error\"}\n\n";
    assert_eq!(kinds(Dialect::Messages, messages), [Error]);
    let failed = "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{}}\n\n";
    assert_eq!(kinds(Dialect::Responses, failed), [Error]);
    assert_eq!(
        kinds(Dialect::Responses, "data: {\"type\":\"error\",\"message\":\"m\"}\n\n"),
        [Error]
    );
}

#[test]
fn a_messages_stream_begins_with_a_preamble() {
    let stream = concat!(
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":1}}}\n\n",
        "event: ping\ndata: {\"type\": \"ping\"}\n\n",
        "event: content_block_start\ndata: {\"type\":\"content_block_start\"}\n\n",
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":2}}\n\n",
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        "data: {\"index\":0,\"type\":\"message_stop\"}\n\n",
    );
    let (events, _) = scan(Dialect::Messages, [stream.as_bytes()]);
    let kinds: Vec<_> = events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [Preamble, Ping, Content, Content, End, End]);
    assert!(events[0].has_usage && events[3].has_usage && !events[2].has_usage);
}

#[test]
fn a_responses_stream_begins_with_a_preamble() {
    let stream = concat!(
        "event: response.created\ndata: {\"type\":\"response.created\"}\n\n",
        "data: {\"type\":\"response.in_progress\"}\n\n",
        "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"\\\"error\\\"\"}\n\n",
        "event: keepalive\ndata: {\"type\":\"keepalive\"}\n\n",
        "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":1}}}\n\n",
    );
    let (events, _) = scan(Dialect::Responses, [stream.as_bytes()]);
    let kinds: Vec<_> = events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [Preamble, Preamble, Content, Ping, End]);
    assert!(events[4].has_usage);
}

#[test]
fn an_abort_by_the_engine_is_told_from_a_normal_end() {
    for (stream, finish) in [
        ("data: {\"choices\":[{\"finish_reason\":\"abort\"}]}\n\n", Some(Finish::Aborted)),
        ("data: {\"choices\":[{\"finish_reason\": \"stop\"}]}\n\n", Some(Finish::Normal)),
        ("data: {\"choices\":[{\"finish_reason\":null}]}\n\n", None),
        (
            "data: {\"meta_info\":{\"finish_reason\":{\"type\":\"abort\",\"message\":\"m\"}}}\n\n",
            Some(Finish::Aborted),
        ),
        (
            "data: {\"meta_info\":{\"finish_reason\":{\"type\": \"length\",\"length\":3}}}\n\n",
            Some(Finish::Normal),
        ),
    ] {
        assert_eq!(scan(Dialect::Plain, [stream.as_bytes()]).0[0].finish, finish, "{stream}");
    }
}

#[test]
fn llama_cpps_own_stream_ends_with_stop() {
    let stream = concat!(
        "data: {\"content\":\" \\\"stop\\\":true\",\"stop\":false}\n\n",
        "data: {\"content\":\"\",\"stop\":true,\"timings\":{\"cache_n\":1}}\n\n",
    );
    assert_eq!(kinds(Dialect::Plain, stream), [Content, End]);
}
