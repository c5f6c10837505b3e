//! Our index, driven as the proxy's learn thread drives it: a lock-free queue that nobody is woken for, batches, one
//! publication a batch. Evictions are its own: it is told capacities, not what went.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use crossbeam::queue::SegQueue;
use index::{
    BackendId, IndexConfig, IndexHandle, IndexReader, IndexWriter, Millis, Observation, Overlaps,
    SequenceHash,
};

use super::Contender;
use crate::clock::pause;
use crate::plan::{Plan, Request, Shape};

/// Observations taken in before the index is published: what the proxy takes (`LEARN_BATCH_MAX`).
const BATCH: u64 = 2048;
/// How long the update thread rests when its queue was empty: as the proxy's (`LEARN_PAUSE_MIN_MS`).
const PAUSE_US: u64 = 1_000;
/// How often whoever waits for the last publication looks.
const SETTLE_US: u64 = 50;

/// What the threads share.
#[derive(Debug, Default)]
struct Shared {
    queue: SegQueue<Observation>,
    /// Observations that readers see.
    published: AtomicU64,
    stopping: AtomicBool,
}

#[derive(Debug)]
pub(crate) struct Shearwater {
    shared: Arc<Shared>,
    handed: AtomicU64,
    handle: IndexHandle,
    thread: Option<JoinHandle<()>>,
}

fn learn(shared: &Shared, mut writer: IndexWriter) {
    let mut taken = 0;
    // Acquire: pairs with the Release in `drop`.
    while !shared.stopping.load(Ordering::Acquire) {
        let mut batch = 0;
        while batch < BATCH
            && let Some(observation) = shared.queue.pop()
        {
            writer.apply(observation);
            batch += 1;
        }
        if batch > 0 {
            taken += batch;
            writer.publish(Millis(taken));
            // Release: pairs with the Acquire in `settle`; the snapshot is out.
            shared.published.store(taken, Ordering::Release);
        }
        if batch < BATCH {
            pause(PAUSE_US);
        }
    }
}

impl Contender for Shearwater {
    const NAME: &'static str = "shearwater";
    const CALLS: &'static str = "IndexReader::load + Snapshot::overlaps; IndexWriter::apply(Stored), publish every batch \
                                 of at most 2,048 from a lock-free queue; capacities by Budget";
    type Key = SequenceHash;
    type Reader = (IndexReader, Overlaps);
    type Update = Observation;
    type Found = ();

    fn start(shape: Shape) -> Self {
        let config = IndexConfig {
            fleet_blocks_max: 2 * (shape.backends * shape.blocks_max()) as u64,
            backend_blocks_max: shape.blocks_max() as u64,
            ..IndexConfig::default()
        };
        let (writer, handle) = index::index(config);
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("learn".to_owned());
        let thread = thread.spawn(move || learn(&of_thread, writer)).ok();
        assert!(thread.is_some(), "the update thread could not be started");
        Self { shared, handed: AtomicU64::new(0), handle, thread }
    }

    fn reader(&self) -> Self::Reader {
        (self.handle.reader(), Overlaps::new())
    }

    fn key(_: u64, chain: u64) -> SequenceHash {
        SequenceHash(chain)
    }

    fn update(plan: &Plan, request: &Request) -> Observation {
        let blocks = plan.prompt(request).chain.iter().map(|&hash| SequenceHash(hash)).collect();
        let at = Millis((request.at * 1000.0) as u64);
        Observation::Stored { backend: BackendId(request.backend), blocks, at }
    }

    fn lookup(&self, (reader, overlaps): &mut Self::Reader, keys: &[SequenceHash]) {
        reader.load().overlaps(keys, overlaps);
    }

    fn hand_over(&self, update: Observation) {
        self.shared.queue.push(update);
        // Relaxed: only the threads that hand over count, and they are joined before anybody settles.
        self.handed.fetch_add(1, Ordering::Relaxed);
    }

    fn settle(&self) {
        // Acquire: pairs with the update thread's Release. Relaxed: see `hand_over`.
        while self.shared.published.load(Ordering::Acquire) < self.handed.load(Ordering::Relaxed) {
            pause(SETTLE_US);
        }
    }

    fn depths((_, overlaps): &Self::Reader, (): &(), depths: &mut [u32]) {
        for (at, depth) in depths.iter_mut().enumerate() {
            *depth = overlaps.depth(BackendId(at as u16));
        }
    }
}

impl Drop for Shearwater {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `learn`.
        self.shared.stopping.store(true, Ordering::Release);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
