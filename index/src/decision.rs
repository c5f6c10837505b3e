//! What was decided and why: the chosen backend, how the others scored, why each of the rest was refused. Plain values
//! of bounded size, so that a decision can be handed to another thread and explained later. It names backends by id only.

use crate::limits::DECISION_CANDIDATES_MAX;
use crate::{BackendId, Rejected, Reservation, Score};

/// Why a backend could not be considered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Does not serve this model (or the tenant may not use it).
    NotInPool,
    /// The caller ruled it out: it was tried before for this request.
    Excluded,
    /// Switched off by an operator, or not in the fleet.
    Disabled,
    /// Failing its health checks.
    Unhealthy,
    /// Failed too often lately.
    BreakerOpen,
    /// Full. Busy is not broken.
    Busy(Rejected),
}

/// How many candidates were refused, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefusalCounts {
    /// Ruled out by the caller.
    pub excluded: u32,
    /// Switched off.
    pub disabled: u32,
    /// Failing health checks.
    pub unhealthy: u32,
    /// Breaker open.
    pub breaker_open: u32,
    /// No request slot free.
    pub busy_requests: u32,
    /// No room in the token pool.
    pub busy_tokens: u32,
}

impl RefusalCounts {
    pub(crate) fn count(&mut self, refusal: Refusal) {
        match refusal {
            // The pool is what is walked, so nobody outside it is met.
            Refusal::NotInPool => {}
            Refusal::Excluded => self.excluded += 1,
            Refusal::Disabled => self.disabled += 1,
            Refusal::Unhealthy => self.unhealthy += 1,
            Refusal::BreakerOpen => self.breaker_open += 1,
            Refusal::Busy(Rejected::Requests) => self.busy_requests += 1,
            Refusal::Busy(Rejected::Tokens) => self.busy_tokens += 1,
        }
    }

    /// Candidates that would take the request but are full.
    pub fn busy(&self) -> u32 {
        self.busy_requests + self.busy_tokens
    }
}

/// What became of one candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// It got the request.
    Chosen(Score),
    /// It had room and scored, and another was better.
    Scored(Score),
    /// It was the best left, and its room was taken by another request between looking and reserving.
    LostRace(Score),
    /// It was not considered.
    Refused(Refusal),
}

/// One backend in a decision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Which backend.
    pub id: BackendId,
    /// Leading blocks of the prompt it plausibly holds.
    pub overlap_blocks: u32,
    /// What became of it.
    pub verdict: Verdict,
}

/// The main reason for a choice, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The only backend that could take the request.
    Only,
    /// The conversation lives there.
    Conversation,
    /// The conversation's home is full and was waited for long enough.
    Spilled,
    /// The conversation's home can take no requests (gone, switched off, failing, or tried before).
    Rehomed,
    /// The conversation's home had room, and another backend was better.
    Moved,
    /// It holds part of the prompt.
    Prefix,
    /// Nothing is held there that matters: it is the least loaded, or the policy does not look at evidence.
    Load,
    /// Nobody was chosen.
    Nobody,
}

impl Reason {
    /// The reason as a metric label.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Only => "only",
            Reason::Conversation => "conversation",
            Reason::Spilled => "spilled",
            Reason::Rehomed => "rehomed",
            Reason::Moved => "moved",
            Reason::Prefix => "prefix",
            Reason::Load => "load",
            Reason::Nobody => "nobody",
        }
    }
}

/// A decision, explained.
#[derive(Clone, Debug)]
pub struct Decision {
    /// Who gets the request.
    pub backend: Option<BackendId>,
    /// Why.
    pub reason: Reason,
    /// Which policy scored.
    pub policy: &'static str,
    /// Leading blocks of the prompt the chosen backend plausibly holds.
    pub overlap_blocks: u32,
    /// The deepest overlap of any backend, chosen or not.
    pub deepest_blocks: u32,
    /// Tokens of the prompt the chosen backend should not have to prefill.
    pub predicted_cached_tokens: u64,
    /// Tokens of the prompt it will have to prefill; what the reservation was charged as prefill work.
    pub predicted_uncached_tokens: u64,
    /// Where the conversation lived before this decision.
    pub home: Option<BackendId>,
    /// Whether whoever is being prefilled at the chosen backend is asked to give way.
    pub asks_way: bool,
    /// The first few candidates, best first, then refused ones if there is room.
    pub candidates: [Option<Candidate>; DECISION_CANDIDATES_MAX],
    /// Backends in the pool.
    pub considered: u32,
    /// How many of them were refused, by reason.
    pub refused: RefusalCounts,
}

/// A reserved place and the decision that led to it.
#[derive(Debug)]
pub struct Placed<'f> {
    /// The place; dropping it gives it back.
    pub reservation: Reservation<'f>,
    /// Why there.
    pub decision: Decision,
}

/// Why nobody got the request.
#[derive(Clone, Debug)]
pub enum Nowhere {
    /// No backend of the pool can take requests at all.
    NoBackend(Decision),
    /// Those that could are full: wait for room.
    Busy(Decision),
    /// The conversation's home is full and has not been waited for long enough: wait for it.
    HomeFull(Decision),
    /// The best backend has room, and the prompt is long and would stand in line behind others there: wait for its turn.
    NotItsTurn(Decision),
}

impl Nowhere {
    /// The decision as far as it got.
    pub fn decision(&self) -> &Decision {
        match self {
            Nowhere::NoBackend(d)
            | Nowhere::Busy(d)
            | Nowhere::HomeFull(d)
            | Nowhere::NotItsTurn(d) => d,
        }
    }
}
