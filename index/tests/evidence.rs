//! What the index believes, case by case: budgets, corrections, restarts, idleness, limits at N and N + 1.
#![cfg(not(loom))]

use index::limits::{PROMPT_BLOCKS_MAX, SPAN_BLOCKS_MAX, TEMPLATE_BRANCHES};
use index::{
    BackendId, BackendStats, IndexConfig, IndexHandle, IndexWriter, Lost, Millis, Observation,
    Overlaps, SequenceHash, index,
};

const A: BackendId = BackendId(0);
const B: BackendId = BackendId(1);

struct Case {
    writer: IndexWriter,
    handle: IndexHandle,
    now: u64,
}

impl Case {
    fn new(config: IndexConfig) -> Self {
        let (writer, handle) = index(config);
        Self { writer, handle, now: 0 }
    }

    fn with_budget(backend_blocks_max: u64) -> Self {
        Self::new(IndexConfig { backend_blocks_max, ..IndexConfig::default() })
    }

    fn apply(&mut self, observation: Observation) {
        self.writer.apply(observation);
        self.writer.check_invariants().unwrap();
    }

    fn store(&mut self, backend: BackendId, blocks: &[SequenceHash]) {
        let at = Millis(self.now);
        self.apply(Observation::Stored { backend, blocks: blocks.to_vec(), at });
    }

    fn report(&mut self, backend: BackendId, blocks: &[SequenceHash], predicted: u32, cached: u32) {
        self.apply(Observation::Reported {
            backend,
            blocks: blocks.to_vec(),
            predicted_blocks: predicted,
            cached_blocks: cached,
            at: Millis(self.now),
        });
    }

    fn overlaps(&mut self, blocks: &[SequenceHash]) -> Overlaps {
        self.writer.publish(Millis(self.now));
        let mut overlaps = Overlaps::new();
        self.handle.reader().load().overlaps(blocks, &mut overlaps);
        overlaps
    }

    fn depth(&mut self, backend: BackendId, blocks: &[SequenceHash]) -> u32 {
        self.overlaps(blocks).depth(backend)
    }

    /// Publishes until nothing is left to free. Returns how often.
    fn catch_up(&mut self) -> usize {
        let mut publications = 0;
        while self.writer.is_behind() {
            self.writer.publish(Millis(self.now));
            publications += 1;
        }
        self.writer.check_invariants().unwrap();
        publications
    }

    fn stats(&self, backend: BackendId) -> BackendStats {
        *self.writer.stats().backends.iter().find(|stats| stats.id == backend).unwrap()
    }
}

/// A chain of `len` blocks; chains of one root agree as far as both reach.
fn chain(root: u64, len: usize) -> Vec<SequenceHash> {
    branch(&[], root, len)
}

/// `stem` and `len` more blocks of the branch called `name`.
fn branch(stem: &[SequenceHash], name: u64, len: usize) -> Vec<SequenceHash> {
    let from = stem.last().map_or(0, |hash| hash.0);
    let mut fingerprinter = index::Fingerprinter::new(index::FingerprintKey::new(from ^ name), 8);
    (0..len as u64).for_each(|block| fingerprinter.push(&block.to_le_bytes()));
    [stem, &fingerprinter.finish().blocks].concat()
}

#[test]
fn nothing_is_seen_before_it_is_published() {
    let mut case = Case::with_budget(100);
    let blocks = chain(1, 5);
    case.overlaps(&blocks);
    let mut reader = case.handle.reader();
    case.store(A, &blocks);
    let mut overlaps = Overlaps::new();
    reader.load().overlaps(&blocks, &mut overlaps);
    assert_eq!(overlaps.depth(A), 0);
    assert!(case.writer.publish(Millis(1)) && !case.writer.publish(Millis(2)));
    reader.load().overlaps(&blocks, &mut overlaps);
    assert_eq!((overlaps.depth(A), overlaps.deepest(), reader.load().version()), (5, 5, 1));
}

