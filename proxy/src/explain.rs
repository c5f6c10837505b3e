//! The newest decisions, kept so that each can be explained: candidates, scores, refusals, and what the
//! engine reported afterwards.
//!
//! Fed by the learn thread, read by the admin address. It holds hashes, names and numbers; no prompt
//! text ever reaches it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use index::{BackendId, Candidate, Decision, Refusal, Rejected, Score, Verdict};
use serde_json::{Map, Value, json};

use crate::answer;
use crate::clock;
use crate::published::Upstream;
use crate::record::Record;

/// One request's decision and what came of it.
#[derive(Debug, Clone)]
pub struct Explained {
    /// The request's number, as its client was told.
    pub request_id: u64,
    /// When it ended, wall-clock ms.
    pub wall_ms: u64,
    /// Endpoint.
    pub api: &'static str,
    /// Model asked for.
    pub model: Option<Box<str>>,
    /// Where it went last.
    pub backend: Option<BackendId>,
    /// Status sent.
    pub status: u16,
    /// Who ended it.
    pub end: &'static str,
    /// Backends tried.
    pub attempts: u32,
    /// How often it was ended in its prefill and sent again.
    pub gave_way: u32,
    /// Time spent waiting for room, ms.
    pub waited_ms: u64,
    /// Prompt tokens as estimated.
    pub prompt_tokens_estimated: u64,
    /// Prompt tokens as the engine reported.
    pub prompt_tokens_reported: Option<u64>,
    /// Cached prompt tokens as the engine reported.
    pub cached_tokens_reported: Option<u64>,
    /// Hash of its conversation, shortened.
    pub conversation: Option<u64>,
    /// The choice.
    pub decision: Box<Decision>,
}

impl Explained {
    /// What a record says, its decision and model taken out of it; `None` when nothing was decided for it.
    pub fn take(record: &mut Record, wall_ms: u64) -> Option<Explained> {
        let decision = record.decision.take()?;
        Some(Explained {
            request_id: record.request_id,
            wall_ms,
            api: record.api.name(),
            model: record.model.take(),
            backend: record.backend,
            status: record.status,
            end: record.end.name(),
            attempts: record.attempts,
            gave_way: record.gave_way,
            waited_ms: record.waited_ms,
            prompt_tokens_estimated: record.prompt_tokens_estimate,
            prompt_tokens_reported: record.usage.as_ref().map(|usage| usage.prompt_tokens),
            cached_tokens_reported: record.usage.as_ref().and_then(|usage| usage.cached_tokens),
            conversation: record.conversation.map(|key| key.0),
            decision,
        })
    }

    /// As shown at the admin address.
    pub fn json(&self, upstreams: &[Upstream]) -> Value {
        json!({
            "request_id": answer::RequestId::of(self.request_id).as_str(),
            "time": clock::rfc3339(self.wall_ms),
            "api": self.api,
            "model": self.model,
            "backend": self.backend.map(|id| name_of(upstreams, id)),
            "status": self.status,
            "end": self.end,
            "attempts": self.attempts,
            "gave_way": self.gave_way,
            "waited_ms": self.waited_ms,
            "conversation": self.conversation.map(short_hash),
            "prompt_tokens": {"estimated": self.prompt_tokens_estimated, "reported": self.prompt_tokens_reported},
            "cached_tokens": {
                "predicted": self.decision.predicted_cached_tokens,
                "reported": self.cached_tokens_reported,
            },
            "decision": decision_json(&self.decision, upstreams),
        })
    }
}

/// The newest decisions, bounded.
#[derive(Debug)]
pub struct DecisionRing {
    kept_max: usize,
    newest: Mutex<VecDeque<Explained>>,
}

impl DecisionRing {
    /// Keeps at most `kept_max`.
    pub fn new(kept_max: usize) -> DecisionRing {
        DecisionRing { kept_max, newest: Mutex::default() }
    }

    /// Takes one in, pushing out the oldest.
    pub fn push(&self, explained: Explained) {
        if self.kept_max == 0 {
            return;
        }
        let mut newest = self.lock();
        if newest.len() >= self.kept_max {
            newest.pop_front();
        }
        newest.push_back(explained);
    }

    /// Copies of the newest, newest first.
    pub fn newest(&self, count: usize) -> Vec<Explained> {
        self.lock().iter().rev().take(count).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Explained>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Half of a hash: enough to tell conversations of one log apart, and of no use for anything else.
pub fn short_hash(hash: u64) -> String {
    format!("{:08x}", hash >> 32)
}

/// A backend's configured name; its number when it has none.
pub fn name_of(upstreams: &[Upstream], id: BackendId) -> String {
    upstreams.get(id.index()).map_or_else(|| id.to_string(), |upstream| upstream.name.to_string())
}

/// A decision in full.
pub fn decision_json(decision: &Decision, upstreams: &[Upstream]) -> Value {
    let candidates = decision.candidates.iter().flatten();
    let refused = &decision.refused;
    json!({
        "backend": decision.backend.map(|id| name_of(upstreams, id)),
        "reason": decision.reason.name(),
        "policy": decision.policy,
        "home": decision.home.map(|id| name_of(upstreams, id)),
        "asks_way": decision.asks_way,
        "overlap_blocks": decision.overlap_blocks,
        "deepest_blocks": decision.deepest_blocks,
        "predicted_cached_tokens": decision.predicted_cached_tokens,
        "predicted_uncached_tokens": decision.predicted_uncached_tokens,
        "considered": decision.considered,
        "refused": {
            "excluded": refused.excluded,
            "disabled": refused.disabled,
            "unhealthy": refused.unhealthy,
            "breaker_open": refused.breaker_open,
            "no_slot": refused.busy_requests,
            "no_tokens": refused.busy_tokens,
        },
        "candidates": candidates.map(|one| candidate_json(one, upstreams)).collect::<Vec<_>>(),
    })
}

fn candidate_json(candidate: &Candidate, upstreams: &[Upstream]) -> Value {
    let mut shown = Map::new();
    shown.insert("backend".into(), name_of(upstreams, candidate.id).into());
    shown.insert("overlap_blocks".into(), candidate.overlap_blocks.into());
    let (verdict, score) = match &candidate.verdict {
        Verdict::Chosen(score) => ("chosen", Some(score)),
        Verdict::Scored(score) => ("scored", Some(score)),
        Verdict::LostRace(score) => ("lost_race", Some(score)),
        Verdict::Refused(why) => (refusal_name(*why), None),
    };
    shown.insert("verdict".into(), verdict.into());
    if let Some(score) = score {
        shown.insert("cost".into(), score.cost.into());
        shown.insert("terms".into(), terms_json(score));
    }
    Value::Object(shown)
}

fn terms_json(score: &Score) -> Value {
    Value::Object(score.terms.iter().map(|(name, value)| (name.to_owned(), value.into())).collect())
}

/// A refusal in one word.
pub fn refusal_name(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::NotInPool => "not_in_pool",
        Refusal::Excluded => "excluded",
        Refusal::Disabled => "disabled",
        Refusal::Unhealthy => "unhealthy",
        Refusal::BreakerOpen => "breaker_open",
        Refusal::Busy(Rejected::Requests) => "no_slot",
        Refusal::Busy(Rejected::Tokens) => "no_tokens",
    }
}
