//! The index as its users see it: one writer that applies observations and publishes, many readers of snapshots.
use crate::publication::{Publisher, Subscriber, Subscription, publication};
use crate::*;

/// Bounds of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexConfig {
    /// Blocks held over all backends together.
    pub fleet_blocks_max: u64,
    /// Blocks held for a backend whose budget was never told.
    pub backend_blocks_max: u64,
    /// Evidence not used for this long is dropped, in ms; 0 means never.
    pub idle_ms_max: u64,
}

impl Default for IndexConfig {
    fn default() -> Self {
        Self {
            fleet_blocks_max: limits::FLEET_BLOCKS_MAX_DEFAULT,
            backend_blocks_max: limits::BACKEND_BLOCKS_MAX_DEFAULT,
            idle_ms_max: 0,
        }
    }
}

/// Something learned about what a backend holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// A prompt was routed to, or finished on, the backend: it holds these leading blocks.
    Stored {
        /// Where.
        backend: BackendId,
        /// What.
        blocks: Vec<SequenceHash>,
        /// When.
        at: Millis,
    },
    /// The engine reported how much of a prompt it had cached.
    Reported {
        /// Where.
        backend: BackendId,
        /// The prompt.
        blocks: Vec<SequenceHash>,
        /// Leading blocks it was expected to hold.
        predicted_blocks: u32,
        /// Leading blocks it held.
        cached_blocks: u32,
        /// When.
        at: Millis,
    },
    /// The engine restarted: it holds nothing.
    Cleared {
        /// Where.
        backend: BackendId,
    },
    /// The backend left the fleet.
    Removed {
        /// Which.
        backend: BackendId,
    },
    /// What the engine's cache holds.
    Budget {
        /// Where.
        backend: BackendId,
        /// Blocks.
        blocks_max: u64,
    },
}

/// A published, immutable index.
#[derive(Debug)]
pub struct Snapshot {}
impl Snapshot {
    /// Finds how deep each backend's evidence reaches into `blocks`.
    pub fn overlaps(&self, _blocks: &[SequenceHash], out: &mut Overlaps) {
        out.clear()
    }
}

/// Counts of the index.
#[derive(Clone, Debug, Default)]
pub struct IndexStats {
    /// Blocks held, summed over backends.
    pub resident_blocks: u64,
    /// Bytes, estimated.
    pub bytes: u64,
    /// By backend.
    pub backends: Vec<BackendStats>,
}
/// Counts of one backend.
#[derive(Clone, Copy, Debug)]
pub struct BackendStats {
    /// Which.
    pub id: BackendId,
}

/// The one writer.
#[derive(Debug)]
pub struct IndexWriter {
    publisher: Publisher<Snapshot>,
}
impl IndexWriter {
    /// Takes one observation in.
    pub fn apply(&mut self, _o: Observation) {}
    /// Publishes.
    pub fn publish(&mut self, _now: Millis) {
        self.publisher.publish(Snapshot {})
    }
    /// Counts.
    pub fn stats(&self) -> IndexStats {
        IndexStats::default()
    }
}
/// Makes readers.
#[derive(Clone, Debug)]
pub struct IndexHandle {
    subscription: Subscription<Snapshot>,
}
impl IndexHandle {
    /// A reader.
    pub fn reader(&self) -> IndexReader {
        IndexReader { subscriber: self.subscription.reader() }
    }
}
/// A reader.
#[derive(Debug)]
pub struct IndexReader {
    subscriber: Subscriber<Snapshot>,
}
impl IndexReader {
    /// The newest snapshot.
    pub fn load(&mut self) -> &Snapshot {
        self.subscriber.load()
    }
}
/// Makes an empty index.
pub fn index(_config: IndexConfig) -> (IndexWriter, IndexHandle) {
    let (publisher, subscription) = publication(Snapshot {});
    (IndexWriter { publisher }, IndexHandle { subscription })
}
