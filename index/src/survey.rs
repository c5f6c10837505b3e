//! The hard filters, and what is known of everybody who passes them: one walk over the pool, or over a shortlist of it
//! where the pool is large; each backend's numbers read once. It reads shared state and changes none.

use crate::limits::{DECISION_CANDIDATES_MAX, WAY_OWN_DIVISOR};
use crate::shortlist::{Interest, Shortlist, Tally};
use crate::{
    Ask, Backend, BackendId, Candidate, Fleet, Load, LoadView, Overlaps, Refusal, RefusalCounts,
    Snapshot, Verdict, View,
};

/// Where the conversation's home stands in this decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum HomeState {
    /// It can take the request.
    #[default]
    Open,
    /// It would, but is full.
    Full,
    /// It cannot take requests at all.
    Refused,
}

/// What one look at the fleet found. Scratch, reused.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    pub(crate) overlaps: Overlaps,
    /// Admitted and with room.
    pub(crate) candidates: Vec<LoadView>,
    /// Where the conversation lives, whatever its state.
    pub(crate) home: Option<BackendId>,
    pub(crate) home_state: HomeState,
    /// Backends in the pool.
    pub(crate) considered: u32,
    /// Those that take requests, full ones included.
    pub(crate) admissible: u32,
    pub(crate) refused: RefusalCounts,
    /// Only a shortlist was looked at.
    pub(crate) is_short: bool,
    shortlist: Shortlist,
    /// Of the admissible, those with prefill work pending.
    pending: u32,
    /// How long conversations are silent on average, in ms.
    gap_ms: f32,
    refusals: [Option<(BackendId, Refusal)>; DECISION_CANDIDATES_MAX],
    refusals_len: usize,
}

impl Survey {
    /// Finds who holds the prompt. To be followed by a look at the pool.
    pub(crate) fn find_holders(&mut self, fleet: &Fleet, snapshot: &Snapshot, ask: &Ask<'_>) {
        snapshot.overlaps(ask.blocks, &mut self.overlaps);
        fleet.recent().overlay(ask.blocks, ask.now, &mut self.overlaps);
    }

    /// Looks at everybody in the pool.
    pub(crate) fn look_at_all(&mut self, fleet: &Fleet, ask: &Ask<'_>) {
        self.restart(fleet, ask);
        let tokens = tokens(ask);
        for id in ask.pool.iter() {
            self.considered += 1;
            let backend = fleet.backend(id);
            if let Err(refusal) = admits(ask, id, backend) {
                self.refuse(id, refusal);
                continue;
            }
            self.admissible += 1;
            self.pending += u32::from(backend.load.uncached_tokens() > 0);
            match backend.slots.fits(tokens) {
                Ok(()) => self.admit(id, backend, ask),
                Err(rejected) => self.refuse(id, Refusal::Busy(rejected)),
            }
        }
    }

    /// Looks at the home and a shortlist, and takes the counts from the fleet's marks.
    pub(crate) fn look_at_few(&mut self, fleet: &Fleet, ask: &Ask<'_>, interest: Interest) {
        self.restart(fleet, ask);
        self.is_short = true;
        let mut shortlist = std::mem::take(&mut self.shortlist);
        shortlist.choose(fleet.roster(), ask, &self.overlaps, interest);
        let home = self.home.filter(|&home| ask.pool.contains(home));
        let others = shortlist.chosen().filter(|&id| Some(id) != home);
        for id in others {
            let backend = fleet.backend(id);
            // Refused only by what changed since the marks were read, or by the size of its token pool.
            match admits(ask, id, backend).and_then(|()| fits(backend, ask)) {
                Ok(()) => self.admit(id, backend, ask),
                Err(refusal) => self.refuse(id, refusal),
            }
        }
        let closed = shortlist.closed().filter(|&id| Some(id) != home);
        for id in home.into_iter().chain(closed.take(DECISION_CANDIDATES_MAX)) {
            let backend = fleet.backend(id);
            match admits(ask, id, backend).and_then(|()| fits(backend, ask)) {
                Ok(()) if Some(id) == home => self.admit(id, backend, ask),
                Ok(()) => {}
                Err(refusal) => self.refuse(id, refusal),
            }
        }
        self.count(&shortlist.tally, ask);
        self.shortlist = shortlist;
    }

