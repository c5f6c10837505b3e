//! What a decision costs, step by step: reading the body, fingerprinting, looking up, picking, reserving.

use bench::{Bench, sample};
use index::{
    Ask, BackendId, BackendSet, FingerprintKey, Fingerprinter, Fleet, FleetConfig, IndexConfig,
    IndexReader, IndexWriter, Millis, Observation, Picker, PolicyKind, SequenceHash,
};
use proxy::api::{Api, Dialect};
use proxy::http::{HeadLimits, RequestHead};
use proxy::limits::REQUEST_HEAD;
use proxy::prompt::{self, Scratch};
use proxy::sse::Scanner;

/// A canonical block's bytes, the default.
const BLOCK_BYTES: u32 = 128;

fn main() {
    let bench = Bench::from_args();
    head(&bench);
    for (name, bytes) in [("4 KB", 4_000), ("100 KB", 100_000), ("2 MB", 2_000_000)] {
        body(&bench, name, bytes);
    }
    for backends in [10, 1_000] {
        decision(&bench, backends);
    }
    events(&bench);
}

fn head(bench: &Bench) {
    let mut head = RequestHead::new();
    let limits = HeadLimits { bytes_max: 32 * 1024, ..REQUEST_HEAD };
    bench.case("head: parse", || match head.parse(sample::HEAD, &limits) {
        Ok(Some(consumed)) => consumed as u64,
        _ => 0,
    });
}

struct Canon(Fingerprinter);

impl prompt::Canon for Canon {
    fn root(&mut self, part: &[u8]) {
        self.0.root(part);
    }
    fn push(&mut self, bytes: &[u8]) {
        self.0.push(bytes);
    }
}

struct Length(u64);

impl prompt::Canon for Length {
    fn root(&mut self, _: &[u8]) {}
    fn push(&mut self, bytes: &[u8]) {
        self.0 += bytes.len() as u64;
    }
}

fn body(bench: &Bench, name: &str, bytes: usize) {
    let body = sample::chat(bytes);
    let mut scratch = Scratch::default();
    bench.case(&format!("body {name}: read"), || {
        let mut canon = Length(0);
        let read =
            prompt::read_with(&mut scratch, Api::ChatCompletions, body.as_bytes(), &mut canon);
        read.map_or(0, |prompt| prompt.canonical_bytes) ^ canon.0
    });
    bench.case(&format!("body {name}: read and fingerprint"), || {
        let mut canon = Canon(Fingerprinter::new(FingerprintKey::new(7), BLOCK_BYTES));
        let read =
            prompt::read_with(&mut scratch, Api::ChatCompletions, body.as_bytes(), &mut canon);
        let blocks = canon.0.finish().blocks;
        read.map_or(0, |_| blocks.last().map_or(0, |hash| hash.0))
    });
}

/// A chain of made-up hashes: `shared` blocks that all have, then own ones.
fn chain(shared: usize, own: usize, seed: u64) -> Vec<SequenceHash> {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut blocks: Vec<SequenceHash> = (0..shared).map(|_| SequenceHash(rng.u64(..))).collect();
    let mut rng = fastrand::Rng::with_seed(seed);
    blocks.extend((0..own).map(|_| SequenceHash(rng.u64(..))));
    blocks
}

fn filled(backends: u16) -> (IndexWriter, IndexReader, Vec<Vec<SequenceHash>>) {
    let (mut writer, handle) = index::index(IndexConfig::default());
    let conversations: Vec<Vec<SequenceHash>> = (0..4_000).map(|n| chain(64, 700, n + 2)).collect();
    for (number, blocks) in conversations.iter().enumerate() {
        let backend = BackendId(u16::try_from(number % usize::from(backends)).unwrap_or(0));
        writer.apply(Observation::Stored {
            backend,
            blocks: blocks.clone(),
            at: Millis(number as u64),
        });
    }
    writer.publish(Millis(5_000));
    let reader = handle.reader();
    (writer, reader, conversations)
}

fn decision(bench: &Bench, backends: u16) {
    let (_writer, mut reader, conversations) = filled(backends);
    let fleet = Fleet::new(FleetConfig::with_capacity(usize::from(backends)));
    let mut pool = BackendSet::with_capacity(usize::from(backends));
    (0..backends).for_each(|id| {
        pool.insert(BackendId(id));
    });
    let (excluded, mut picker) = (BackendSet::default(), Picker::new(PolicyKind::DEFAULT));
    let mut turn = 0_usize;
    bench.case(&format!("{backends} backends: look up, pick, reserve, release"), || {
        turn = (turn + 1) % conversations.len();
        let ask = Ask {
            blocks: &conversations[turn],
            block_tokens: 32.0,
            prompt_tokens: 24_448,
            output_tokens: 512,
            conversation: None,
            pool: &pool,
            excluded: &excluded,
            waited_ms: 0,
            home_wait_ms: 0,
            now: Millis(6_000),
            random: turn as u64,
        };
        match picker.pick(&fleet, reader.load(), &ask) {
            Ok(placed) => u64::from(placed.reservation.backend().0),
            Err(_) => u64::MAX,
        }
    });
}

fn events(bench: &Bench) {
    let event = sample::event();
    let mut scanner = Scanner::new(Dialect::Chat);
    bench.case("event of 200 bytes: scan", || {
        scanner.feed(event.as_bytes());
        scanner.events()
    });
}
