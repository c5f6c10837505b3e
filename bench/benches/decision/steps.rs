//! The steps of a decision on given bodies, each timed by itself and in turns with the others, so that all meet the same
//! machine. Shares are differences of medians: canonical form is reading without the pass, and so on. On a machine that
//! others use too, the least time of each step says more than its median, so ratios are given of both.

use bench::{Bench, Spread, Stopwatch};
use index::{FingerprintKey, Fingerprinter, SequenceHash};
use proxy::api::Api;
use proxy::prompt::{self, Canon, Scratch};
use serde_json::json;

use crate::fleet::Stage;
use crate::readers;

/// A canonical block's bytes, the default.
const BLOCK_BYTES: u32 = 128;

/// Bytes read by each step in all: enough for a p99, little enough to end.
const BYTES_MAX: usize = 400_000_000;
const ROUNDS_MAX: usize = 20_000;

struct Hashed(Fingerprinter);

impl Canon for Hashed {
    fn root(&mut self, part: &[u8]) {
        self.0.root(part);
    }
    #[inline(always)]
    fn push(&mut self, bytes: &[u8]) {
        self.0.push(bytes);
    }
}

struct Length(u64);

impl Canon for Length {
    fn root(&mut self, _: &[u8]) {}
    fn push(&mut self, bytes: &[u8]) {
        self.0 += bytes.len() as u64;
    }
}

/// What one body is measured with.
struct Rig<'s> {
    api: Api,
    scratch: Scratch,
    copy: Vec<u8>,
    stage: &'s mut Stage,
}

impl Rig<'_> {
    fn scan(&mut self, body: &[u8]) -> u64 {
        prompt::count_values(&mut self.scratch, body).map_or(0, |values| values as u64)
    }

    fn read(&mut self, body: &[u8]) -> u64 {
        let mut canon = Length(0);
        let read = prompt::read_with(&mut self.scratch, self.api, body, &mut canon);
        read.map_or(0, |prompt| prompt.canonical_bytes) ^ canon.0
    }

    fn fingerprint(&mut self, body: &[u8]) -> Vec<SequenceHash> {
        let canon = Fingerprinter::new(FingerprintKey::new(7), BLOCK_BYTES);
        let mut canon = Hashed(canon.expecting(body.len()));
        let read = prompt::read_with(&mut self.scratch, self.api, body, &mut canon);
        assert!(read.is_ok(), "the bodies measured are readable");
        canon.0.finish().blocks
    }
}

/// Measures every step on `bodies`, in turns.
pub(crate) fn measure(bench: &Bench, name: &str, api: Api, bodies: &[String], stage: &mut Stage) {
    if bodies.is_empty() {
        return;
    }
    let mut rig = Rig { api, scratch: Scratch::default(), copy: Vec::new(), stage };
    let prompts: Vec<_> = bodies.iter().map(|body| rig.fingerprint(body.as_bytes())).collect();
    rig.stage.learn(&prompts);
    let bytes = bodies.iter().map(String::len).sum::<usize>() / bodies.len();
    let rounds = if bench.is_smoke() { 2 } else { (BYTES_MAX / bytes / 8).min(ROUNDS_MAX) };
    let mut times = Times::default();
    for round in 0..rounds + rounds / 10 {
        let at = round % bodies.len();
        let body = bodies[at].as_bytes();
        times.foreign(&mut rig, body);
        times.own(&mut rig, body, &prompts[at]);
        if round == rounds / 10 {
            times = Times::default();
        }
    }
    report(bench, name, bytes, &mut times);
}

#[derive(Default)]
struct Times {
    hash: Spread,
    quotes: Spread,
    readers: Vec<Spread>,
    scan: Spread,
    read: Spread,
    fingerprint: Spread,
    lookup: Spread,
    pick: Spread,
    reserve: Spread,
    decision: Spread,
}

fn time<R>(spread: &mut Spread, step: impl FnOnce() -> R) {
    let watch = Stopwatch::start();
    let result = step();
    spread.take(watch.ns());
    std::hint::black_box(result);
}