#[test]
fn two_backends_hold_one_prompt_to_different_depths() {
    let mut case = Case::with_budget(100);
    let blocks = chain(1, 30);
    case.store(A, &blocks[..20]);
    case.store(B, &blocks[..7]);
    assert_eq!((case.depth(A, &blocks), case.depth(B, &blocks)), (20, 7));
    assert_eq!((case.depth(A, &blocks[..3]), case.depth(B, &blocks[..3])), (3, 3));
    let stats = case.writer.stats();
    assert_eq!((stats.resident_blocks, stats.distinct_blocks, stats.spans), (27, 20, 2));
}

#[test]
fn a_middle_block_is_not_a_prefix() {
    let mut case = Case::with_budget(100);
    let blocks = chain(1, 10);
    case.store(A, &blocks);
    assert_eq!(case.depth(A, &blocks[1..]), 0);
}

#[test]
fn a_conversation_that_grows_stays_one_run() {
    let mut case = Case::with_budget(10_000);
    let blocks = chain(1, SPAN_BLOCKS_MAX);
    (1..=8).for_each(|turn| case.store(A, &blocks[..turn * SPAN_BLOCKS_MAX / 8]));
    assert_eq!(case.stats(A).spans, 1);
    case.store(A, &branch(&blocks, 9, 1));
    assert_eq!(case.stats(A).spans, 2, "one block more than a span holds");
}

#[test]
fn the_least_recently_used_tail_goes_first_and_exactly_as_much_as_needed() {
    let mut case = Case::with_budget(100);
    let (old, new) = (chain(1, 60), chain(2, 40));
    case.store(A, &old);
    case.store(A, &new);
    assert_eq!(case.stats(A).blocks, 100, "a budget that is just met evicts nothing");
    case.store(A, &chain(3, 1));
    assert_eq!((case.depth(A, &old), case.depth(A, &new)), (59, 40));
    case.store(A, &old[..10]);
    case.store(A, &chain(4, 60));
    assert_eq!(case.depth(A, &old), 10, "what was used again stays");
    assert_eq!(case.depth(A, &new), 29);
    assert_eq!(case.stats(A).lost.evicted_blocks, 61);
}

#[test]
fn a_shared_stem_outlives_its_branches() {
    let mut case = Case::with_budget(50);
    let stem = chain(1, 20);
    (0..40).for_each(|name| case.store(A, &branch(&stem, name, 10)));
    let live = (0..40).filter(|&name| case.depth(A, &branch(&stem, name, 10)) == 30).count();
    assert_eq!((live, case.depth(A, &stem)), (3, 20));
}

#[test]
fn a_prompt_larger_than_the_budget_keeps_its_beginning() {
    let mut case = Case::with_budget(10);
    let blocks = chain(1, 25);
    case.store(A, &blocks);
    assert_eq!(case.depth(A, &blocks), 10);
}

#[test]
fn a_budget_told_later_applies_at_once_and_zero_means_unknown() {
    let mut case = Case::with_budget(10);
    let blocks = chain(1, 30);
    case.apply(Observation::Budget { backend: A, blocks_max: 20 });
    case.store(A, &blocks);
    assert_eq!(case.depth(A, &blocks), 20);
    case.apply(Observation::Budget { backend: A, blocks_max: 5 });
    assert_eq!(case.depth(A, &blocks), 5);
    case.apply(Observation::Budget { backend: A, blocks_max: 0 });
    case.store(A, &blocks);
    assert_eq!(case.depth(A, &blocks), 10);
}

