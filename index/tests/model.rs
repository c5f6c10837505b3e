//! The tree against a naive twin: for every backend a plain list of blocks in order of use. Thousands of seeded random
//! operations; after each the twin's answer and the tree's must be the same. The seed is printed on failure.
#![cfg(not(loom))]

use std::collections::{BTreeMap, HashMap, HashSet};

use index::limits::TEMPLATE_BRANCHES;
use index::{
    BackendId, IndexConfig, IndexReader, IndexWriter, Millis, Observation, Overlaps, SequenceHash,
    index,
};

const BACKENDS: u16 = 12;

/// One backend's blocks by recency: what an engine with a least-recently-used cache would hold.
#[derive(Default)]
struct TwinBackend {
    order: BTreeMap<u64, u64>,
    place: HashMap<u64, u64>,
    blocks_max: usize,
}

impl TwinBackend {
    fn remove(&mut self, hash: u64) {
        if let Some(place) = self.place.remove(&hash) {
            self.order.remove(&place);
        }
    }

    fn depth(&self, chain: &[SequenceHash]) -> usize {
        chain.iter().take_while(|hash| self.place.contains_key(&hash.0)).count()
    }
}

struct Twin {
    backends: Vec<TwinBackend>,
    parents: HashMap<u64, u64>,
    clock: u64,
    default_max: usize,
}

impl Twin {
    fn new(default_max: usize) -> Self {
        let backend = || TwinBackend { blocks_max: default_max, ..Default::default() };
        let backends = (0..BACKENDS).map(|_| backend()).collect();
        Self { backends, parents: HashMap::new(), clock: 0, default_max }
    }

    fn apply(&mut self, observation: &Observation) {
        match observation {
            Observation::Stored { backend, blocks, .. } => self.store(*backend, blocks),
            Observation::Reported { backend, blocks, predicted_blocks, cached_blocks, .. } => {
                if *predicted_blocks > cached_blocks + 1 {
                    self.correct(*backend, blocks, *cached_blocks as usize);
                }
            }
            Observation::Cached { .. } => {}
            Observation::Cleared { backend } => self.clear(*backend),
            Observation::Removed { backend } => {
                self.clear(*backend);
                self.backends[backend.index()].blocks_max = self.default_max;
            }
            Observation::Budget { backend, blocks_max } => {
                let max = if *blocks_max == 0 { self.default_max } else { *blocks_max as usize };
                self.backends[backend.index()].blocks_max = max;
                self.trim(*backend);
            }
        }
    }

    fn store(&mut self, backend: BackendId, blocks: &[SequenceHash]) {
        for pair in blocks.windows(2) {
            self.parents.insert(pair[1].0, pair[0].0);
        }
        let twin = &mut self.backends[backend.index()];
        for hash in blocks.iter().rev() {
            twin.remove(hash.0);
            self.clock += 1;
            twin.order.insert(self.clock, hash.0);
            twin.place.insert(hash.0, self.clock);
        }
        self.trim(backend);
    }

    fn trim(&mut self, backend: BackendId) {
        let twin = &mut self.backends[backend.index()];
        while twin.order.len() > twin.blocks_max {
            let (_, hash) = twin.order.pop_first().unwrap();
            twin.place.remove(&hash);
        }
    }

    fn correct(&mut self, backend: BackendId, blocks: &[SequenceHash], cached: usize) {
        if self.backends[backend.index()].depth(blocks) <= cached {
            return;
        }
        let lost = blocks[cached].0;
        let held: Vec<u64> = self.backends[backend.index()].place.keys().copied().collect();
        for hash in held {
            let mut at = Some(hash);
            while at.is_some() && at != Some(lost) {
                at = at.and_then(|hash| self.parents.get(&hash).copied());
            }
            if at.is_some() {
                self.backends[backend.index()].remove(hash);
            }
        }
    }

    fn clear(&mut self, backend: BackendId) {
        let twin = &mut self.backends[backend.index()];
        twin.order.clear();
        twin.place.clear();
    }

