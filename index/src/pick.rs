//! The decision itself: filter, score, reserve, and on a lost race the next best.
use crate::*;

/// One request's question: who should get it.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Hashes of the prompt's whole blocks.
    pub blocks: &'a [SequenceHash],
    /// Tokens a block, as learned.
    pub block_tokens: f32,
    /// Tokens of the prompt, estimated.
    pub prompt_tokens: u64,
    /// Tokens of the answer, expected.
    pub output_tokens: u64,
    /// Which conversation it belongs to, if that is known.
    pub conversation: Option<ConversationKey>,
    /// Backends that may serve it.
    pub pool: &'a BackendSet,
    /// Backends tried before for this request.
    pub excluded: &'a BackendSet,
    /// How long it has waited for room, in ms.
    pub waited_ms: u64,
    /// How long a conversation waits for its home before any room will do, in ms.
    pub home_wait_ms: u64,
    /// The time.
    pub now: Millis,
    /// A random number, fresh for this request.
    pub random: u64,
}

/// Decides, for one shard. Owns its policy and its scratch.
#[derive(Debug)]
pub struct Picker {
    policy: Box<dyn Policy>,
}

impl Picker {
    /// A picker with this policy.
    pub fn new(kind: PolicyKind) -> Self {
        Self { policy: kind.build() }
    }

    /// Chooses a backend and reserves a place on it.
    pub fn pick<'f>(
        &mut self,
        _fleet: &'f Fleet,
        _snapshot: &Snapshot,
        ask: &Ask<'_>,
    ) -> Result<Placed<'f>, Nowhere> {
        Err(Nowhere::NoBackend(self.explain(_fleet, _snapshot, ask)))
    }

    /// The same without reserving or recording anything.
    pub fn explain(&mut self, _fleet: &Fleet, _snapshot: &Snapshot, _ask: &Ask<'_>) -> Decision {
        Decision {
            backend: None,
            reason: Reason::Nobody,
            policy: self.policy.name(),
            overlap_blocks: 0,
            deepest_blocks: 0,
            predicted_cached_tokens: 0,
            predicted_uncached_tokens: 0,
            home: None,
            candidates: [None; 8],
            considered: 0,
            refused: RefusalCounts::default(),
        }
    }
}
