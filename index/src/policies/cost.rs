//! The default: send a request where the least prefill work stands between it and its first token, its own included, and
//! charge it for the requests that its own work will delay. It needs no configured rate, no tokenizer and no engine
//! events, and it is decided per candidate: no fleet-wide switch turns affinity off.
//!
//! ```text
//! cost(b) = pending(b) + a * u(b) - (a - 1) * min(u(b), max(0, T - o(b))) + c * f(b) + g * max(0, k(b) - k_min)
//! a(b)    = 1 + min(A - 1, D * s / (1 - s) * pending(b) / m) + min(4 * (A - 1), D * s / (1 - s) * u(b) / m)
//!
//! pending  uncached prompt tokens routed to b, less what it has prefilled of them by now
//! u, o     tokens of this prompt b does not hold / holds
//! s        share of backends that have prefill pending: how busy the fleet is
//! m        tokens to prefill of a mean request: how many requests come while so much work is done
//! T        tokens in template blocks (16 or more distinct branches below): worth a copy on many backends, charged at 1
//! f        requests there, c tokens each
//! k        conversations living there, counted only for a conversation that has no home: between turns nothing is in
//!          flight, yet everybody who lives there comes back
//! ```
//!
//! Why this `a`. A queue of work p served first come, first served, with requests of mean size m filling a share s of the
//! server, makes all later requests together wait s / (1 - s) * p² / 2m. Work u more makes that
//! s / (1 - s) * (p + u / 2) * u / m more, which per token of u is `a - 1`. It grows with the load (reuse is capacity, and
//! matters when capacity is scarce), with the queue (everybody behind waits) and with the request itself: a long
//! conversation stays at home where a short one is spread. Its own length counts whole, not half, since what is computed
//! again also pushes as much out of that cache. D is below 1 because whoever can go elsewhere does not wait: measured on
//! chat, shared documents and agents, 0.15 to 0.5 do alike.
//!
//! Both parts are bounded, since a share close to 1 says little. The queue's bound is the lower one: a backend must not
//! become taboo. The length's is what keeps a fleet alive whose caches are too small: a price below some twenty lets long
//! conversations be computed again all over the fleet, each time pushing out another one that returns.

use crate::{BackendId, LoadView, Policy, Score, View};

/// Expected prefill work.
#[derive(Debug)]
pub(super) struct Cost {
    recompute_max: f64,
    request_tokens: f64,
    conversation_tokens: f64,
    mean: Mean,
}

/// `D`: the part of the delay a single queue would suffer that is charged.
const DELAY: f64 = 0.3;

/// How many times the queue's bound is the bound of the request's own length.
const OWN_BOUND: f64 = 4.0;

/// The busiest fleet that is told apart, as `s / (1 - s)`: beyond 95 % the share says nothing about how far beyond.
const BUSY_MAX: f64 = 19.0;

impl Cost {
    pub(super) fn new(recompute_max: f64, request_tokens: f64, conversation_tokens: f64) -> Self {
        Self { recompute_max, request_tokens, conversation_tokens, mean: Mean::default() }
    }

    /// The price of one token to be prefilled.
    fn recompute(&self, view: &View<'_>, candidate: &LoadView, uncached: f64) -> f64 {
        let idle = 1.0 - view.pending_share;
        let busy = if idle > 0.0 { (view.pending_share / idle).min(BUSY_MAX) } else { BUSY_MAX };
        let per_token = DELAY * busy / self.mean.or(view.ask.prompt_tokens as f64).max(1.0);
        let most = self.recompute_max - 1.0;
        let queue = (per_token * candidate.uncached_tokens as f64).min(most);
        1.0 + queue + (per_token * uncached).min(OWN_BOUND * most)
    }
}

impl Policy for Cost {
    fn name(&self) -> &'static str {
        "cost"
    }

    fn score(&mut self, view: &View<'_>, candidate: &LoadView) -> Score {
        let uncached = view.ask.uncached_tokens(candidate.overlap_blocks);
        let a = self.recompute(view, candidate, uncached);
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

    fn placed(&mut self, _id: BackendId, uncached_tokens: f64) {
        self.mean.add(uncached_tokens);
    }
}

/// A mean that starts with the first sample and forgets after some hundreds.
#[derive(Debug, Default)]
struct Mean {
    value: f64,
    samples: f64,
}

/// Samples remembered: sizes differ a thousandfold, so that a mean over fewer would follow single requests.
const SAMPLES_MAX: f64 = 200.0;

impl Mean {
    fn add(&mut self, sample: f64) {
        self.samples = (self.samples + 1.0).min(SAMPLES_MAX);
        self.value += (sample - self.value) / self.samples;
    }

    /// The mean, or `other` while there is none.
    fn or(&self, other: f64) -> f64 {
        if self.samples > 0.0 { self.value } else { other }
    }
}
