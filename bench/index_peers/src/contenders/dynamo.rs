//! Dynamo's indexes behind its thread pool: lookups run on the thread that asks, events go to the pool's one event thread.

use std::marker::PhantomData;

use dynamo_kv_router::indexer::{SyncIndexer, ThreadPoolIndexer};
use dynamo_kv_router::protocols::{
    ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheRemoveData, KvCacheStoreData,
    KvCacheStoredBlockData, LocalBlockHash, OverlapScores, RouterEvent,
};
use dynamo_kv_router::{ConcurrentRadixTreeCompressed, PositionalIndexer};

use super::Contender;
use crate::plan::{Plan, Request, Shape};

/// Positions skipped at once: what Dynamo's documents give as the example.
const JUMP: usize = 32;

/// Which of the indexes.
pub(crate) trait Kind: Send + Sync + 'static {
    const NAME: &'static str;
    const CALLS: &'static str;
    type Backend: SyncIndexer;

    fn new() -> Self::Backend;
}

/// The compressed radix tree that Dynamo's router uses.
#[derive(Debug)]
pub(crate) struct Compressed;

impl Kind for Compressed {
    const NAME: &'static str = "dynamo crtc";
    const CALLS: &'static str = "ThreadPoolIndexer<ConcurrentRadixTreeCompressed>, 1 event thread: \
                                 backend().find_matches(keys, false); enqueue_event(Removed), enqueue_event(Stored)";
    type Backend = ConcurrentRadixTreeCompressed;

    fn new() -> Self::Backend {
        ConcurrentRadixTreeCompressed::new()
    }
}

/// The table by position and hash.
#[derive(Debug)]
pub(crate) struct Positional;

impl Kind for Positional {
    const NAME: &'static str = "dynamo positional";
    const CALLS: &'static str = "ThreadPoolIndexer<PositionalIndexer::new(32)>, 1 event thread: \
                                 backend().find_matches(keys, false); enqueue_event(Removed), enqueue_event(Stored)";
    type Backend = PositionalIndexer;

    fn new() -> Self::Backend {
        PositionalIndexer::new(JUMP)
    }
}

pub(crate) struct Dynamo<K: Kind> {
    pool: ThreadPoolIndexer<K::Backend>,
    runtime: tokio::runtime::Runtime,
    kind: PhantomData<K>,
}

/// What one request changes: at most an event of each kind, as its engine sends them.
type Events = [Option<RouterEvent>; 2];

fn event(request: &Request, data: KvCacheEventData) -> RouterEvent {
    let event = KvCacheEvent { event_id: request.blocks.start as u64, data, dp_rank: 0 };
    RouterEvent::new(u64::from(request.backend), event)
}

fn removed(plan: &Plan, request: &Request) -> Option<RouterEvent> {
    let hashes = &plan.evicted[request.evicted.clone()];
    let block_hashes: Vec<_> = hashes.iter().map(|&h| ExternalSequenceBlockHash(h)).collect();
    let data = KvCacheEventData::Removed(KvCacheRemoveData { block_hashes });
    (!hashes.is_empty()).then(|| event(request, data))
}

fn stored(plan: &Plan, request: &Request) -> Option<RouterEvent> {
    let prompt = plan.prompt(request);
    let new = request.held..prompt.chain.len();
    let block = |at: usize| KvCacheStoredBlockData {
        block_hash: ExternalSequenceBlockHash(prompt.chain[at]),
        tokens_hash: LocalBlockHash(prompt.local[at]),
        mm_extra_info: None,
    };
    let parent = request.held.checked_sub(1).map(|at| ExternalSequenceBlockHash(prompt.chain[at]));
    let data = KvCacheStoreData {
        parent_hash: parent,
        start_position: None,
        blocks: new.clone().map(block).collect(),
    };
    (!new.is_empty()).then(|| event(request, KvCacheEventData::Stored(data)))
}

impl<K: Kind> Contender for Dynamo<K> {
    const NAME: &'static str = K::NAME;
    const CALLS: &'static str = K::CALLS;
    type Key = LocalBlockHash;
    type Reader = ();
    type Update = Events;
    type Found = OverlapScores;

    #[expect(clippy::expect_used, reason = "a benchmark without its runtime has nothing to say")]
    fn start(shape: Shape) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        Self {
            pool: ThreadPoolIndexer::new(K::new(), 1, shape.block_tokens()),
            runtime: runtime.expect("a runtime without drivers needs nothing"),
            kind: PhantomData,
        }
    }

    fn reader(&self) {}

    fn key(local: u64, _: u64) -> LocalBlockHash {
        LocalBlockHash(local)
    }

    fn update(plan: &Plan, request: &Request) -> Events {
        [removed(plan, request), stored(plan, request)]
    }

    fn lookup(&self, (): &mut (), keys: &[LocalBlockHash]) -> OverlapScores {
        self.pool.backend().find_matches(keys, false)
    }

    fn hand_over(&self, update: Events) {
        for event in update.into_iter().flatten() {
            // Fails only once the event thread is gone, which ends the trial in `settle`.
            let _ = self.pool.enqueue_event(event);
        }
    }

    fn settle(&self) {
        let settled = self.runtime.block_on(self.pool.flush_and_wait());
        assert!(settled.is_ok(), "the event thread of {} is gone", K::NAME);
    }

    fn depths((): &(), found: &OverlapScores, depths: &mut [u32]) {
        for (who, &depth) in &found.scores {
            depths[who.worker_id as usize] = depth;
        }
    }
}
