//! The decision itself: hard filters, then scores, then a reservation, and on a lost race the next best. The order of
//! equals is the same for all policies: the conversation's home, then fewest conversations held, then at random; never by
//! position. It holds no state between decisions but its policy's cursor and its scratch, and allocates only until the
//! scratch has grown to the fleet's size.
//!
//! A conversation whose home is full waits for it ([`Nowhere::HomeFull`]) until it has waited `home_wait_ms`; then, like
//! a request that has no home, it takes the first room there is. A long prompt that would stand in line behind others is
//! let wait for its turn ([`Nowhere::NotItsTurn`]) until it has waited `turn_wait_ms`, and placed as if it had just come.

use crate::limits::{DECISION_CANDIDATES_MAX, SCAN_BACKENDS_MAX};
use crate::shortlist::Interest;
use crate::survey::{HomeState, Survey};
use crate::{
    BackendId, BackendSet, Candidate, Charge, ConversationKey, Decision, Fleet, LoadView, Millis,
    Nowhere, Placed, Policy, PolicyKind, Reason, SequenceHash, Snapshot, Verdict, View,
};

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
    /// How long a long prompt waits for its turn before it stands in line, in ms.
    pub turn_wait_ms: u64,
    /// How often it may be made to give way while it is prefilled; 0 is never.
    pub give_way_max: u32,
    /// Whether the answer comes token by token, so that the first one tells when the prefill ended.
    pub streams: bool,
    /// The time.
    pub now: Millis,
    /// A random number, fresh for this request.
    pub random: u64,
}

/// Decides, for one shard.
#[derive(Debug)]
pub struct Picker {
    policy: Box<dyn Policy>,
    survey: Survey,
    ranked: Vec<Ranked>,
    /// The largest pool that is looked at whole.
    scan_max: usize,
    /// Who was given the last request.
    last: Option<BackendId>,
}

/// A scored candidate: what its place depends on. The terms of its score are worked out again for the few that are shown.
#[derive(Clone, Copy, Debug)]
struct Ranked {
    cost: f64,
    /// Orders equals: away from home, conversations held, lot.
    tie: (bool, u32, u64),
    /// Its position among the candidates.
    at: u32,
    lost: bool,
}

impl Picker {
    /// A picker with this policy.
    pub fn new(kind: PolicyKind) -> Self {
        Self::with_policy(kind.build())
    }

    /// A picker with a policy of the caller's own.
    pub fn with_policy(policy: Box<dyn Policy>) -> Self {
        let (survey, ranked) = (Survey::default(), Vec::new());
        Self { policy, survey, ranked, scan_max: SCAN_BACKENDS_MAX, last: None }
    }

    /// Looks at the whole pool as long as it has at most `backends` (64 unless set here), and at a shortlist of a larger
    /// one. A fleet made for at most 64 is always looked at whole.
    pub fn looking_at_all_of(mut self, backends: usize) -> Self {
        self.scan_max = backends;
        self
    }