    /// Blocks anybody holds, each with how many tips hang below it.
    fn tips(&self) -> HashMap<u64, u32> {
        let held: HashSet<u64> =
            self.backends.iter().flat_map(|b| b.place.keys().copied()).collect();
        let inner: HashSet<u64> =
            held.iter().filter_map(|h| self.parents.get(h).copied()).collect();
        let mut tips = HashMap::new();
        for tip in held.difference(&inner) {
            let mut at = Some(*tip);
            while let Some(hash) = at {
                *tips.entry(hash).or_default() += 1;
                at = self.parents.get(&hash).copied();
            }
        }
        tips
    }
}

/// How one run differs from another: sizes that reach different corners.
#[derive(Clone, Copy, Debug)]
struct Shape {
    operations: usize,
    /// Most blocks a prompt grows by.
    growth: usize,
    budget: usize,
    /// One in this many prompts starts from nothing.
    fresh: usize,
    /// Steps in which what was cleared is freed.
    purge: usize,
}

struct Run {
    rng: fastrand::Rng,
    shape: Shape,
    prompts: Vec<Vec<SequenceHash>>,
    next_token: u64,
    now: u64,
}

impl Run {
    /// A prompt: the beginning of an earlier one, and something new or nothing.
    fn prompt(&mut self) -> Vec<SequenceHash> {
        let mut chain = Vec::new();
        if !self.prompts.is_empty() && self.rng.usize(..self.shape.fresh) != 0 {
            let from = &self.prompts[self.rng.usize(..self.prompts.len())];
            let keep = if self.rng.bool() { from.len() } else { self.rng.usize(..=from.len()) };
            chain.extend_from_slice(&from[..keep]);
        }
        if chain.is_empty() || self.rng.u8(..) < 200 {
            for _ in 0..self.rng.usize(1..=self.shape.growth) {
                self.next_token += 1;
                let before = chain.last().map_or(1, |hash: &SequenceHash| hash.0);
                chain.push(SequenceHash(scramble(before ^ scramble(self.next_token))));
            }
        }
        if self.prompts.len() < 60 {
            self.prompts.push(chain.clone());
        } else {
            let at = self.rng.usize(..self.prompts.len());
            self.prompts[at] = chain.clone();
        }
        chain
    }

    fn operation(&mut self) -> Observation {
        self.now += self.rng.u64(..200);
        let (backend, at) = (BackendId(self.rng.u16(..BACKENDS)), Millis(self.now));
        match self.rng.u8(..100) {
            0..80 => Observation::Stored { backend, blocks: self.prompt(), at },
            80..95 => {
                let blocks = self.prompts.last().cloned().unwrap_or_default();
                let cached_blocks = self.rng.u32(..=blocks.len() as u32);
                let predicted_blocks = self.rng.u32(..=blocks.len() as u32);
                Observation::Reported { backend, blocks, predicted_blocks, cached_blocks, at }
            }
            95 => Observation::Cleared { backend },
            96 => Observation::Removed { backend },
            _ => {
                let blocks_max = self.rng.u64(..=self.shape.budget as u64 * 2);
                Observation::Budget { backend, blocks_max }
            }
        }
    }
}

