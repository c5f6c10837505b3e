//! Everything a trial replays, worked out beforehand and once for all indexes: prompts as hashes, where each request goes,
//! what its backend stores and evicts for it, and what a lookup has to answer. No index has a say in it, so all do the
//! same work.

use std::ops::Range;

use kv_index::{ContentHash, SequenceHash, chain_prefix_hash};

use crate::holdings::Holdings;
use crate::trace::{Arrival, BLOCK_TOKENS};

/// Lookups that are compared with the truth.
const CHECKED: usize = 500;
/// The caches are full when they hold this many thousandths of what they may.
const FULL_PERMILLE: usize = 990;
/// A backend may have computed so many blocks of 512 tokens more than the idlest before it is passed over.
const SLACK_BLOCKS: u64 = 128;

/// What is replayed, and at what size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) backends: usize,
    /// Blocks of the trace (512 tokens) each backend holds.
    pub(crate) capacity: usize,
    /// Blocks that each block of the trace is cut into.
    pub(crate) split: usize,
    /// Requests replayed after the caches are full.
    pub(crate) measured: usize,
}

impl Shape {
    pub(crate) fn block_tokens(self) -> u32 {
        BLOCK_TOKENS / self.split as u32
    }

    /// Blocks each backend holds.
    pub(crate) fn blocks_max(self) -> usize {
        self.capacity * self.split
    }
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Seconds since the first.
    pub(crate) at: f64,
    /// Where it goes.
    pub(crate) backend: u16,
    /// Its blocks in [`Plan::local`] and [`Plan::chain`].
    pub(crate) blocks: Range<usize>,
    /// Of these, the leading ones its backend holds already.
    pub(crate) held: usize,
    /// What its backend evicts for it, in [`Plan::evicted`].
    pub(crate) evicted: Range<usize>,
}

/// A replay.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) shape: Shape,
    pub(crate) requests: Vec<Request>,
    /// Each block's own hash, request after request.
    pub(crate) local: Vec<u64>,
    /// Each block's hash with all before it.
    pub(crate) chain: Vec<u64>,
    pub(crate) evicted: Vec<u64>,
    /// Requests that only fill the caches; the rest is measured.
    pub(crate) warm: usize,
    /// Leading blocks every backend holds of the first measured prompts, when the caches have been filled.
    pub(crate) truth: Vec<Vec<u32>>,
    /// Blocks held then, summed over backends.
    pub(crate) resident: usize,
    /// Blocks held then by anybody.
    pub(crate) distinct: usize,
}

/// A prompt as the indexes see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prompt<'p> {
    pub(crate) local: &'p [u64],
    pub(crate) chain: &'p [u64],
}

impl Plan {
    pub(crate) fn new(arrivals: &[Arrival], shape: Shape) -> Self {
        let mut plan = Self {
            shape,
            requests: Vec::new(),
            local: Vec::new(),
            chain: Vec::new(),
            evicted: Vec::new(),
            warm: 0,
            truth: Vec::new(),
            resident: 0,
            distinct: 0,
        };
        let mut holdings = Holdings::new(shape.backends, shape.blocks_max());
        let full = shape.backends * shape.blocks_max() * FULL_PERMILLE / 1000;
        let mut copies = copies(arrivals);
        while holdings.resident() < full {
            let Some((at, copy, blocks)) = copies.next() else { break };
            plan.place(&mut holdings, at, copy, blocks);
        }
        plan.warm = plan.requests.len();
        (plan.resident, plan.distinct) = (holdings.resident(), holdings.distinct());
        let filled = holdings.clone();
        for (at, copy, blocks) in copies.take(shape.measured) {
            plan.place(&mut holdings, at, copy, blocks);
        }
        let checked = plan.measured().iter().take(CHECKED);
        plan.truth = checked.map(|r| filled.depths(&plan.chain[r.blocks.clone()])).collect();
        plan
    }

