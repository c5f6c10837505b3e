//! The hot functions, each in a function of its own that the profile names. What is prepared for them is not counted.

mod lookup;
mod planning;

use std::hint::black_box;

use bench::sample;
use index::{BackendId, ConversationKey, FingerprintKey, Fingerprinter};
use proxy::access_log::append_line;
use proxy::api::{Api, Dialect};
use proxy::clock::{Micros, Stamper};
use proxy::http::{ChunkedReader, HeadLimits, RequestHead};
use proxy::limits::{REQUEST_HEAD, RESPONSE_CHUNKS};
use proxy::published::Upstream;
use proxy::record::{End, Record, Times};
use proxy::sse::Scanner;
use proxy::usage::Usage;

/// Operations a case is counted over.
pub(crate) const ROUNDS: u64 = 32;

/// Every case; `case_` and the name is its function.
pub(crate) const NAMES: [&str; 9] = [
    "head_parse",
    "plan_4_kb",
    "plan_100_kb",
    "fingerprint_100_kb",
    "pick_of_1000",
    "event_scan",
    "chunk_read",
    "access_log_json",
    "access_log_text",
];

/// Canonical bytes a block, the default.
const BLOCK_BYTES: u32 = 128;

/// Runs every case so often. Returns a checksum.
pub(crate) fn run(rounds: u64) -> u64 {
    head(rounds)
        ^ planning::run(rounds)
        ^ fingerprint(rounds)
        ^ lookup::run(rounds)
        ^ events(rounds)
        ^ lines(rounds)
}

/// Repeats an operation; inlined into its case, so that the case is all the profile sees of it.
#[inline(always)]
fn repeat(rounds: u64, mut operation: impl FnMut() -> u64) -> u64 {
    (0..rounds).fold(0, |sum, _| sum ^ black_box(operation()))
}

fn head(rounds: u64) -> u64 {
    let mut head = RequestHead::new();
    // Its tables grow with the first head, and then no more.
    parse(&mut head);
    case_head_parse(&mut head, rounds)
}

#[inline(never)]
fn case_head_parse(head: &mut RequestHead, rounds: u64) -> u64 {
    repeat(rounds, || parse(head))
}

fn parse(head: &mut RequestHead) -> u64 {
    let limits = HeadLimits { bytes_max: 32 * 1024, ..REQUEST_HEAD };
    match head.parse(black_box(sample::HEAD), &limits) {
        Ok(Some(consumed)) => consumed as u64,
        _ => 0,
    }
}

fn fingerprint(rounds: u64) -> u64 {
    let text = sample::chat(100_000);
    case_fingerprint_100_kb(text.as_bytes(), rounds)
}

#[inline(never)]
fn case_fingerprint_100_kb(text: &[u8], rounds: u64) -> u64 {
    repeat(rounds, || {
        let mut canon = Fingerprinter::new(FingerprintKey::new(7), BLOCK_BYTES);
        // Texts come in pieces between frames of a few bytes.
        text.chunks(1_500).for_each(|piece| {
            canon.push(b"\"m");
            canon.push(piece);
        });
        canon.finish().blocks.last().map_or(0, |hash| hash.0)
    })
}

fn events(rounds: u64) -> u64 {
    let event = sample::event();
    let chunk = format!("{:x}\r\n{event}\r\n", event.len());
    let mut scanner = Scanner::new(Dialect::Chat);
    let mut chunks = ChunkedReader::new(RESPONSE_CHUNKS);
    case_event_scan(&mut scanner, event.as_bytes(), rounds)
        ^ case_chunk_read(&mut chunks, chunk.as_bytes(), rounds)
}

#[inline(never)]
fn case_event_scan(scanner: &mut Scanner, event: &[u8], rounds: u64) -> u64 {
    repeat(rounds, || {
        scanner.feed(black_box(event));
        scanner.events()
    })
}

#[inline(never)]
fn case_chunk_read(chunks: &mut ChunkedReader, chunk: &[u8], rounds: u64) -> u64 {
    repeat(rounds, || {
        let mut bytes = 0;
        let fed = chunks.feed(black_box(chunk), |payload| bytes += payload.len() as u64);
        bytes + u64::from(fed.is_ok())
    })
}

fn lines(rounds: u64) -> u64 {
    let (record, upstreams) = (record(), [Upstream::new("engine-a", "10.0.0.1:8000")]);
    let mut out = Vec::with_capacity(1024);
    case_access_log_json(&mut out, &record, &upstreams, rounds)
        ^ case_access_log_text(&mut out, &record, &upstreams, rounds)
}

#[inline(never)]
fn case_access_log_json(
    out: &mut Vec<u8>,
    record: &Record,
    upstreams: &[Upstream],
    rounds: u64,
) -> u64 {
    log(out, config::LogFormat::Json, record, upstreams, rounds)
}

#[inline(never)]
fn case_access_log_text(
    out: &mut Vec<u8>,
    record: &Record,
    upstreams: &[Upstream],
    rounds: u64,
) -> u64 {
    log(out, config::LogFormat::Text, record, upstreams, rounds)
}

#[inline(always)]
fn log(
    out: &mut Vec<u8>,
    format: config::LogFormat,
    record: &Record,
    upstreams: &[Upstream],
    rounds: u64,
) -> u64 {
    let mut stamper = Stamper::default();
    repeat(rounds, || {
        out.clear();
        append_line(out, format, &mut stamper, black_box(record), 1_795_953_697_980, upstreams);
        out.len() as u64
    })
}

fn record() -> Record {
    let at = |micros: u64| Some(Micros(1_000 + micros));
    let what = (Api::ChatCompletions, "POST", "/v1/chat/completions".into());
    Record {
        model: Some("meta-llama/Llama-3.1-8B-Instruct".into()),
        backend: Some(BackendId(0)),
        status: 200,
        end: End::Complete,
        attempts: 1,
        times: Times {
            head: Micros(1_000),
            body: at(7),
            placed: at(21),
            connected: at(21),
            sent: at(63),
            reply_head: at(50_123),
            first_byte: at(60_001),
            end: Micros(2_101_017),
        },
        request_bytes: 6_000,
        reply_bytes: 90_123,
        streamed: true,
        events: 129,
        canonical_bytes: 5_120,
        prompt_tokens_estimate: 1_280,
        usage: Some(Usage { prompt_tokens: 1_281, cached_tokens: Some(1_024), output_tokens: 128 }),
        conversation: Some(ConversationKey(0x1234_5678_9abc_def0)),
        ..Record::of_head(0x9e37_79b9_7f4a_7c15, 3, what, Micros(1_000))
    }
}
