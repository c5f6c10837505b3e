//! Thirty-two million resident blocks: bytes a block, lookups, publications, the writer's throughput while it evicts, and
//! what a saturated writer does to a reader.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bench::{Bench, Spread, Stopwatch, resident_bytes};
use index::{IndexConfig, IndexReader, IndexWriter, Millis, Overlaps};
use serde_json::json;

use crate::workload::{Mixture, mix};

/// Observations the writer takes in before it publishes.
const BATCH: u64 = 64;

/// Measures an index of `backends` backends whose conversations own up to `own_blocks_max` blocks.
pub(crate) fn resident(bench: &Bench, backends: u64, own_blocks_max: usize) {
    let blocks = if bench.is_smoke() { 20_000 } else { 32 << 20 };
    let mixture = Mixture { backends, templates: 256, own_blocks_max };
    let config = IndexConfig {
        fleet_blocks_max: blocks,
        backend_blocks_max: (blocks / backends * 16).max(1024),
        ..IndexConfig::default()
    };
    let before = resident_bytes();
    let (mut writer, handle) = index::index(config);
    let watch = Stopwatch::start();
    let (mut conversations, mut turns) = (0, 0);
    while writer.resident_blocks() + 1024 < blocks {
        turns += mixture.play(conversations, &mut writer, Millis(conversations));
        conversations += 1;
        if conversations.is_multiple_of(BATCH / 3) {
            writer.publish(Millis(conversations));
        }
    }
    writer.publish(Millis(conversations));
    let fill_ns = watch.ns() / turns.max(1);
    memory(bench, "filled", &writer, resident_bytes().saturating_sub(before));
    bench.row(json!({ "backends": backends, "own_blocks_max": own_blocks_max,
        "conversations": conversations, "turns": turns, "fill_ns_a_turn": fill_ns }));
    bench.line(&format!(
        "filled: {conversations} conversations, {turns} turns, {fill_ns} ns a turn (published every {BATCH})"
    ));
    let of =
        Load { mixture, from: conversations, lookups: if bench.is_smoke() { 50 } else { 50_000 } };
    of.contention(bench, &mut writer, &mut handle.reader());
    memory(bench, "after evictions", &writer, resident_bytes().saturating_sub(before));
}

/// Bytes a block, by the index's own account and by the kernel's.
fn memory(bench: &Bench, when: &str, writer: &IndexWriter, rss: u64) {
    let stats = writer.stats();
    let each = |bytes: u64, blocks: u64| bytes as f64 / blocks.max(1) as f64;
    bench.row(json!({ "memory": when, "resident_blocks": stats.resident_blocks,
        "distinct_blocks": stats.distinct_blocks, "spans": stats.spans,
        "counted_bytes": stats.bytes, "process_bytes": rss,
        "counted_bytes_a_resident_block": each(stats.bytes, stats.resident_blocks),
        "process_bytes_a_resident_block": each(rss, stats.resident_blocks) }));
    bench.line(&format!(
        "memory: {} resident blocks, {} distinct, {} spans; counted {:.1} bytes a resident block ({:.1} a distinct one); process {:.1} ({:.1})",
        stats.resident_blocks,
        stats.distinct_blocks,
        stats.spans,
        each(stats.bytes, stats.resident_blocks),
        each(stats.bytes, stats.distinct_blocks),
        each(rss, stats.resident_blocks),
        each(rss, stats.distinct_blocks),
    ));
}

struct Load {
    mixture: Mixture,
    /// Conversations played so far.
    from: u64,
    lookups: usize,
}

impl Load {
    /// Lookups alone and beside a writer that never rests, in turns, so that both meet the same machine.
    fn contention(&self, bench: &Bench, writer: &mut IndexWriter, reader: &mut IndexReader) {
        let rounds = if bench.is_smoke() { 1 } else { 5 };
        let (mut alone, mut beside, mut publishes) = (Vec::new(), Vec::new(), Spread::default());
        let (mut applied, mut ns, mut next) = (0, 0, self.from);
        for _ in 0..rounds {
            alone.push(self.lookups(reader));
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let busy = scope.spawn(|| {
                    let watch = Stopwatch::start();
                    let turns = self.write(writer, &mut next, &mut publishes, &stop);
                    (turns, watch.ns())
                });
                beside.push(self.lookups(reader));
                // Release: pairs with the writer's Acquire; nothing but the end is said.
                stop.store(true, Ordering::Release);
                let (turns, took) = busy.join().unwrap_or_default();
                applied += turns;
                ns += took;
            });
        }
        let of = |spreads: &mut [Spread], permille| {
            spreads.iter_mut().map(|spread| spread.permille(permille)).min().unwrap_or(0)
        };
        let idle = [500, 990].map(|p| of(&mut alone, p));
        let busy = [500, 990].map(|p| of(&mut beside, p));
        let ratio = busy[1] as f64 / idle[1].max(1) as f64;
        let turns_a_second = applied * 1_000_000_000 / ns.max(1);
        bench.row(json!({ "lookup_idle": { "p50_ns": idle[0], "p99_ns": idle[1] },
            "lookup_writer_saturated": { "p50_ns": busy[0], "p99_ns": busy[1] },
            "p99_of_idle": ratio, "publish": publishes.json(), "turns_a_second": turns_a_second }));
        bench.line(&format!("lookup, writer idle:      p50 {} ns, p99 {} ns", idle[0], idle[1]));
        bench.line(&format!(
            "lookup, writer saturated: p50 {} ns, p99 {} ns ({ratio:.2} of idle at p99)",
            busy[0], busy[1]
        ));
        bench.line(&format!("publish after {BATCH} turns: {}", publishes.text()));
        bench.line(&format!(
            "writer: {turns_a_second} turns a second, evicting as much as it stores"
        ));
    }

    fn lookups(&self, reader: &mut IndexReader) -> Spread {
        let mut spread = Spread::with_capacity(self.lookups);
        let (mut blocks, mut overlaps) = (Vec::new(), Overlaps::new());
        let found = AtomicU64::new(0);
        for turn in 0..self.lookups as u64 {
            // Among the newest half, which is still there.
            let conversation = self.from - 1 - mix(turn) % (self.from / 2).max(1);
            self.mixture.prompt(conversation, self.mixture.own_blocks(conversation), &mut blocks);
            let watch = Stopwatch::start();
            reader.load().overlaps(&blocks, &mut overlaps);
            spread.take(watch.ns());
            // Relaxed: keeps the compiler honest, nothing else.
            found.fetch_add(u64::from(overlaps.deepest()), Ordering::Relaxed);
        }
        spread
    }

    fn write(
        &self,
        writer: &mut IndexWriter,
        next: &mut u64,
        publishes: &mut Spread,
        stop: &AtomicBool,
    ) -> u64 {
        let mut turns = 0;
        // Acquire: pairs with the reader's Release.
        while !stop.load(Ordering::Acquire) {
            let mut batch = 0;
            while batch < BATCH {
                batch += self.mixture.play(*next, writer, Millis(*next));
                *next += 1;
            }
            turns += batch;
            let watch = Stopwatch::start();
            writer.publish(Millis(*next));
            publishes.take(watch.ns());
        }
        turns
    }
}
