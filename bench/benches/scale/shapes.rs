//! The worst shapes an index can be given, one by one: what each costs to write, to look up and to forget.

use bench::{Bench, Spread, Stopwatch};
use index::{
    BackendId, IndexConfig, IndexHandle, IndexWriter, Millis, Observation, Overlaps, SequenceHash,
};

use crate::workload::{mix, run};

struct Shape {
    writer: IndexWriter,
    handle: IndexHandle,
    applies: Spread,
    publishes: Spread,
    now: u64,
}

impl Shape {
    fn new(config: IndexConfig) -> Self {
        let (writer, handle) = index::index(config);
        let (applies, publishes) = (Spread::default(), Spread::default());
        Self { writer, handle, applies, publishes, now: 0 }
    }

    fn unbounded() -> Self {
        Self::new(IndexConfig { backend_blocks_max: 1 << 30, ..IndexConfig::default() })
    }

    fn apply(&mut self, observation: Observation) {
        let watch = Stopwatch::start();
        self.writer.apply(observation);
        self.applies.take(watch.ns());
    }

    fn store(&mut self, backend: u16, blocks: Vec<SequenceHash>) {
        self.now += 1;
        let (backend, at) = (BackendId(backend), Millis(self.now));
        self.apply(Observation::Stored { backend, blocks, at });
    }

    fn publish(&mut self) -> bool {
        let watch = Stopwatch::start();
        let fresh = self.writer.publish(Millis(self.now));
        self.publishes.take(watch.ns());
        fresh
    }

    fn report(&mut self, bench: &Bench, prompts: impl Iterator<Item = Vec<SequenceHash>>) {
        let mut lookups = Spread::default();
        let (mut reader, mut overlaps) = (self.handle.reader(), Overlaps::new());
        for blocks in prompts {
            let watch = Stopwatch::start();
            reader.load().overlaps(&blocks, &mut overlaps);
            lookups.take(watch.ns());
        }
        let stats = self.writer.stats();
        let each = stats.bytes as f64 / stats.resident_blocks.max(1) as f64;
        bench.row(serde_json::json!({ "apply": self.applies.json(), "publish": self.publishes.json(),
            "lookup": lookups.json(), "resident_blocks": stats.resident_blocks, "spans": stats.spans,
            "counted_bytes_a_resident_block": each }));
        bench.line(&format!("apply:   {}", self.applies.text()));
        bench.line(&format!("publish: {}", self.publishes.text()));
        bench.line(&format!("lookup:  {}", lookups.text()));
        bench.line(&format!(
            "holds:   {} resident blocks in {} spans, {each:.1} counted bytes a resident block",
            stats.resident_blocks, stats.spans
        ));
    }
}

fn under(stem: &[SequenceHash], name: u64, own: usize) -> Vec<SequenceHash> {
    let mut blocks = stem.to_vec();
    run(name, own, &mut blocks);
    blocks
}

fn stem(blocks: usize) -> Vec<SequenceHash> {
    under(&[], 1 << 62, blocks)
}

fn size(bench: &Bench, full: u64) -> u64 {
    if bench.is_smoke() { (full / 1000).max(4) } else { full }
}

/// 100,000 conversations under one system prompt, each published by itself.
pub(crate) fn one_system_prompt(bench: &Bench) {
    let (mut shape, stem, conversations) = (Shape::unbounded(), stem(64), size(bench, 100_000));
    for name in 0..conversations {
        shape.store((name % 10) as u16, under(&stem, name, 16));
        shape.publish();
    }
    let sample = (0..conversations.min(20_000)).map(|n| mix(n) % conversations);
    shape.report(bench, sample.map(|name| under(&stem, name, 20)));
}

/// One conversation of half a million tokens that grows by 32 blocks a turn.
pub(crate) fn one_long_conversation(bench: &Bench) {
    // 32 tokens a block.
    let (mut shape, blocks) = (Shape::unbounded(), stem(size(bench, 500_000 / 32) as usize));
    for turn in 1..=blocks.len().div_ceil(32) {
        shape.store(3, blocks[..(turn * 32).min(blocks.len())].to_vec());
        shape.publish();
    }
    shape
        .report(bench, (0..1000).map(|turn| blocks[..blocks.len() - turn % blocks.len()].to_vec()));
}

/// A template that every one of 1,000 backends holds, with conversations below it on each.
pub(crate) fn a_template_everywhere(bench: &Bench) {
    let (mut shape, stem, backends) = (Shape::unbounded(), stem(128), size(bench, 1_000));
    for name in 0..backends * 20 {
        shape.store((name % backends) as u16, under(&stem, name, 32));
        shape.publish();
    }
    shape.report(bench, (0..20_000).map(|n| under(&stem, mix(n) % (backends * 20), 40)));
}

/// Prompts nobody will ever send again, more of them than the index may keep.
pub(crate) fn random_prompts(bench: &Bench) {
    let bound = size(bench, 1 << 20);
    let mut shape = Shape::new(IndexConfig {
        fleet_blocks_max: bound,
        backend_blocks_max: bound,
        ..IndexConfig::default()
    });
    for name in 0..bound / 32 * 4 {
        shape.store((mix(name) % 10) as u16, under(&[], name, 1 + (mix(name ^ 7) % 128) as usize));
        shape.publish();
        assert!(shape.writer.resident_blocks() <= bound, "the bound holds");
    }
    shape.report(bench, (0..20_000).map(|name| under(&[], name, 64)));
}

/// A backend with 100,000 conversations is removed: how long the writer is away for it at a stretch, and how many
/// publications it takes until nothing is left.
pub(crate) fn churn(bench: &Bench) {
    let (mut shape, conversations) = (Shape::unbounded(), size(bench, 100_000));
    for name in 0..conversations {
        shape.store((name % 2) as u16, under(&[], name, 16));
    }
    let removed = BackendId(1);
    shape.publish();
    (shape.applies, shape.publishes) = (Spread::default(), Spread::default());
    let watch = Stopwatch::start();
    shape.apply(Observation::Removed { backend: removed });
    let mut publications = 1;
    shape.publish();
    let unseen_us = watch.ns() / 1000;
    while shape.writer.is_behind() {
        shape.publish();
        publications += 1;
    }
    bench.row(serde_json::json!({ "removed_unseen_us": unseen_us,
        "removed_freed_us": watch.ns() / 1000, "removed_publications": publications }));
    bench.line(&format!(
        "removed: unseen after {unseen_us} us; {publications} publications and {} us until all is freed",
        watch.ns() / 1000
    ));
    shape.report(bench, (0..20_000).map(|n| under(&[], mix(n) % conversations, 16)));
}