#[test]
fn a_lower_report_takes_back_what_lies_beyond_and_below() {
    let mut case = Case::with_budget(1000);
    let stem = chain(1, 20);
    let (one, two) = (branch(&stem, 1, 10), branch(&stem[..12], 2, 10));
    for backend in [A, B] {
        case.store(backend, &one);
        case.store(backend, &two);
    }
    case.report(A, &one, 30, 15);
    assert_eq!((case.depth(A, &one), case.depth(A, &two)), (15, 22), "the other branch is above");
    case.report(A, &one, 15, 5);
    assert_eq!((case.depth(A, &one), case.depth(A, &two)), (5, 5), "now both are below");
    assert_eq!((case.depth(B, &one), case.depth(B, &two)), (30, 22), "elsewhere nothing changed");
    let Lost { corrected_blocks, corrections, evicted_blocks, .. } = case.stats(A).lost;
    assert_eq!((corrected_blocks, corrections, evicted_blocks), (15 + 10 + 10, 2, 0));
}

#[test]
fn a_report_one_block_short_is_rounding() {
    let mut case = Case::with_budget(100);
    let blocks = chain(1, 10);
    case.store(A, &blocks);
    case.report(A, &blocks, 10, 9);
    assert_eq!(case.depth(A, &blocks), 10);
    case.report(A, &blocks, 10, 8);
    assert_eq!(case.depth(A, &blocks), 8);
}

#[test]
fn a_report_of_what_is_not_held_changes_nothing() {
    let mut case = Case::with_budget(100);
    case.report(A, &chain(1, 10), 10, 0);
    case.store(A, &chain(2, 10));
    case.report(A, &chain(1, 10), 10, 0);
    case.report(B, &chain(2, 10), 10, 0);
    case.report(A, &[], 10, 0);
    assert_eq!((case.depth(A, &chain(2, 10)), case.stats(A).lost), (10, Lost::default()));
}

#[test]
fn a_restart_clears_one_backend_and_keeps_its_budget() {
    let mut case = Case::with_budget(100);
    let blocks = chain(1, 30);
    case.apply(Observation::Budget { backend: A, blocks_max: 15 });
    case.store(A, &blocks);
    case.store(B, &blocks);
    case.apply(Observation::Cleared { backend: A });
    assert_eq!((case.depth(A, &blocks), case.depth(B, &blocks)), (0, 30));
    case.store(A, &blocks);
    assert_eq!((case.depth(A, &blocks), case.stats(A).lost.cleared_blocks), (15, 15));
}

#[test]
fn a_removed_backend_leaves_nothing_and_its_id_starts_anew() {
    let mut case = Case::with_budget(100);
    let blocks = chain(1, 30);
    case.apply(Observation::Budget { backend: A, blocks_max: 15 });
    case.store(A, &blocks);
    case.apply(Observation::Removed { backend: A });
    let stats = case.writer.stats();
    assert_eq!((stats.resident_blocks, stats.spans, stats.backends.len()), (0, 0, 0));
    assert_eq!(stats.lost.cleared_blocks, 15, "what it lost is still counted");
    case.store(A, &blocks);
    assert_eq!((case.depth(A, &blocks), case.stats(A).lost), (30, Lost::default()));
    case.apply(Observation::Removed { backend: BackendId(999) });
}

#[test]
fn the_fleet_bound_takes_from_the_largest() {
    let config = IndexConfig { fleet_blocks_max: 100, ..IndexConfig::default() };
    let mut case = Case::new(config);
    case.store(A, &chain(1, 70));
    case.store(B, &chain(2, 30));
    assert_eq!(case.writer.stats().resident_blocks, 100);
    case.store(B, &chain(3, 20));
    let (large, small) = (case.depth(A, &chain(1, 70)), case.depth(B, &chain(2, 30)));
    assert_eq!((large, small, case.stats(B).blocks), (50, 30, 50));
    for root in 10..200 {
        case.store(BackendId(root as u16 % 40), &chain(root, 9));
        assert!(case.writer.stats().resident_blocks <= 100);
    }
}

#[test]
fn evidence_not_used_for_too_long_is_forgotten_from_the_end() {
    let mut case = Case::new(IndexConfig { idle_ms_max: 60_000, ..IndexConfig::default() });
    let blocks = chain(1, 20);
    case.store(A, &blocks);
    case.now = 50_000;
    case.store(A, &blocks[..5]);
    case.now = 59_000;
    assert_eq!(case.depth(A, &blocks), 20);
    case.now = 61_000;
    assert_eq!(case.depth(A, &blocks), 5);
    case.now = 111_000;
    assert_eq!(case.depth(A, &blocks), 0);
    assert_eq!(case.stats(A).lost.expired_blocks, 20);
}

