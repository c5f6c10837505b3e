//! The default: send a request where the least prefill work stands between it and its first token, and weigh its own
//! recomputation more the busier the fleet is. It needs no service rate, no tokenizer and no engine events, and it is
//! decided per candidate: no fleet-wide switch turns affinity off.
//!
//! ```text
//! cost(b) = pending(b) + a * u(b) - (a - 1) * min(u(b), max(0, T - o(b))) + c * f(b) + g * max(0, k(b) - k_min)
//!
//! pending  uncached prompt tokens routed to b and not prefilled yet
//! u, o     tokens of this prompt b does not hold / holds
//! a        1 + (A - 1) * share of backends that have prefill pending: reuse is capacity, and matters when it is scarce
//! T        tokens in template blocks (16 or more distinct branches below): worth a copy on many backends, charged at 1
//! f        requests there, c tokens each
//! k        conversations living there, counted only for a conversation that has no home: between turns nothing is in
//!          flight, yet everybody who lives there comes back
//! ```

use crate::{LoadView, Policy, Score, View};

/// Expected prefill work.
#[derive(Debug)]
pub(super) struct Cost {
    recompute_max: f64,
    request_tokens: f64,
    conversation_tokens: f64,
}

impl Cost {
    pub(super) fn new(recompute_max: f64, request_tokens: f64, conversation_tokens: f64) -> Self {
        Self { recompute_max, request_tokens, conversation_tokens }
    }
}

impl Policy for Cost {
    fn name(&self) -> &'static str {
        "cost"
    }

    fn score(&mut self, view: &View<'_>, candidate: &LoadView) -> Score {
        let a = 1.0 + (self.recompute_max - 1.0) * view.pending_share;
        let uncached = view.ask.uncached_tokens(candidate.overlap_blocks);
        let template = view.overlaps.template_depth().saturating_sub(candidate.overlap_blocks);
        let busy = candidate.in_flight.max(candidate.queue_depth);
        let crowd = match view.home {
            Some(_) => 0,
            None => candidate.conversations - view.conversations_min.min(candidate.conversations),
        };
        let terms = [
            candidate.uncached_tokens as f64,
            a * uncached,
            -(a - 1.0) * uncached.min(view.ask.tokens(template)),
            self.request_tokens * f64::from(busy),
            self.conversation_tokens * f64::from(crowd),
        ];
        Score::sum(&["pending", "own", "template", "requests", "conversations"], &terms)
    }

    fn keeps_home(&self) -> bool {
        true
    }

    fn reads_evidence(&self) -> bool {
        true
    }
}