/// SplitMix64's finaliser: any bijection that scatters will do.
fn scramble(x: u64) -> u64 {
    let x = (x.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn compare(
    twin: &Twin,
    tips: &HashMap<u64, u32>,
    reader: &mut IndexReader,
    chain: &[SequenceHash],
    overlaps: &mut Overlaps,
    behind: bool,
) {
    reader.load().overlaps(chain, overlaps);
    if behind {
        // Not believed while what was cleared is being freed, else exact.
        for (index, backend) in twin.backends.iter().enumerate() {
            let depth = overlaps.depth(BackendId(index as u16)) as usize;
            assert!(depth == 0 || depth == backend.depth(chain));
        }
        return;
    }
    let mut holders = 0;
    for (index, backend) in twin.backends.iter().enumerate() {
        let (expected, id) = (backend.depth(chain), BackendId(index as u16));
        assert_eq!(overlaps.depth(id) as usize, expected, "{id} of {} blocks", chain.len());
        holders += usize::from(expected > 0);
    }
    assert_eq!(overlaps.holders().len(), holders);
    let template = chain.iter().take_while(|hash| tips.get(&hash.0) >= Some(&TEMPLATE_BRANCHES));
    assert_eq!(overlaps.template_depth() as usize, template.count());
}

fn run(seed: u64, shape: Shape) {
    let (backend_blocks_max, purge_steps_max) = (shape.budget as u64, shape.purge);
    let config = IndexConfig { backend_blocks_max, purge_steps_max, ..Default::default() };
    let (mut writer, handle) = index(config);
    let (mut reader, mut overlaps) = (handle.reader(), Overlaps::new());
    let mut twin = Twin::new(shape.budget);
    let rng = fastrand::Rng::with_seed(seed);
    let mut run = Run { rng, shape, prompts: Vec::new(), next_token: 0, now: 0 };
    for step in 0..shape.operations {
        let observation = run.operation();
        twin.apply(&observation);
        writer.apply(observation);
        if step % 7 == 0 || step + 1 == shape.operations {
            writer.publish(Millis(run.now));
            writer.check_invariants().unwrap();
            // At the end it has to be exact again.
            while step + 1 == shape.operations && writer.is_behind() {
                writer.publish(Millis(run.now));
            }
            let (tips, behind) = (twin.tips(), writer.is_behind());
            for _ in 0..4 {
                let at = run.rng.usize(..run.prompts.len().max(1));
                let mut chain = run.prompts.get(at).cloned().unwrap_or_default();
                chain.truncate(run.rng.usize(..=chain.len()));
                chain.extend((0..run.rng.usize(..3)).map(|_| SequenceHash(run.rng.u64(..))));
                compare(&twin, &tips, &mut reader, &chain, &mut overlaps, behind);
            }
        }
    }
    check_totals(&twin, &writer);
}

fn check_totals(twin: &Twin, writer: &IndexWriter) {
    let stats = writer.stats();
    let resident: usize = twin.backends.iter().map(|b| b.place.len()).sum();
    let distinct: HashSet<u64> =
        twin.backends.iter().flat_map(|b| b.place.keys().copied()).collect();
    assert_eq!(stats.resident_blocks as usize, resident);
    assert_eq!(stats.distinct_blocks as usize, distinct.len());
}

fn run_all(seeds: u64, shape: Shape) {
    for seed in 0..seeds {
        let result = std::panic::catch_unwind(|| run(seed, shape));
        assert!(result.is_ok(), "failed with seed {seed} and {shape:?}");
    }
}

#[test]
fn short_prompts_under_a_tight_budget_match_the_twin() {
    run_all(40, Shape { operations: 600, growth: 6, budget: 40, fresh: 12, purge: usize::MAX });
}

#[test]
fn conversations_that_grow_match_the_twin() {
    run_all(10, Shape { operations: 500, growth: 30, budget: 600, fresh: 30, purge: usize::MAX });
}

#[test]
fn prompts_longer_than_a_span_match_the_twin() {
    run_all(4, Shape { operations: 70, growth: 900, budget: 4000, fresh: 20, purge: usize::MAX });
}

#[test]
fn many_branches_below_one_template_match_the_twin() {
    run_all(10, Shape { operations: 800, growth: 3, budget: 500, fresh: 400, purge: usize::MAX });
}

#[test]
fn what_is_cleared_in_small_steps_matches_the_twin() {
    run_all(30, Shape { operations: 600, growth: 6, budget: 80, fresh: 12, purge: 1 });
    run_all(10, Shape { operations: 800, growth: 3, budget: 500, fresh: 400, purge: 30 });
}