#[test]
fn blocks_beyond_the_longest_prompt_kept_are_ignored() {
    let mut case = Case::with_budget(1 << 20);
    let blocks = chain(1, PROMPT_BLOCKS_MAX + 1);
    case.store(A, &blocks);
    assert_eq!(case.depth(A, &blocks) as usize, PROMPT_BLOCKS_MAX);
    assert_eq!(case.stats(A).spans as usize, PROMPT_BLOCKS_MAX / SPAN_BLOCKS_MAX);
}

#[test]
fn the_longest_path_there_can_be_needs_no_recursion_and_heals() {
    // Ever shorter beginnings of one prompt cut it at every block: one span a block.
    // Freed in few publications, each of which copies the path anew.
    let mut case = Case::new(IndexConfig {
        backend_blocks_max: 1 << 20,
        purge_steps_max: 1 << 24,
        ..IndexConfig::default()
    });
    let blocks = chain(1, PROMPT_BLOCKS_MAX);
    let cut = |case: &mut Case| {
        for len in (1..=PROMPT_BLOCKS_MAX).rev() {
            let blocks = blocks[..len].to_vec();
            case.writer.apply(Observation::Stored { backend: A, blocks, at: Millis(0) });
        }
        assert_eq!(case.stats(A).spans as usize, PROMPT_BLOCKS_MAX);
        assert_eq!(case.depth(A, &blocks) as usize, PROMPT_BLOCKS_MAX);
    };
    cut(&mut case);
    case.store(A, &blocks);
    assert_eq!(case.stats(A).spans as usize, PROMPT_BLOCKS_MAX / SPAN_BLOCKS_MAX, "joined again");
    cut(&mut case);
    case.apply(Observation::Cleared { backend: A });
    assert_eq!(case.depth(A, &blocks), 0);
    case.catch_up();
    assert_eq!(case.writer.stats().spans, 0);
}

#[test]
fn a_removed_backend_is_not_believed_from_the_next_publication_on_and_freed_in_steps() {
    let mut case = Case::new(IndexConfig { purge_steps_max: 10, ..IndexConfig::default() });
    let stem = chain(1, 10);
    for name in 1..101 {
        case.store(A, &branch(&stem, name, 3));
    }
    case.store(B, &branch(&stem, 1, 3));
    case.apply(Observation::Removed { backend: A });
    let found = case.overlaps(&branch(&stem, 1, 3));
    assert_eq!((found.depth(A), found.depth(B), found.deepest()), (0, 13, 13));
    assert_eq!(found.holders().len(), 1);
    let stats = case.writer.stats();
    assert_eq!((stats.resident_blocks, stats.lost.cleared_blocks), (13, 310));
    assert!(stats.stale_blocks > 250 && stats.backends.len() == 1, "{stats:?}");
    let steps = case.catch_up();
    assert!((20..=40).contains(&steps), "{steps} steps for 101 holds of two spans each");
    let stats = case.writer.stats();
    assert_eq!((stats.stale_blocks, stats.resident_blocks, stats.spans), (0, 13, 2));
    assert_eq!(stats.lost.cleared_blocks, 310);
}

