//! What a policy is: a value that scores candidates, lower cost being better. It never filters (that is done before it),
//! never reserves (after it) and never breaks ties (that is the picker's, the same for all policies).

use crate::limits::SCORE_TERMS_MAX;
use crate::{Ask, BackendId, Overlaps, Seen};

/// One candidate's load, read once for the whole decision so that every term sees the same numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadView {
    /// Which backend.
    pub id: BackendId,
    /// Requests in flight.
    pub in_flight: u32,
    /// Tokens they hold of the pool.
    pub tokens_in_flight: u64,
    /// Prefill work not done yet, in tokens; the prompt being prefilled counts for the rest of it
    /// ([`Load::remaining_tokens`](crate::Load::remaining_tokens)).
    pub uncached_tokens: u64,
    /// The work above was lessened by what would not be waited for if whoever is being prefilled gave way.
    pub asks_way: bool,
    /// Conversations that live there.
    pub conversations: u32,
    /// The same, each counted the less the longer it has been silent: 1 when it just spoke.
    pub due: f32,
    /// Requests waiting inside the engine, as reported.
    pub queue_depth: u32,
    /// KV cache in use, in thousandths, as reported.
    pub kv_usage_permille: u32,
    /// Requests allowed at once; 0 means unlimited.
    pub requests_max: u32,
    /// Tokens in the pool; 0 means unlimited.
    pub tokens_max: u64,
    /// How long first tokens took to come from there.
    pub first_token: Seen,
    /// Leading blocks of this prompt it plausibly holds.
    pub overlap_blocks: u32,
}

/// Everything a policy may look at.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The request.
    pub ask: &'a Ask<'a>,
    /// Who holds how much of its prompt.
    pub overlaps: &'a Overlaps,
    /// Where its conversation lives, if that backend is among the candidates.
    pub home: Option<BackendId>,
    /// Whether its conversation has spoken before and lives somewhere, candidate or not.
    pub follows: bool,
    /// The candidates: admitted and with room. Never empty.
    pub candidates: &'a [LoadView],
    /// Share of the backends that take requests (full ones included) that have prefill work pending, 0 to 1.
    pub pending_share: f64,
}

/// A candidate's cost and what it is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// Lower is better. Only comparable within one decision.
    pub cost: f64,
    /// The terms, kept apart for explaining; their sum is the cost.
    pub terms: Terms,
}

impl Score {
    /// A score whose cost is the sum of its terms. At most [`SCORE_TERMS_MAX`] are kept.
    pub fn sum(names: &'static [&'static str], values: &[f64]) -> Self {
        Self { cost: values.iter().sum(), terms: Terms::new(names, values) }
    }
}

/// A few named numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    names: &'static [&'static str],
    values: [f64; SCORE_TERMS_MAX],
}

impl Terms {
    fn new(names: &'static [&'static str], values: &[f64]) -> Self {
        debug_assert!(names.len() == values.len() && names.len() <= SCORE_TERMS_MAX);
        let mut kept = [0.0; SCORE_TERMS_MAX];
        kept.iter_mut().zip(values).for_each(|(slot, value)| *slot = *value);
        Self { names, values: kept }
    }

    /// Name and value of each term, in the policy's order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, f64)> + '_ {
        self.names.iter().copied().zip(self.values)
    }
}

/// Scores candidates. A value of one shard: it may keep a cursor or a mean, never anything shared.
pub trait Policy: Send + std::fmt::Debug {
    /// The name it is configured and reported by.
    fn name(&self) -> &'static str;

    /// Called once a decision, before the candidates are scored.
    fn prepare(&mut self, _view: &View<'_>) {}

    /// The cost of sending the request to `candidate`, one of `view.candidates`. Asked again for the candidates a
    /// decision shows, so the same view must give the same score.
    fn score(&mut self, view: &View<'_>, candidate: &LoadView) -> Score;

    /// Whether a conversation waits for its home when that is full, and ties go to it.
    fn keeps_home(&self) -> bool {
        false
    }

    /// Whether the score depends on what a candidate holds.
    fn reads_evidence(&self) -> bool {
        false
    }

    /// Whether a long prompt waits for its turn at the best backend rather than stand in line there.
    fn takes_turns(&self) -> bool {
        false
    }

    /// The key whose line of backends ([`rendezvous`](crate::rendezvous)) a large pool is looked at in; none when the
    /// policy follows no such order.
    fn line(&self, _ask: &Ask<'_>) -> Option<u64> {
        None
    }

    /// Told who got the request and how many of its tokens are to be prefilled there, and whether it followed earlier
    /// ones of its conversation, after it was reserved. Not called for a dry run.
    fn placed(&mut self, _id: BackendId, _uncached_tokens: f64, _follows: bool) {}
}
