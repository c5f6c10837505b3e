//! The index as its users see it: one writer that takes observations in and publishes, any number of readers of published
//! snapshots. The writer lives on one thread; nothing here starts threads, waits, or decides when to publish.

use std::fmt;

use crate::evidence::{Evidence, Lost, Telling};
use crate::limits::{
    BACKEND_BLOCKS_MAX_DEFAULT, FLEET_BLOCKS_MAX_DEFAULT, PURGE_STEPS_MAX, RECLAIM_STEPS,
};
use crate::publication::{Publisher, Subscriber, Subscription, publication};
use crate::tree::{Grave, Tree};
use crate::{BackendId, BackendSet, Millis, Overlaps, SequenceHash};

/// Bounds of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexConfig {
    /// Blocks held over all backends together.
    pub fleet_blocks_max: u64,
    /// Blocks held for a backend whose own capacity was never told ([`Observation::Budget`]).
    pub backend_blocks_max: u64,
    /// Evidence not used for this long is forgotten, in ms; 0 means never.
    pub idle_ms_max: u64,
    /// Steps taken in one go to free what a cleared or removed backend held; at least 1.
    pub purge_steps_max: usize,
}

impl Default for IndexConfig {
    fn default() -> Self {
        Self {
            fleet_blocks_max: FLEET_BLOCKS_MAX_DEFAULT,
            backend_blocks_max: BACKEND_BLOCKS_MAX_DEFAULT,
            idle_ms_max: 0,
            purge_steps_max: PURGE_STEPS_MAX,
        }
    }
}

/// Something learned about what a backend holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// A prompt was routed to the backend, or was finished there: it holds these leading blocks.
    Stored {
        /// Where.
        backend: BackendId,
        /// The prompt's blocks, from the first.
        blocks: Vec<SequenceHash>,
        /// When.
        at: Millis,
    },
    /// The engine reported how much of a prompt it had cached when the prompt came. Where that is less than predicted (by
    /// more than one block) the evidence beyond was wrong and is taken back. What the engine has computed since is a
    /// [`Stored`](Self::Stored) to be sent after this.
    Reported {
        /// Where.
        backend: BackendId,
        /// The prompt's blocks, from the first.
        blocks: Vec<SequenceHash>,
        /// Leading blocks it was expected to hold.
        predicted_blocks: u32,
        /// Leading blocks it held.
        cached_blocks: u32,
        /// When.
        at: Millis,
    },
    /// The engine reported how much of a prompt it had cached when the prompt came, be it what was predicted or not: what
    /// its capacity is learned from. To be sent before the [`Stored`](Self::Stored) of the prompt's end.
    Cached {
        /// Where.
        backend: BackendId,
        /// The prompt's blocks, from the first.
        blocks: Vec<SequenceHash>,
        /// Leading blocks that were cached for sure.
        least: u32,
        /// Leading blocks beyond which none was.
        most: u32,
        /// When the prompt was routed: the time of its first `Stored`.
        routed_at: Millis,
    },
    /// The engine restarted or dropped its cache: it holds nothing. Its budget stays.
    Cleared {
        /// Where.
        backend: BackendId,
    },
    /// The backend left the fleet; its id may be given to another.
    Removed {
        /// Which.
        backend: BackendId,
    },
    /// What the engine's cache is thought to hold. From there on it is learned ([`Cached`](Self::Cached)), from anew
    /// where this changes.
    Budget {
        /// Where.
        backend: BackendId,
        /// In blocks; 0 means unknown, and the default holds.
        blocks_max: u64,
    },
}

/// Makes an empty index: its writer, and where readers come from.
pub fn index(config: IndexConfig) -> (IndexWriter, IndexHandle) {
    let evidence = Evidence::new(config);
    let hidden = BackendSet::default();
    let empty = Snapshot { tree: Tree::new(), hidden, version: 0, at: Millis(0) };
    let (publisher, subscription) = publication(empty);
    (
        IndexWriter { evidence, publisher, grave: Grave::default(), retired: 0 },
        IndexHandle { subscription },
    )
}

/// A published, immutable index: who plausibly held which prefix when it was published.
pub struct Snapshot {
    tree: Tree,
    /// Backends not to be believed: they hold nothing, and the tree is not rid of them yet.
    hidden: BackendSet,
    version: u64,
    at: Millis,
}

impl Snapshot {
    /// Finds how deep each backend's evidence reaches into `blocks`. Costs the spans on the path and the holders of the
    /// first, not the blocks; allocates only until `out` has grown to the fleet's size.
    pub fn overlaps(&self, blocks: &[SequenceHash], out: &mut Overlaps) {
        self.tree.overlaps(blocks, out);
        out.hide(&self.hidden);
    }

    /// How many were published before it.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// When it was published.
    pub fn at(&self) -> Millis {
        self.at
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("version", &self.version).finish_non_exhaustive()
    }
}

/// The index's only writer.
#[derive(Debug)]
pub struct IndexWriter {
    evidence: Evidence,
    publisher: Publisher<Snapshot>,
    grave: Grave,
    retired: usize,
}