    fn place(&mut self, holdings: &mut Holdings, at: f64, copy: u64, ids: &[u64]) {
        let from = self.local.len();
        self.push_hashes(copy, ids);
        let blocks = from..self.local.len();
        let slack = SLACK_BLOCKS * self.shape.split as u64;
        let backend = holdings.choose(&self.chain[blocks.clone()], slack);
        let change = holdings.store(backend, &self.chain[blocks.clone()]);
        let gone = self.evicted.len();
        self.evicted.extend(change.evicted);
        self.requests.push(Request {
            at,
            backend: backend as u16,
            blocks,
            held: change.held,
            evicted: gone..self.evicted.len(),
        });
    }

    fn push_hashes(&mut self, copy: u64, ids: &[u64]) {
        let split = self.shape.split as u64;
        let mut above: Option<SequenceHash> = None;
        for &id in ids {
            // The trace's first block is everybody's system prompt, in every copy.
            let id = if id == 0 { 0 } else { id | copy << 32 };
            for part in 0..split {
                let local = ContentHash(mix(id * split + part));
                let chain =
                    above.map_or(SequenceHash(local.0), |above| chain_prefix_hash(above, local));
                self.local.push(local.0);
                self.chain.push(chain.0);
                above = Some(chain);
            }
        }
    }

    /// The requests that are measured.
    pub(crate) fn measured(&self) -> &[Request] {
        &self.requests[self.warm..]
    }

    pub(crate) fn prompt(&self, request: &Request) -> Prompt<'_> {
        let Request { blocks, .. } = request;
        Prompt { local: &self.local[blocks.clone()], chain: &self.chain[blocks.clone()] }
    }

    /// Block operations of requests: blocks newly stored and blocks evicted.
    pub(crate) fn block_updates(requests: &[Request]) -> usize {
        requests.iter().map(|r| r.blocks.len() - r.held + r.evicted.len()).sum()
    }
}

/// The trace again and again: each time with other conversations, after the one before.
fn copies(arrivals: &[Arrival]) -> impl Iterator<Item = (f64, u64, &[u64])> {
    let (first, last) = (&arrivals[0], &arrivals[arrivals.len() - 1]);
    let span = (last.at - first.at) * (1.0 + 1.0 / arrivals.len() as f64);
    (0..).flat_map(move |copy: u64| {
        arrivals.iter().map(move |a| (a.at + span * copy as f64, copy, a.blocks.as_slice()))
    })
}

/// Any scattering bijection will do for made-up hashes (SplitMix64's finaliser).
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(split: usize) -> Plan {
        let arrivals = (0..50).map(|n| Arrival { at: n as f64, blocks: vec![0, n + 1, n + 2] });
        let shape = Shape { backends: 2, capacity: 20, split, measured: 40 };
        Plan::new(&arrivals.collect::<Vec<_>>(), shape)
    }

    #[test]
    fn hashes_are_those_both_peers_compute() {
        let plan = plan(2);
        let prompt = plan.prompt(&plan.requests[3]);
        let local: Vec<_> =
            prompt.local.iter().map(|&h| dynamo_kv_router::protocols::LocalBlockHash(h)).collect();
        assert_eq!(dynamo_kv_router::protocols::compute_seq_hash_for_block(&local), prompt.chain);
    }

    #[test]
    fn the_caches_are_full_before_anything_is_measured() {
        let plan = plan(1);
        assert!(plan.resident >= 39 && plan.measured().len() == 40);
        assert!(plan.requests.is_sorted_by(|a, b| a.at <= b.at));
        assert_eq!(plan.truth.len(), 40);
    }

    #[test]
    fn a_finer_cut_makes_as_many_times_the_blocks_of_the_same_prompts() {
        let [coarse, fine] = [plan(1), plan(4)];
        for (coarse, fine) in coarse.requests.iter().zip(&fine.requests) {
            assert_eq!((coarse.at, coarse.blocks.len() * 4), (fine.at, fine.blocks.len()));
        }
    }
}