#[test]
fn what_a_restarted_engine_stores_survives_the_freeing_of_what_it_held_before() {
    let mut case = Case::new(IndexConfig { purge_steps_max: 1, ..IndexConfig::default() });
    let stem = chain(1, 10);
    for name in 1..41 {
        case.store(A, &branch(&stem, name, 3));
    }
    case.apply(Observation::Cleared { backend: A });
    case.store(A, &branch(&stem, 7, 3));
    case.store(A, &branch(&stem, 99, 5));
    case.apply(Observation::Cleared { backend: A });
    case.store(A, &branch(&stem, 8, 2));
    assert_eq!(case.depth(A, &branch(&stem, 8, 3)), 0, "not believed while old evidence is there");
    assert_eq!(case.stats(A).blocks, 12);
    case.writer.check_invariants().unwrap();
    case.catch_up();
    assert_eq!(case.depth(A, &branch(&stem, 8, 3)), 12);
    assert_eq!(case.depth(A, &branch(&stem, 7, 3)), 10, "the stem, which was stored again");
    assert_eq!((case.stats(A).blocks, case.stats(A).lost.evicted_blocks), (12, 0));
}

#[test]
fn a_template_is_what_enough_branches_hang_below() {
    let mut case = Case::with_budget(1 << 20);
    let stem = chain(1, 10);
    for name in 1..u64::from(TEMPLATE_BRANCHES) {
        case.store(A, &branch(&stem, name, 3));
    }
    assert_eq!(case.overlaps(&stem).template_depth(), 0, "one branch short");
    case.store(B, &branch(&stem, 99, 3));
    assert_eq!(case.overlaps(&branch(&stem, 1, 3)).template_depth(), 10);
    assert_eq!(case.overlaps(&stem[..4]).template_depth(), 4);
    case.apply(Observation::Removed { backend: B });
    assert_eq!(case.overlaps(&stem).template_depth(), 0, "a branch nobody holds does not count");
}

#[test]
fn a_hundred_thousand_branches_below_one_stem_publish_one_by_one() {
    let (mut writer, handle) =
        index(IndexConfig { backend_blocks_max: 1 << 20, ..Default::default() });
    let stem = chain(1, 10);
    let mut reader = handle.reader();
    for name in 0..100_000 {
        let blocks = branch(&stem, name + 1, 1);
        writer.apply(Observation::Stored { backend: A, blocks, at: Millis(name) });
        writer.publish(Millis(name));
        if name % 1000 == 0 {
            assert_eq!(reader.load().version(), name + 1);
        }
    }
    let mut overlaps = Overlaps::new();
    reader.load().overlaps(&branch(&stem, 77_777, 1), &mut overlaps);
    assert_eq!(overlaps.depth(A), 11);
    assert!(writer.stats().retired_snapshots <= 1);
    writer.apply(Observation::Cleared { backend: A });
    assert_eq!(writer.stats().resident_blocks, 0);
}

/// An engine that forgets the least recently used, and what it would report.
#[derive(Default)]
struct Engine(Vec<SequenceHash>);

impl Engine {
    fn serve(&mut self, blocks: &[SequenceHash], room: usize) -> u32 {
        let cached = blocks.iter().take_while(|hash| self.0.contains(hash)).count() as u32;
        self.0.retain(|hash| !blocks.contains(hash));
        self.0.extend(blocks.iter().rev());
        let over = self.0.len().saturating_sub(room);
        self.0.drain(..over);
        cached
    }
}

impl Case {
    /// Prompts of conversations taken at random, served by an engine with so much room. `says` is what it reports.
    fn converse(&mut self, engine: &mut Engine, room: usize, says: impl Fn(u32) -> u32) {
        let mut rng = fastrand::Rng::with_seed(9);
        for _ in 0..1_500 {
            // Some come back soon, some late: distances from nothing to four times the room.
            let among = 1 << rng.u64(2..9);
            let blocks = chain(1 + rng.u64(..among), 20);
            self.now += 70;
            let stored = |at| Observation::Stored { backend: A, blocks: blocks.clone(), at };
            self.writer.apply(stored(Millis(self.now)));
            let cached = says(engine.serve(&blocks, room));
            let routed_at = Millis(self.now);
            self.now += 30;
            let (least, most) = (cached, cached);
            let report =
                Observation::Cached { backend: A, blocks: blocks.clone(), least, most, routed_at };
            self.writer.apply(report);
            self.writer.apply(stored(Millis(self.now)));
            self.writer.publish(Millis(self.now));
        }
        self.catch_up();
    }

