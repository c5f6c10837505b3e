//! Any bytes as a stream of events, cut anywhere: the scanner sees the same events however the stream arrives, and a frame
//! of ours put behind any prefix is read as an event of its own.
#![no_main]

use libfuzzer_sys::fuzz_target;
use proxy::answer::{Breakage, FrameFacts, classify_error, engine_error_frame, failure_frame};
use proxy::api::Dialect;
use proxy::limits::SSE_CARRY_BYTES_MAX;
use proxy::sse::{EventKind, Finish, Scanner};
use proxy::usage::{Meter, Usage, from_reply};

const DIALECTS: [Dialect; 4] =
    [Dialect::Chat, Dialect::Responses, Dialect::Messages, Dialect::Plain];

type Seen = (EventKind, Vec<u8>, Vec<u8>, bool, Option<Finish>);

fn scan<'a>(
    dialect: Dialect,
    slices: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<Seen>, Option<Usage>, Scanner) {
    let (mut scanner, mut meter) = (Scanner::new(dialect), Meter::default());
    let mut events = Vec::new();
    for mut slice in slices {
        while let Some(event) = scanner.next(&mut slice) {
            meter.observe(&event);
            let (name, data) = (event.name.to_vec(), event.data.to_vec());
            events.push((event.kind, name, data, event.has_usage, event.finish));
        }
        assert!(slice.is_empty());
    }
    (events, meter.usage(), scanner)
}

fuzz_target!(|data: &[u8]| {
    let [first, step, stream @ ..] = data else { return };
    if stream.len() > SSE_CARRY_BYTES_MAX {
        return;
    }
    let dialect = DIALECTS[usize::from(*first) % DIALECTS.len()];
    let (whole, usage, mut scanner) = scan(dialect, [stream]);
    let (pieces, piecewise, _) = scan(dialect, stream.chunks(usize::from(*step).max(1)));
    assert_eq!(whole, pieces);
    assert_eq!(usage, piecewise);
    let facts = FrameFacts {
        inside_event: scanner.is_inside_event(),
        events: scanner.events(),
        request_id: "r",
    };
    for (_, _, data, ..) in &whole {
        let _ = classify_error(data);
        let _ = engine_error_frame(dialect, data, &facts);
    }
    let frame = failure_frame(dialect, Breakage::UpstreamFailed, &facts);
    let mut rest = frame.as_slice();
    let mut last = None;
    while let Some(event) = scanner.next(&mut rest) {
        last = Some(event.kind);
    }
    assert_eq!(last, Some(EventKind::Error));
    assert!(!scanner.is_inside_event());
    let _ = from_reply(stream);
});