    /// Chooses a backend, reserves a place on it, and records the route and the conversation's home.
    #[expect(
        clippy::result_large_err,
        reason = "a decision is bounded and inline: picking allocates nothing"
    )]
    pub fn pick<'f>(
        &mut self,
        fleet: &'f Fleet,
        snapshot: &Snapshot,
        ask: &Ask<'_>,
    ) -> Result<Placed<'f>, Nowhere> {
        self.look(fleet, snapshot, ask);
        let mut placed = self.place(fleet, ask);
        if placed.is_none() && self.may_have_missed_room() {
            self.look_at_all(fleet, ask);
            placed = self.place(fleet, ask);
        }
        placed.unwrap_or_else(|| {
            let decision = self.decision(ask, None);
            let none = self.survey.admissible == 0;
            Err(if none { Nowhere::NoBackend(decision) } else { Nowhere::Busy(decision) })
        })
    }

    /// Reserves on the best that has room; none when nobody looked at has.
    fn place<'f>(
        &mut self,
        fleet: &'f Fleet,
        ask: &Ask<'_>,
    ) -> Option<Result<Placed<'f>, Nowhere>> {
        if self.waits_for_home(ask) {
            return Some(Err(Nowhere::HomeFull(self.decision(ask, None))));
        }
        for at in 0..self.ranked.len() {
            self.order_from(at);
            let to = self.candidate(at);
            if self.waits_for_turn(fleet, ask, &to) {
                return Some(Err(Nowhere::NotItsTurn(self.decision(ask, None))));
            }
            let Ok(reservation) = fleet.reserve(to.id, charge(ask, &to)) else {
                self.ranked[at].lost = true;
                if self.lost_home(ask, to.id) {
                    return Some(Err(Nowhere::HomeFull(self.decision(ask, None))));
                }
                continue;
            };
            let decision = self.decision(ask, Some(at));
            self.record(fleet, ask, &to);
            let times = if self.policy.takes_turns() { ask.give_way_max } else { 0 };
            let reservation = reservation.placed_at(ask.now, ask.streams);
            let reservation = reservation.with_way(ask.prompt_tokens, times, to.asks_way);
            return Some(Ok(Placed { reservation, decision }));
        }
        None
    }

    /// What [`pick`](Self::pick) would decide now, a turn to be waited for aside. Reserves nothing and records nothing.
    pub fn explain(&mut self, fleet: &Fleet, snapshot: &Snapshot, ask: &Ask<'_>) -> Decision {
        self.look(fleet, snapshot, ask);
        if self.ranked.is_empty() && self.may_have_missed_room() {
            self.look_at_all(fleet, ask);
        }
        self.order_from(0);
        let waits = self.ranked.is_empty() || self.waits_for_home(ask);
        self.decision(ask, (!waits).then_some(0))
    }

    /// Filters and scores: everybody, or a shortlist of many.
    fn look(&mut self, fleet: &Fleet, snapshot: &Snapshot, ask: &Ask<'_>) {
        self.survey.find_holders(fleet, snapshot, ask);
        if ask.pool.len() <= self.scan_max || !fleet.roster().is_kept() {
            return self.look_at_all(fleet, ask);
        }
        let interest = self.interest(ask);
        self.survey.look_at_few(fleet, ask, interest);
        self.score(ask);
    }

    /// Filters and scores everybody.
    fn look_at_all(&mut self, fleet: &Fleet, ask: &Ask<'_>) {
        self.survey.look_at_all(fleet, ask);
        self.score(ask);
    }

    /// A policy that looks at neither evidence nor homes may mean anybody: it is given an even sample.
    fn interest(&self, ask: &Ask<'_>) -> Interest {
        let fits = self.policy.reads_evidence() || self.policy.keeps_home();
        // Shards that start together must not walk together.
        let start = BackendId(ask.random as u16);
        match self.policy.line(ask) {
            Some(key) => Interest::Line(key),
            None if fits => Interest::Fit,
            None => Interest::Even(self.last.unwrap_or(start)),
        }
    }

    /// Whether somebody with room may exist that was not looked at: all looked at were full, or taken meanwhile.
    fn may_have_missed_room(&self) -> bool {
        let (survey, refused) = (&self.survey, self.survey.refused);
        survey.is_short && refused.busy() < survey.admissible
    }

    fn score(&mut self, ask: &Ask<'_>) {
        let Self { policy, survey, ranked, .. } = self;
        ranked.clear();
        if survey.candidates.is_empty() {
            return;
        }
        let view = survey.view(ask);
        policy.prepare(&view);
        ranked.extend(view.candidates.iter().zip(0..).map(|(candidate, at)| {
            let cost = policy.score(&view, candidate).cost;
            Ranked { cost, tie: tie(policy.as_ref(), &view, candidate), at, lost: false }
        }));
    }

    /// The candidate in this place of the ranking.
    fn candidate(&self, place: usize) -> LoadView {
        self.survey.candidates[self.ranked[place].at as usize]
    }

    /// Puts the best of the candidates not tried yet in order, as many as a decision shows at a time.
    fn order_from(&mut self, at: usize) {
        if !at.is_multiple_of(DECISION_CANDIDATES_MAX) {
            return;
        }
        let rest = &mut self.ranked[at..];
        if rest.len() > DECISION_CANDIDATES_MAX {
            rest.select_nth_unstable_by(DECISION_CANDIDATES_MAX - 1, Ranked::order);
        }
        let shown = rest.len().min(DECISION_CANDIDATES_MAX);
        rest[..shown].sort_unstable_by(Ranked::order);
    }

    /// Whether the conversation's home is full and has not been waited for long enough.
    fn waits_for_home(&self, ask: &Ask<'_>) -> bool {
        self.policy.keeps_home()
            && self.survey.home_state == HomeState::Full
            && ask.waited_ms < ask.home_wait_ms
    }

    /// Whether the request is a long one that would stand in line at this backend, and may wait.
    fn waits_for_turn(&self, fleet: &Fleet, ask: &Ask<'_>, to: &LoadView) -> bool {
        ask.waited_ms < ask.turn_wait_ms
            && to.uncached_tokens > 0
            && self.policy.takes_turns()
            && fleet.backend(to.id).load.turn.is_taken(charge(ask, to).uncached_tokens, ask.now)
    }

    /// Notes a lost race for the home: it is full after all.
    fn lost_home(&mut self, ask: &Ask<'_>, id: BackendId) -> bool {
        if self.survey.home == Some(id) {
            self.survey.home_state = HomeState::Full;
        }
        self.survey.home == Some(id) && self.waits_for_home(ask)
    }

    /// Makes the choice visible to the decisions that follow, of every shard.
    fn record(&mut self, fleet: &Fleet, ask: &Ask<'_>, chosen: &LoadView) {
        let (uncached, follows) =
            (ask.uncached_tokens(chosen.overlap_blocks), self.survey.home.is_some());
        self.policy.placed(chosen.id, uncached, follows);
        if chosen.uncached_tokens == 0 {
            fleet.backend(chosen.id).load.pace.started(ask.now);
        }
        self.last = Some(chosen.id);
        fleet.recent().record(ask.blocks, chosen.overlap_blocks, chosen.id, ask.now);
        if let Some(key) = ask.conversation {
            fleet.affinity().set(fleet, key, chosen.id, ask.now);
        }
    }

    fn decision(&mut self, ask: &Ask<'_>, chosen: Option<usize>) -> Decision {
        let candidates = self.shown(ask, chosen);
        let Survey { home, considered, refused, .. } = self.survey;
        let to = chosen.map(|place| self.candidate(place));
        let uncached = to.map_or(0, |to| charge(ask, &to).uncached_tokens);
        Decision {
            backend: to.map(|to| to.id),
            reason: to.map_or(Reason::Nobody, |to| self.reason(&to)),
            policy: self.policy.name(),
            overlap_blocks: to.map_or(0, |to| to.overlap_blocks),
            deepest_blocks: self.survey.overlaps.deepest(),
            predicted_cached_tokens: to.map_or(0, |_| ask.prompt_tokens.saturating_sub(uncached)),
            predicted_uncached_tokens: uncached,
            home,
            asks_way: to.is_some_and(|to| to.asks_way),
            candidates,
            considered,
            refused,
        }
    }

    /// The best candidates with their scores, then those refused. A choice found only after more lost races than are
    /// shown takes the last place.
    fn shown(
        &mut self,
        ask: &Ask<'_>,
        chosen: Option<usize>,
    ) -> [Option<Candidate>; DECISION_CANDIDATES_MAX] {
        let Self { policy, survey, ranked, .. } = self;
        let view = survey.view(ask);
        let last = DECISION_CANDIDATES_MAX - 1;
        let mut refused = survey.refused_candidates();
        std::array::from_fn(|shown| {
            let place = chosen.filter(|&place| shown == last && place > last).unwrap_or(shown);
            let Some(ranked) = ranked.get(place) else { return refused.next() };
            let candidate = &view.candidates[ranked.at as usize];
            let score = policy.score(&view, candidate);
            let verdict = match ranked.lost {
                true => Verdict::LostRace(score),
                false if chosen == Some(place) => Verdict::Chosen(score),
                false => Verdict::Scored(score),
            };
            let LoadView { id, overlap_blocks, .. } = *candidate;
            Some(Candidate { id, overlap_blocks, verdict })
        })
    }

    fn reason(&self, chosen: &LoadView) -> Reason {
        let Survey { home, home_state, admissible, .. } = self.survey;
        if admissible == 1 {
            return Reason::Only;
        }
        if self.policy.keeps_home() && home.is_some() {
            return match home_state {
                _ if home == Some(chosen.id) => Reason::Conversation,
                HomeState::Full => Reason::Spilled,
                HomeState::Refused => Reason::Rehomed,
                HomeState::Open => Reason::Moved,
            };
        }
        let held = chosen.overlap_blocks > 0 && self.policy.reads_evidence();
        if held { Reason::Prefix } else { Reason::Load }
    }
}