    /// What the policy may look at.
    pub(crate) fn view<'a>(&'a self, ask: &'a Ask<'a>) -> View<'a> {
        View {
            ask,
            overlaps: &self.overlaps,
            home: self.home.filter(|_| self.home_state == HomeState::Open),
            follows: self.home.is_some(),
            candidates: &self.candidates,
            pending_share: f64::from(self.pending) / f64::from(self.admissible.max(1)),
        }
    }

    /// Those refused, the home first, as far as they were kept.
    pub(crate) fn refused_candidates(&self) -> impl Iterator<Item = Candidate> + '_ {
        self.refusals.iter().flatten().map(|&(id, refusal)| Candidate {
            id,
            overlap_blocks: self.overlaps.depth(id),
            verdict: Verdict::Refused(refusal),
        })
    }

    /// Counts the whole pool, whoever was looked at.
    fn count(&mut self, tally: &Tally, ask: &Ask<'_>) {
        self.considered = ask.pool.len() as u32;
        (self.admissible, self.pending) = (tally.admissible, tally.pending);
        self.refused = RefusalCounts {
            excluded: tally.excluded,
            disabled: tally.disabled,
            unhealthy: tally.unhealthy,
            breaker_open: tally.breaker_open,
            busy_requests: tally.busy_requests,
            busy_tokens: tally.busy_tokens,
        };
    }

    fn restart(&mut self, fleet: &Fleet, ask: &Ask<'_>) {
        self.candidates.clear();
        self.is_short = false;
        self.home = ask.conversation.and_then(|key| fleet.affinity().get(key, ask.now));
        self.home_state = HomeState::Open;
        self.gap_ms = fleet.affinity().gap_ms();
        (self.considered, self.admissible, self.pending) = (0, 0, 0);
        self.refused = RefusalCounts::default();
        self.refusals = Default::default();
        self.refusals_len = 0;
        if let Some(home) = self.home.filter(|&home| !ask.pool.contains(home)) {
            self.refuse(home, Refusal::NotInPool);
        }
    }

    fn admit(&mut self, id: BackendId, backend: &Backend, ask: &Ask<'_>) {
        let due = backend.load.conversations_due(ask.now, self.gap_ms);
        let view = LoadView { due, ..load_view(id, backend, self.overlaps.depth(id), ask) };
        self.candidates.push(view);
    }

    fn refuse(&mut self, id: BackendId, refusal: Refusal) {
        self.refused.count(refusal);
        let home = self.home == Some(id);
        if home {
            let full = matches!(refusal, Refusal::Busy(_));
            self.home_state = if full { HomeState::Full } else { HomeState::Refused };
        }
        if let Some(slot) = self.refusals.get_mut(self.refusals_len) {
            *slot = Some((id, refusal));
            self.refusals_len += 1;
        }
        if home {
            // The one refusal that is always shown, even when the list was full.
            self.refusals[self.refusals_len - 1] = Some((id, refusal));
            self.refusals.swap(0, self.refusals_len - 1);
        }
    }
}

/// What the request is charged.
fn tokens(ask: &Ask<'_>) -> u64 {
    ask.prompt_tokens.saturating_add(ask.output_tokens)
}

fn fits(backend: &Backend, ask: &Ask<'_>) -> Result<(), Refusal> {
    backend.slots.fits(tokens(ask)).map_err(Refusal::Busy)
}

/// Everything that rules a backend out, except being full.
fn admits(ask: &Ask<'_>, id: BackendId, backend: &Backend) -> Result<(), Refusal> {
    if ask.excluded.contains(id) { Err(Refusal::Excluded) } else { backend.admits() }
}

/// Prefill work it would not wait for if whoever is being prefilled gave way, in tokens. Only who comes home may ask.
fn given_way(load: &Load, overlap_blocks: u32, ask: &Ask<'_>) -> u64 {
    let own = ask.uncached_tokens(overlap_blocks);
    let comes_home = own * WAY_OWN_DIVISOR as f64 <= ask.prompt_tokens as f64;
    // At least one and at most the prompt's length, so the cast loses only a fraction of a token.
    if comes_home { load.turn.given_way(own as u64, ask.now) } else { 0 }
}

fn load_view(id: BackendId, backend: &Backend, overlap_blocks: u32, ask: &Ask<'_>) -> LoadView {
    let (in_flight, tokens_in_flight) = backend.slots.in_flight();
    let pending = backend.load.remaining_tokens(ask.now);
    let given_way = if pending > 0 { given_way(&backend.load, overlap_blocks, ask) } else { 0 };
    LoadView {
        id,
        in_flight,
        tokens_in_flight,
        uncached_tokens: pending.saturating_sub(given_way).max(pending.min(1)),
        asks_way: given_way > 0,
        conversations: backend.load.conversations(),
        due: 0.0,
        queue_depth: backend.load.queue_depth(),
        kv_usage_permille: backend.load.kv_usage_permille(),
        requests_max: backend.slots.requests_max(),
        tokens_max: backend.slots.tokens_max(),
        first_token: backend.load.first_token(),
        overlap_blocks,
    }
}
