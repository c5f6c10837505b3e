//! The default: send a request where the least prefill work stands between it and its first token, its own included, and
//! charge it for the requests that its own work will delay. It needs no configured rate, no tokenizer and no engine
//! events, and it is decided per candidate: no fleet-wide switch turns affinity off.
//!
//! ```text
//! cost(b) = pending(b) + a * u(b) - (a - 1) * min(u(b), max(0, T - o(b))) + c * f(b) + h(b) + e(b)
//! a(b)    = 1 + min(A - 1, d * s / (1 - s) * pending(b) / m) + min(4 * (A - 1), d * s / (1 - s) * u(b) / m)
//! d       = D + B * w
//! e(b)    = E * z^4 * w * (r(b) / mean r - 1) * u(b) * min(4 * (A - 1), d * z / (1 - z) * u(b) / m)
//! h(b)    = g * k(b) + F * (1 / (1 - l(b))^2 - 1) / 2        l(b) = s * w * r(b) / mean r
//!
//! pending  uncached prompt tokens routed to b, less what it has prefilled of them by now
//! u, o     tokens of this prompt b does not hold / holds
//! s        share of backends that have prefill pending: how busy the fleet is
//! m        tokens to prefill of a mean request: how many requests come while so much work is done
//! T        tokens in template blocks (16 or more distinct branches below): worth a copy on many backends, charged at 1
//! f        requests there, c tokens each
//! z        the mean of s over some hundred requests: how busy the fleet is but for the moment
//! e        what b's own conversations are delayed by u more than those of others would be
//! h        what making b its home costs; only a conversation that has none yet is charged it
//! F        tokens to prefill that a conversation brings after its first request, on average
//! w        share of the fleet's prefill work that follow-ups bring: what is bound to a home and cannot be moved
//! k        conversations living there; each may hold some cache, g tokens' worth
//! r        the same, each counted the less the longer it has been silent
//! l        the load b's own conversations put on it: between turns nothing is in flight, yet they come back
//! ```
//!
//! Why this `a`. A queue of work p served first come, first served, with requests of mean size m filling a share s of the
//! server, makes all later requests together wait s / (1 - s) * p² / 2m. Work u more makes that
//! s / (1 - s) * (p + u / 2) * u / m more, which per token of u is `a - 1`. It grows with the load (reuse is capacity, and
//! matters when capacity is scarce), with the queue (everybody behind waits) and with the request itself: a long
//! conversation stays at home where a short one is spread. Its own length counts whole, not half, since what is computed
//! again also pushes as much out of that cache. d is below 1 because whoever can go elsewhere does not wait; who has a home
//! waits, or computes again what it left there. So d grows with w, the share of the work that is bound so: one d for all
//! was too much for chat and documents, where little is bound, or too little for agents, where nearly all is.
//!
//! Both parts are bounded, since a share close to 1 says little. The queue's bound is the lower one: a backend must not
//! become taboo. The length's is what keeps a fleet alive whose caches are too small: a price below some twenty lets long
//! conversations be computed again all over the fleet, each time pushing out another one that returns.
//!
//! Why this last term. Where work fills a share l of a server, what arrives makes later arrivals wait l^2 / (1 - l) / 2
//! together, in the server's own time; a little more work adds `(1 / (1 - l)^2 - 1) / 2` times itself to that. A
//! conversation is work for as long as it lives: F tokens of it. Everything in it is learned, so it adjusts itself:
//! where conversations rarely go on, F and w are small and a new one follows the cache; where they have dozens of turns, a
//! shared prompt of some thousand tokens saved once does not outweigh a crowded home for life.
//!
//! Why this crowd term. `a` knows how busy the fleet is, not who is: where a prompt is cached nowhere, it is the same
//! everywhere and decides nothing. Yet whom long work delays are the conversations that live beside it, and they come back
//! to some backends more often than to others, so more is charged there and less elsewhere. It gathers long prompts where
//! few come back, and spares the others: where caches are too small for all, some conversations are computed again and
//! again so that most need not be. The load is averaged over time, because a burst is over before anybody it would delay
//! comes back. Only a part is charged, since prompts gathered in one place wait for one another, and the smaller a part the more
//! room there is, in which those who come back find the long prompt done.

use crate::{BackendId, LoadView, Policy, Score, View};

/// Expected prefill work.
#[derive(Debug)]
pub(super) struct Cost {
    recompute_max: f64,
    request_tokens: f64,
    conversation_tokens: f64,
    mean: Mean,
    /// How much of the fleet has prefill pending.
    share: Mean,
    /// The same, as of the decision being made.
    share_now: f64,
    work: Work,
    /// What a token is charged for each of its request, at the share as it is and at the mean one.
    delay_price_now: f64,
    delay_price: f64,
    /// The part of that which a backend's own conversations suffer.
    bound: f64,
    /// The load that a backend's own conversations put on it, where as many live there as on the mean one.
    load_mean: f64,
    /// Tokens that follow an opening.
    to_come: f64,
    /// The mean over the candidates of conversations living there, the silent ones discounted.
    due_mean: f64,
}

/// `D`: the part of the delay a single queue would suffer that is charged where everybody can go elsewhere.
const DELAY: f64 = 0.1;

/// `B`: how much more of it is charged where nobody can.
const DELAY_BOUND: f64 = 0.25;

/// `E`: the part of the delay of a backend's own conversations that is charged where the whole fleet is busy.
const CROWD: f64 = 0.7;

/// How many times the queue's bound is the bound of the request's own length.
const OWN_BOUND: f64 = 4.0;