impl IndexWriter {
    /// Takes one observation in. Readers see it after the next [`publish`](Self::publish).
    pub fn apply(&mut self, observation: Observation) {
        match observation {
            Observation::Stored { backend, blocks, at } => {
                self.evidence.store(backend, &blocks, at);
            }
            Observation::Reported { backend, blocks, predicted_blocks, cached_blocks, at } => {
                self.evidence.report(backend, &blocks, predicted_blocks, cached_blocks, at);
            }
            Observation::Cached { backend, blocks, least, most, routed_at } => {
                self.evidence.learn(backend, &blocks, least..most, routed_at);
            }
            Observation::Cleared { backend } => self.evidence.clear(backend),
            Observation::Removed { backend } => self.evidence.remove(backend),
            Observation::Budget { backend, blocks_max } => {
                self.evidence.set_budget(backend, blocks_max);
            }
        }
    }

    /// Publishes what changed since the last time, and frees old snapshots no reader holds, in steps. True when something was new.
    /// Costs a few hundred nanoseconds; what a batch touched was copied when it was applied.
    pub fn publish(&mut self, now: Millis) -> bool {
        self.evidence.expire_some(now);
        self.evidence.work_off_some();
        let changed = self.evidence.changed();
        let fresh = changed.is_some();
        if let Some((tree, hidden)) = changed {
            let version = self.publisher.current().version + 1;
            self.publisher.publish(Snapshot { tree, hidden, version, at: now });
        }
        let Self { publisher, grave, .. } = self;
        self.retired = publisher.reclaim_into(|snapshot| grave.bury(snapshot.tree));
        self.grave.free_some(RECLAIM_STEPS);
        fresh
    }

    /// Tells what is believed, path by path, to whoever takes over: the paths used last, over all backends, the least
    /// recently used of these first. Blocks are told by halves of their hashes, which are hashes to an index.
    pub fn tell(&self, most: Telling, each: impl FnMut(BackendId, &[SequenceHash], Millis)) {
        self.evidence.tell(most, each);
    }

    /// Takes in a path that another writer [told](Self::tell). They are to come in the order in which they were told.
    pub fn inherit(&mut self, backend: BackendId, blocks: &[SequenceHash], at: Millis) {
        self.evidence.inherit(backend, blocks, at);
    }

    /// Whether publishing again would do more of what is left: what cleared or removed backends held (nobody believes in
    /// that any more), what lowered budgets no longer allow, and what corrections found lost is freed in steps, one a
    /// publication, so that no publication takes long.
    pub fn is_behind(&self) -> bool {
        self.evidence.is_behind()
    }

    /// Blocks held, summed over backends: one of the [counts](Self::stats), without the walk.
    pub fn resident_blocks(&self) -> u64 {
        self.evidence.resident_blocks()
    }

    /// Counts, for metrics and the admin view. Costs a walk over the backends.
    pub fn stats(&self) -> IndexStats {
        let mut stats = IndexStats {
            version: self.publisher.current().version,
            retired_snapshots: self.retired as u64,
            ..IndexStats::default()
        };
        self.evidence.stats(&mut stats);
        stats
    }

    /// Checks tree and books against each other, all of them: for tests. The error says which numbered rule broke.
    pub fn check_invariants(&self) -> Result<(), String> {
        self.evidence.check_invariants()
    }
}

/// Where readers come from; cheap to clone, shared by all threads.
#[derive(Clone, Debug)]
pub struct IndexHandle {
    subscription: Subscription<Snapshot>,
}

impl IndexHandle {
    /// A reader for one shard.
    pub fn reader(&self) -> IndexReader {
        IndexReader { subscriber: self.subscription.reader() }
    }
}

/// One shard's reader. It keeps the snapshot it saw last alive, so a shard that may be idle for long should look now and
/// then.
#[derive(Debug)]
pub struct IndexReader {
    subscriber: Subscriber<Snapshot>,
}

impl IndexReader {
    /// The newest snapshot: one comparison when nothing was published since.
    pub fn load(&mut self) -> &Snapshot {
        self.subscriber.load()
    }
}

/// Counts of the index.
#[derive(Clone, Debug, Default)]
pub struct IndexStats {
    /// Blocks held, summed over backends.
    pub resident_blocks: u64,
    /// Blocks of cleared or removed backends, not believed and not freed yet.
    pub stale_blocks: u64,
    /// Blocks in the tree, each counted once however many hold it.
    pub distinct_blocks: u64,
    /// Spans they are kept in.
    pub spans: u64,
    /// Bytes of the current tree and the writer's books, estimated.
    pub bytes: u64,
    /// Snapshots published so far.
    pub version: u64,
    /// Old snapshots readers still hold.
    pub retired_snapshots: u64,
    /// Blocks lost by all backends, removed ones included.
    pub lost: Lost,
    /// By backend, for those that ever held or were given a budget.
    pub backends: Vec<BackendStats>,
}

/// Counts of one backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendStats {
    /// Which.
    pub id: BackendId,
    /// Blocks it plausibly holds.
    pub blocks: u64,
    /// Its budget: the capacity learned from what its engine reports, at first the one assumed.
    pub blocks_max: u64,
    /// The capacity assumed: as told, or the default.
    pub blocks_assumed: u64,
    /// Spans they are in.
    pub spans: u32,
    /// Blocks it lost, by reason.
    pub lost: Lost,
}
