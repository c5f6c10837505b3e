//! Small identifiers and units shared by the whole crate. They carry no behaviour and never read a clock.

/// Monotonic milliseconds since the process started. Always an argument: this crate never asks what time it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Millis(pub u64);

impl Millis {
    /// Milliseconds from `earlier` to `self`, or zero when `earlier` is in the future (threads read clocks apart).
    pub fn since(self, earlier: Millis) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A backend's place in the [`Fleet`](crate::Fleet), given by the control thread. Ids are reused after removal.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Ord, PartialOrd, Debug)]
pub struct BackendId(pub u16);

impl BackendId {
    /// The id as an array position.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl std::fmt::Display for BackendId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Hash of a whole prefix, up to and including one block. Two equal hashes mean equal prefixes, not only equal blocks.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct SequenceHash(pub u64);

/// Keyed hash of a conversation's name within its scope (tenant, model). The name itself is never kept.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct ConversationKey(pub u64);
