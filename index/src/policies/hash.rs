//! Consistent hashing with bounded load: a conversation belongs to one backend by its name alone, or a prompt by its head
//! where no conversation is known, and whoever has too much of the load is passed over for the next in line (Mirrokni,
//! Thorup and Zadimoghaddam 2018). Nothing is remembered, so proxies with the same `fingerprint_key` agree without
//! talking. It never looks at evidence.

use crate::limits::HASH_HEAD_BLOCKS;
use crate::{Ask, LoadView, Policy, Score, View, rendezvous};

/// Nobody gets more than this times the mean of the requests in flight: the usual value, a quarter above even.
const BOUND: f64 = 1.25;

/// The first in the key's line that is within the bound.
#[derive(Debug, Default)]
pub(super) struct ConsistentHash {
    /// Requests one may have with this one, at most.
    most: f64,
}

impl Policy for ConsistentHash {
    fn name(&self) -> &'static str {
        "consistent_hash"
    }

    fn line(&self, ask: &Ask<'_>) -> Option<u64> {
        Some(key(ask))
    }

    fn prepare(&mut self, view: &View<'_>) {
        let running: u64 = view.candidates.iter().map(|c| u64::from(c.in_flight)).sum();
        self.most = (BOUND * (running + 1) as f64 / view.candidates.len().max(1) as f64).ceil();
    }

    fn score(&mut self, view: &View<'_>, candidate: &LoadView) -> Score {
        let over = f64::from(candidate.in_flight + 1) > self.most;
        let place = rendezvous::place(key(view.ask), candidate.id) as f64 / u64::MAX as f64;
        Score::sum(&["place", "over"], &[place, f64::from(u8::from(over))])
    }
}

/// What is hashed. A prompt shorter than a block, of nobody known, goes anywhere.
fn key(ask: &Ask<'_>) -> u64 {
    let head = ask.blocks.len().min(HASH_HEAD_BLOCKS);
    let head = head.checked_sub(1).map_or(ask.random, |last| ask.blocks[last].0);
    ask.conversation.map_or(head, |conversation| conversation.0)
}