/// The busiest fleet or backend that is told apart: beyond it the share says nothing about how far beyond.
const SHARE_MAX: f64 = 0.95;

impl Cost {
    pub(super) fn new(recompute_max: f64, request_tokens: f64, conversation_tokens: f64) -> Self {
        Self {
            recompute_max,
            request_tokens,
            conversation_tokens,
            mean: Mean::default(),
            share: Mean::default(),
            share_now: 0.0,
            work: Work::default(),
            delay_price_now: 0.0,
            delay_price: 0.0,
            bound: 0.0,
            load_mean: 0.0,
            to_come: 0.0,
            due_mean: 0.0,
        }
    }

    /// What a token is charged for each that it is computed behind or with, where so much of the fleet is busy.
    fn delay_price_at(&self, view: &View<'_>, share: f64) -> f64 {
        let share = share.min(SHARE_MAX);
        let busy = share / (1.0 - share);
        let delay = DELAY + DELAY_BOUND * self.work.bound_share();
        delay * busy / self.mean.or(view.ask.prompt_tokens as f64).max(1.0)
    }

    /// The price of one token to be prefilled.
    fn recompute(&self, candidate: &LoadView, uncached: f64) -> f64 {
        let per_token = self.delay_price_now;
        let most = self.recompute_max - 1.0;
        let queue = (per_token * candidate.uncached_tokens as f64).min(most);
        1.0 + queue + (per_token * uncached).min(OWN_BOUND * most)
    }

    /// What the candidate's own conversations are delayed by, more or less than those of others.
    fn crowd(&self, candidate: &LoadView, uncached: f64) -> f64 {
        let most = OWN_BOUND * (self.recompute_max - 1.0);
        let delay = uncached * (self.delay_price * uncached).min(most);
        self.bound * (self.due(candidate, 1.0) - 1.0) * delay
    }

    /// Conversations expected at the candidate, of the mean; `unknown` while none are anywhere.
    fn due(&self, candidate: &LoadView, unknown: f64) -> f64 {
        if self.due_mean > 0.0 { f64::from(candidate.due) / self.due_mean } else { unknown }
    }

    /// The price of making the candidate the home of a conversation that has none.
    fn home(&self, view: &View<'_>, candidate: &LoadView) -> f64 {
        if view.follows {
            return 0.0;
        }
        let load = (self.load_mean * self.due(candidate, 0.0)).min(SHARE_MAX);
        let delay = ((1.0 - load).powi(-2) - 1.0) / 2.0;
        let crowd = self.conversation_tokens * f64::from(candidate.conversations);
        crowd + self.to_come * delay
    }
}

impl Policy for Cost {
    fn name(&self) -> &'static str {
        "cost"
    }

    fn prepare(&mut self, view: &View<'_>) {
        let due: f64 = view.candidates.iter().map(|candidate| f64::from(candidate.due)).sum();
        self.due_mean = due / view.candidates.len().max(1) as f64;
        self.share_now = view.pending_share;
        let share = self.share.or(view.pending_share);
        let bound_share = self.work.bound_share();
        self.bound = CROWD * share.powi(4) * bound_share;
        self.load_mean = view.pending_share * bound_share;
        self.to_come = self.work.to_come();
        self.delay_price_now = self.delay_price_at(view, view.pending_share);
        self.delay_price = self.delay_price_at(view, share);
    }

    fn score(&mut self, view: &View<'_>, candidate: &LoadView) -> Score {
        let uncached = view.ask.uncached_tokens(candidate.overlap_blocks);
        let a = self.recompute(candidate, uncached);
        let template = view.overlaps.template_depth().saturating_sub(candidate.overlap_blocks);
        let busy = candidate.in_flight.max(candidate.queue_depth);
        let terms = [
            candidate.uncached_tokens as f64,
            a * uncached,
            -(a - 1.0) * uncached.min(view.ask.tokens(template)),
            self.request_tokens * f64::from(busy),
            self.home(view, candidate),
            self.crowd(candidate, uncached),
        ];
        Score::sum(&["pending", "own", "template", "requests", "home", "crowd"], &terms)
    }

    fn keeps_home(&self) -> bool {
        true
    }

    fn reads_evidence(&self) -> bool {
        true
    }

    fn takes_turns(&self) -> bool {
        true
    }

    fn placed(&mut self, _id: BackendId, uncached_tokens: f64, follows: bool) {
        self.mean.add(uncached_tokens);
        self.share.add(self.share_now);
        self.work.add(uncached_tokens, follows);
    }
}

/// What conversations bring after their first request. Fading sums.
#[derive(Debug, Default)]
struct Work {
    /// Conversations that began.
    openings: f64,
    /// Tokens to prefill of their first requests.
    opened: f64,
    /// Tokens to prefill of all later ones.
    followed: f64,
}

/// Requests after which a sum is down to a third: enough that a conversation's turns fall into the same time as openings.
const WORK_SAMPLES: f64 = 2000.0;

impl Work {
    fn add(&mut self, uncached_tokens: f64, follows: bool) {
        let Self { openings, opened, followed } = self;
        [&mut *openings, opened, followed].into_iter().for_each(|sum| *sum -= *sum / WORK_SAMPLES);
        if follows {
            *followed += uncached_tokens;
        } else {
            *openings += 1.0;
            *opened += uncached_tokens;
        }
    }

    /// Tokens to prefill that follow an opening, on average.
    fn to_come(&self) -> f64 {
        self.followed / self.openings.max(1.0)
    }

    /// The share of all work that follow-ups bring.
    fn bound_share(&self) -> f64 {
        self.followed / (self.followed + self.opened).max(1.0)
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