    fn learned(&self) -> f64 {
        let stats = self.stats(A);
        stats.blocks_max as f64 / stats.blocks_assumed as f64
    }
}

#[test]
fn a_capacity_assumed_wrong_is_learned_from_reports() {
    for factor in [0.25, 0.5, 1.0, 2.0, 4.0] {
        let mut case = Case::with_budget((1_000.0 / factor) as u64);
        case.converse(&mut Engine::default(), 1_000, |cached| cached);
        let off = case.learned() / factor;
        assert!((0.75..1.25).contains(&off), "{factor} times: {off}");
        assert!(case.stats(A).blocks <= case.stats(A).blocks_max);
    }
}

#[test]
fn an_engine_that_comes_back_with_another_capacity_is_learned_anew() {
    let mut case = Case::with_budget(1_000);
    case.converse(&mut Engine::default(), 2_000, |cached| cached);
    assert!((1.7..2.3).contains(&case.learned()), "{}", case.learned());
    case.apply(Observation::Cleared { backend: A });
    case.converse(&mut Engine::default(), 500, |cached| cached);
    assert!((0.42..0.58).contains(&case.learned()), "{}", case.learned());
}

#[test]
fn reports_that_count_nothing_leave_the_budget_as_it_was_told() {
    let mut case = Case::with_budget(1_000);
    case.converse(&mut Engine::default(), 2_000, |_| 0);
    assert_eq!(case.learned(), 1.0);
    case.converse(&mut Engine::default(), 2_000, |cached| cached / 20 * 20);
    assert!(case.learned() <= 8.0);
}

#[test]
fn a_budget_told_a_little_differently_keeps_what_was_learned() {
    let mut case = Case::with_budget(1_000);
    case.converse(&mut Engine::default(), 2_000, |cached| cached);
    let learned = case.stats(A).blocks_max;
    case.apply(Observation::Budget { backend: A, blocks_max: 1_100 });
    assert_eq!((case.stats(A).blocks_max, case.stats(A).blocks_assumed), (learned, 1_100));
    case.apply(Observation::Budget { backend: A, blocks_max: 9_000 });
    assert_eq!(case.stats(A).blocks_assumed, 9_000);
    assert!(case.stats(A).blocks_max >= 9_000);
}

#[test]
fn a_budget_cut_deep_is_kept_in_steps_and_nothing_is_gained_meanwhile() {
    let mut case = Case::with_budget(20_000);
    (0..5_000).for_each(|name| {
        let at = Millis(name);
        let blocks = branch(&[], 2 + name, 3);
        case.writer.apply(Observation::Stored { backend: A, blocks, at });
    });
    case.apply(Observation::Budget { backend: A, blocks_max: 100 });
    let left = case.stats(A).blocks;
    assert!(left > 100 && left < 15_000 && case.writer.is_behind(), "{left}");
    case.store(A, &chain(1, 50));
    assert!(case.stats(A).blocks <= left);
    assert!(case.catch_up() > 1);
    assert_eq!((case.stats(A).blocks, case.depth(A, &chain(1, 50))), (100, 50));
}

#[test]
fn a_correction_of_much_is_done_in_steps_and_spares_what_was_used_since() {
    let mut case = Case::with_budget(100_000);
    let stem = chain(1, 4);
    (0..5_000).for_each(|name| {
        let blocks = branch(&stem, 2 + name, 2);
        case.writer.apply(Observation::Stored { backend: A, blocks, at: Millis(0) });
    });
    case.now = 1_000;
    case.report(A, &branch(&stem, 2, 2), 6, 2);
    assert!(case.writer.is_behind() && case.stats(A).blocks > 5_000);
    let again = branch(&stem, 3, 2);
    case.store(A, &again);
    assert!(case.catch_up() > 1);
    assert_eq!((case.stats(A).blocks, case.depth(A, &again)), (6, 6));
    assert_eq!(case.stats(A).lost.corrections, 1);
}
