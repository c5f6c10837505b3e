//! Counters a shard keeps for itself.
//!
//! Each shard writes its own padded block with plain stores (it is the only writer), so counting costs no
//! locked instruction; the control thread adds the blocks up when it is scraped. What can be said once a
//! request is over is counted by the learn thread from records instead.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam::utils::CachePadded;

/// What a shard counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Count {
    /// Client connections accepted.
    Accepted,
    /// Client connections refused for lack of room.
    ConnectionsRefused,
    /// Client connections closed.
    Closed,
    /// Failures of accept itself.
    AcceptErrors,
    /// Connections ended by a caught panic.
    Panics,
    /// Requests whose head was refused.
    HeadsRefused,
    /// Upstream connections opened.
    UpstreamConnects,
    /// Upstream connections taken from the pool.
    UpstreamReused,
    /// Reused connections found dead before any reply byte and replaced.
    UpstreamStale,
    /// Requests sent to another backend after a failure or a busy answer.
    Retries,
    /// Requests ended in their prefill and sent again to the same backend, to let others go first.
    GaveWay,
    /// Busy answers of engines.
    BusyAnswers,
    /// Answers by which engines refused a caller's quota.
    RateLimited,
    /// Answers by which engines refused a caller's key.
    KeysRefused,
    /// Failures of backends before any reply byte went to the client.
    UpstreamFailures,
    /// Requests refused because bodies and replies took all the memory they may.
    BodiesRefused,
    /// Bytes sent to clients.
    BytesDown,
    /// Events relayed.
    Events,
    /// Bodies sent with something mended.
    BodiesRepaired,
    /// Bodies in which nothing could be mended, because they cannot be looked into.
    BodiesOpaque,
    /// Requests that named their slot of a llama.cpp server.
    SlotsNamed,
}

/// How many counters there are.
pub const COUNTS: usize = Count::SlotsNamed as usize + 1;

/// Values that go up and down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Level {
    /// Client connections open.
    Sessions,
    /// Idle upstream connections.
    UpstreamIdle,
    /// Requests waiting for room.
    Waiting,
    /// Bytes held for requests and replies.
    MemoryHeld,
    /// 1 when the shard runs on io_uring, 0 on epoll.
    IoUring,
    /// Ticks of the shard so far; [`TICKS_ENDED`] once it has ended.
    Ticks,
}

/// What stands for the ticks of a shard that has ended, as it does after a drain.
pub const TICKS_ENDED: u64 = u64::MAX;

/// How many levels there are.
pub const LEVELS: usize = Level::Ticks as usize + 1;

/// One shard's counters.
#[derive(Debug, Default)]
pub struct ShardStats {
    counts: CachePadded<[AtomicU64; COUNTS]>,
    levels: CachePadded<[AtomicU64; LEVELS]>,
}

impl ShardStats {
    /// Adds to a counter; only ever called on the shard's own thread.
    pub fn add(&self, count: Count, by: u64) {
        if let Some(cell) = self.counts.get(count as usize) {
            // Relaxed load and store: one writer, and readers only want a recent value.
            cell.store(cell.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
        }
    }

    /// Sets a level; only ever called on the shard's own thread.
    pub fn set(&self, level: Level, value: u64) {
        if let Some(cell) = self.levels.get(level as usize) {
            // Relaxed: as in `add`.
            cell.store(value, Ordering::Relaxed);
        }
    }

    /// Reads a counter from any thread.
    pub fn count(&self, count: Count) -> u64 {
        // Relaxed: a recent value is enough.
        self.counts.get(count as usize).map_or(0, |cell| cell.load(Ordering::Relaxed))
    }

    /// Reads a level from any thread.
    pub fn level(&self, level: Level) -> u64 {
        // Relaxed: a recent value is enough.
        self.levels.get(level as usize).map_or(0, |cell| cell.load(Ordering::Relaxed))
    }
}