impl Times {
    fn foreign(&mut self, rig: &mut Rig<'_>, body: &[u8]) {
        time(&mut self.hash, || readers::hash(body, &mut rig.copy));
        time(&mut self.quotes, || readers::quotes(body, &mut rig.copy));
        self.readers.resize_with(readers::READERS.len(), Spread::default);
        for (spread, (_, pass)) in self.readers.iter_mut().zip(readers::READERS) {
            time(spread, || pass(body, &mut rig.copy));
        }
    }

    fn own(&mut self, rig: &mut Rig<'_>, body: &[u8], blocks: &[SequenceHash]) {
        time(&mut self.scan, || rig.scan(body));
        time(&mut self.read, || rig.read(body));
        time(&mut self.fingerprint, || rig.fingerprint(body));
        time(&mut self.lookup, || rig.stage.look_up(blocks));
        time(&mut self.pick, || rig.stage.pick(blocks).is_some());
        time(&mut self.reserve, || rig.stage.reserve().is_some());
        time(&mut self.decision, || {
            let blocks = rig.fingerprint(body);
            rig.stage.pick(&blocks).is_some()
        });
    }
}

fn report(bench: &Bench, name: &str, bytes: usize, times: &mut Times) {
    let hash = times.hash.permille(500);
    let passes = times.readers.iter_mut().map(|spread| spread.permille(500));
    let fastest = passes.zip(readers::READERS).min_by_key(|(ns, _)| *ns);
    let Some((pass, (reader, _))) = fastest else { return };
    let bound = (hash + pass).max(1);
    let passes = times.readers.iter_mut().map(|spread| spread.permille(0));
    let least_bound = (times.hash.permille(0) + passes.min().unwrap_or(0)).max(1);
    let of = |ns: u64, bound: u64| ns as f64 / bound as f64;
    bench.line(&format!(
        "== {name}: {bytes} bytes; bound {bound} ns: xxh3 {hash} ns, {reader} {pass} ns"
    ));
    let mut rows = Vec::new();
    let mut line = |what: &str, spread: &mut Spread| {
        let [least, p50, p99] = [0, 500, 990].map(|permille| spread.permille(permille));
        let (ratio, least_ratio) = (of(p50, bound), of(least, least_bound));
        bench.line(&format!(
            "   {what:32} p50 {p50:8} ns  p99 {p99:8} ns  least {least:8} ns  {ratio:4.2} of the bound ({least_ratio:4.2} of the least)"
        ));
        rows.push(json!({ "what": what, "p50_ns": p50, "p99_ns": p99, "least_ns": least,
            "of_bound": ratio, "least_of_least_bound": least_ratio }));
        p50
    };
    line("bound: xxh3", &mut times.hash);
    line("quotes and backslashes, memchr", &mut times.quotes);
    for (spread, (reader, _)) in times.readers.iter_mut().zip(readers::READERS) {
        line(reader, spread);
    }
    let scan = line("scan", &mut times.scan);
    let read = line("scan, canonical form", &mut times.read);
    let print = line("scan, canonical form, hashes", &mut times.fingerprint);
    let lookup = line("lookup", &mut times.lookup);
    let pick = line("lookup, pick, reserve, release", &mut times.pick);
    let reserve = line("reserve, release", &mut times.reserve);
    let decision = line("whole decision", &mut times.decision);
    let parts = [
        ("scan", scan),
        ("canonical form", read.saturating_sub(scan)),
        ("hashes", print.saturating_sub(read)),
        ("lookup", lookup),
        ("pick", pick.saturating_sub(lookup + reserve)),
        ("reserve", reserve),
    ];
    let percent = |ns: u64| 100.0 * ns as f64 / decision.max(1) as f64;
    let text = parts.map(|(part, ns)| format!("{part} {:.1} %", percent(ns))).join(", ");
    bench.line(&format!("   shares of the whole: {text}"));
    bench.row(json!({ "body": name, "bytes": bytes, "bound_ns": bound, "bound_reader": reader,
        "least_bound_ns": least_bound, "steps": rows,
        "shares_ns": parts.into_iter().collect::<std::collections::BTreeMap<_, _>>() }));
}
