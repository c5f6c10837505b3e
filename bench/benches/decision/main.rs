//! What a decision costs, step by step, by the size and shape of the body: reading, canonical form, hashing, lookup, pick,
//! reserving. Each is given beside a lower bound measured in the same rounds: one hash over the body's bytes and the
//! fastest structural pass of several readers. With `--json FILE` the rows are kept with the machine's facts.

mod bodies;
mod fleet;
mod readers;
mod steps;

use bench::Bench;
use proxy::api::Dialect;
use proxy::http::{HeadLimits, RequestHead};
use proxy::limits::REQUEST_HEAD;
use proxy::sse::Scanner;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Backends of the decisions measured.
const BACKENDS: u16 = 1_000;

fn main() {
    let bench = Bench::from_args();
    head(&bench);
    events(&bench);
    let mut stage = fleet::Stage::new(BACKENDS);
    for (size, bytes) in [("4 KB", 4_000), ("100 KB", 100_000), ("2 MB", 2_000_000)] {
        for shape in bodies::SHAPES {
            let name = format!("{size} {}", shape.name);
            if bench.wants(&name) {
                let bodies = (0..shape.count(bytes)).map(|seed| (shape.make)(bytes, seed));
                steps::measure(&bench, &name, shape.api, &bodies.collect::<Vec<_>>(), &mut stage);
            }
        }
    }
    if bench.wants("recorded") {
        recorded(&bench, &mut stage);
    }
    bench.finish();
}

/// Bodies as clients sent them, where they are at hand: the longest of each API.
fn recorded(bench: &Bench, stage: &mut fleet::Stage) {
    for (api, bodies) in bodies::recorded() {
        steps::measure(bench, &format!("recorded {api:?}"), api, &bodies, stage);
    }
}

fn head(bench: &Bench) {
    let bytes = b"POST /v1/messages?beta=true HTTP/1.1\r\nHost: gateway\r\nUser-Agent: claude-cli/2.1\r\nContent-Type: application/json\r\nx-api-key: sk-0123456789abcdef\r\nanthropic-version: 2023-06-01\r\nX-Claude-Code-Session-Id: 11111111-2222-3333-4444-555555555555\r\nContent-Length: 126000\r\n\r\n";
    let mut head = RequestHead::new();
    let limits = HeadLimits { bytes_max: 32 * 1024, ..REQUEST_HEAD };
    bench.case("head: parse", || match head.parse(bytes, &limits) {
        Ok(Some(consumed)) => consumed as u64,
        _ => 0,
    });
}

fn events(bench: &Bench) {
    let event = format!(
        "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{}\"}},\"finish_reason\":null}}]}}\n\n",
        "x".repeat(60)
    );
    let mut scanner = Scanner::new(Dialect::Chat);
    bench.case("event of 200 bytes: scan", || {
        scanner.feed(event.as_bytes());
        scanner.events()
    });
}