impl Ranked {
    fn order(a: &Ranked, b: &Ranked) -> std::cmp::Ordering {
        a.cost.total_cmp(&b.cost).then_with(|| a.tie.cmp(&b.tie))
    }
}

fn tie(policy: &dyn Policy, view: &View<'_>, candidate: &LoadView) -> (bool, u32, u64) {
    let away = policy.keeps_home() && view.home != Some(candidate.id);
    let lot = crate::fingerprint::mix(view.ask.random ^ u64::from(candidate.id.0).rotate_left(32));
    (away, candidate.conversations, lot)
}

fn charge(ask: &Ask<'_>, to: &LoadView) -> Charge {
    Charge {
        tokens: ask.prompt_tokens.saturating_add(ask.output_tokens),
        // Between 1 and the prompt's length (or 1 for an empty prompt), so the cast loses only a fraction of a token.
        uncached_tokens: ask.uncached_tokens(to.overlap_blocks) as u64,
    }
}

impl Ask<'_> {
    /// Tokens in `blocks` blocks.
    pub fn tokens(&self, blocks: u32) -> f64 {
        f64::from(blocks) * f64::from(self.block_tokens)
    }

    /// Tokens a backend holding `overlap_blocks` has to prefill; at least one, since the last token always is.
    pub fn uncached_tokens(&self, overlap_blocks: u32) -> f64 {
        (self.prompt_tokens as f64 - self.tokens(overlap_blocks)).max(1.0)
    }
}
