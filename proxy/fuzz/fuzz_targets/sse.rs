//! Any bytes as a stream of events, cut anywhere: the scanner sees the same however the stream arrives, and
//! a frame of ours put behind any prefix is read as an event of its own.
#![no_main]

use libfuzzer_sys::fuzz_target;
use proxy::answer::write_broken_frame;
use proxy::api::Dialect;
use proxy::classify::{classify_error, classify_reply};
use proxy::limits::SSE_CARRY_BYTES_MAX;
use proxy::published::EngineKind;
use proxy::sse::Scanner;
use proxy::usage::{Usage, of_tail};

const DIALECTS: [Dialect; 4] =
    [Dialect::Chat, Dialect::Responses, Dialect::Messages, Dialect::Plain];

type Seen = (bool, bool, bool, Option<Vec<u8>>, u64, Option<Usage>);

fn scan<'a>(dialect: Dialect, slices: impl IntoIterator<Item = &'a [u8]>) -> (Seen, Scanner) {
    let mut scanner = Scanner::new(dialect);
    for slice in slices {
        // It stops before an error that is not in the dialect.
        if scanner.feed(slice) > 0 {
            break;
        }
    }
    let seen = (
        scanner.is_decided(),
        scanner.has_ended(),
        scanner.was_aborted(),
        scanner.error().map(<[u8]>::to_vec),
        scanner.events(),
        scanner.usage(),
    );
    (seen, scanner)
}

fuzz_target!(|data: &[u8]| {
    let [first, step, stream @ ..] = data else { return };
    // Of a longer line the middle is dropped, and where depends on the cuts.
    if stream.len() > SSE_CARRY_BYTES_MAX {
        return;
    }
    let dialect = DIALECTS[usize::from(*first) % DIALECTS.len()];
    let (whole, mut scanner) = scan(dialect, [stream]);
    let (pieces, _) = scan(dialect, stream.chunks(usize::from(*step).max(1)));
    assert_eq!(whole, pieces);
    let mut frame = if scanner.is_inside_event() { b"\n\n".to_vec() } else { Vec::new() };
    write_broken_frame(&mut frame, dialect, scanner.events());
    // A line that was cut off may be an error in another dialect, once it is ended: there scanning stops.
    let stops = scanner.feed(&frame) > 0 && !stream.ends_with(b"\n");
    let error = scanner.error().expect("there is one");
    assert!(stops || !scanner.is_inside_event());
    let _ = classify_error(EngineKind::Unknown, error);
    if let Some(usage) = of_tail(stream) {
        assert!(usage.cached_tokens.is_none_or(|cached| cached <= usage.prompt_tokens));
    }
    let _ = classify_reply(EngineKind::Unknown, u16::from(*step) + 400, stream);
});
