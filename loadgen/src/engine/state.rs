//! What an engine tells of itself at one moment: to tests as [`EngineState`], to the monitoring endpoints as a snapshot.

use serde::{Deserialize, Serialize};

use super::info::histogram::Latencies;
use super::model::{Counters, Load, Slot};
use super::shared::Shared;

/// What an engine did and does, as `GET /sim/state` tells it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EngineState {
    /// Changes with every (simulated) process start.
    pub identity: String,
    /// Start of that process, milliseconds since 1970.
    pub started_ms: u64,
    /// HTTP requests of any kind.
    pub http_requests: u64,
    /// Connections accepted.
    pub connections: u64,
    /// Connections open now.
    pub connections_open: u64,
    /// Inference requests accepted by the model.
    pub requests: u64,
    /// Inference requests with a slot.
    pub running: u64,
    /// Inference requests waiting for one.
    pub waiting: u64,
    /// Requests answered to the end.
    pub finished: u64,
    /// Requests whose client left first, or that a fault cut.
    pub aborted: u64,
    /// Requests refused for lack of room.
    pub refused: u64,
    /// Requests that failed because the pool was exhausted.
    pub overflowed: u64,
    /// Prompt tokens of requests whose prefill is done.
    pub prompt_tokens: u64,
    /// Of these, reused.
    pub cached_tokens: u64,
    /// Of these, computed.
    pub computed_tokens: u64,
    /// Tokens produced.
    pub generated_tokens: u64,
    /// Prompt tokens waiting to be computed.
    pub pending_tokens: u64,
    /// KV blocks of running requests.
    pub kv_blocks_in_use: u64,
    /// KV blocks kept for reuse.
    pub kv_blocks_cached: u64,
    /// KV blocks there are.
    pub kv_blocks: u64,
    /// Blocks pushed out of the cache.
    pub evicted_blocks: u64,
    /// Requests that named a slot.
    pub named: u64,
    /// Of these, those whose slot was busy.
    pub named_busy: u64,
}

fn state_of(load: Load, counters: Counters) -> EngineState {
    EngineState {
        requests: counters.submitted,
        running: load.running as u64,
        waiting: load.waiting as u64,
        finished: counters.finished,
        overflowed: counters.overflowed,
        prompt_tokens: counters.prompt_tokens,
        cached_tokens: counters.cached_tokens,
        computed_tokens: counters.computed_tokens,
        generated_tokens: counters.generated_tokens,
        pending_tokens: load.pending_tokens,
        kv_blocks_in_use: load.blocks_in_use as u64,
        kv_blocks_cached: load.blocks_cached as u64,
        evicted_blocks: counters.evicted_blocks,
        named: counters.named,
        named_busy: counters.named_busy,
        ..EngineState::default()
    }
}

/// The slots and what the monitoring endpoints need of the rest, at one moment.
#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    pub(super) load: Load,
    pub(super) counters: Counters,
    pub(super) slots: Vec<Slot>,
    pub(super) latencies: Latencies,
    pub(super) identity: u64,
    pub(super) started_ms: u64,
    pub(super) aborted: u64,
}

impl Shared {
    pub(super) fn state(&self) -> EngineState {
        let core = self.core();
        let (load, counters) = (core.engine.load(), core.engine.counters());
        EngineState {
            identity: format!("{:016x}", core.identity),
            started_ms: core.started_ms,
            http_requests: core.http_requests,
            connections: core.connections,
            connections_open: core.connections_open,
            aborted: core.aborted,
            refused: counters.refused + core.refused,
            kv_blocks: core.engine.params().kv_blocks as u64,
            ..state_of(load, counters)
        }
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.tick();
        let core = self.core();
        Snapshot {
            load: core.engine.load(),
            counters: core.engine.counters(),
            slots: core.engine.slots().to_vec(),
            latencies: core.latencies.clone(),
            identity: core.identity,
            started_ms: core.started_ms,
            aborted: core.aborted,
        }
    }
}
