//! The simulation's own books: what must be true of fleet and index, kept apart from both and far simpler.
//!
//! Every rule has a name, and a test that plants a violation of it. Nothing here changes the world.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use index::{
    BackendId, BackendSet, Decision, Fleet, IndexWriter, Limits, Nowhere, Observation, Overlaps,
    SequenceHash, Snapshot,
};

use crate::traffic::{BLOCK_TOKENS, Conversation, Request};

/// A rule that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    /// Which.
    pub(crate) rule: &'static str,
    /// How.
    pub(crate) what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.what)
    }
}

pub(crate) type Checked<T = ()> = Result<T, Violation>;

/// Holds a rule or says how it was broken.
macro_rules! hold {
    ($rule:literal, $holds:expr, $($what:tt)*) => {
        if !$holds {
            return Err($crate::shadow::Violation { rule: $rule, what: format!($($what)*) });
        }
    };
}
pub(crate) use hold;

/// What must be true of one backend.
#[derive(Debug, Clone)]
pub(crate) struct Believed {
    pub(crate) limits: Limits,
    pub(crate) enabled: bool,
    pub(crate) healthy: bool,
    pub(crate) breaker_open: bool,
    /// Blocks that some observation said it holds, and none took back: never fewer than the index may say.
    pub(crate) held: HashSet<u64>,
    pub(crate) blocks_max: u64,
}

impl Believed {
    fn new(blocks_max: u64) -> Self {
        Self {
            limits: Limits::default(),
            enabled: true,
            healthy: true,
            breaker_open: false,
            held: HashSet::new(),
            blocks_max,
        }
    }

    fn admits(&self) -> bool {
        self.enabled && self.healthy && !self.breaker_open
    }

    fn depth(&self, chain: &[SequenceHash]) -> usize {
        chain.iter().take_while(|hash| self.held.contains(&hash.0)).count()
    }
}

/// What one request in flight holds.
#[derive(Debug, Clone, Copy)]
struct Held {
    backend: BackendId,
    tokens: u64,
    uncached: u64,
}

/// Sums of one backend.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sums {
    requests: u32,
    tokens: u64,
    uncached: u64,
}

/// The books.
#[derive(Debug)]
pub(crate) struct Shadow {
    pub(crate) backends: Vec<Believed>,
    flight: BTreeMap<u64, Held>,
    sums: Vec<Sums>,
    default_max: u64,
    fleet_max: u64,
}

impl Shadow {
    pub(crate) fn new(backends: u16, default_max: u64, fleet_max: u64) -> Self {
        let sums = vec![Sums::default(); usize::from(backends)];
        let backends = (0..backends).map(|_| Believed::new(default_max)).collect();
        Self { backends, flight: BTreeMap::new(), sums, default_max, fleet_max }
    }

    pub(crate) fn of(&mut self, id: BackendId) -> &mut Believed {
        &mut self.backends[id.index()]
    }

    /// A backend left: what was set for it no longer holds for whoever gets its id.
    pub(crate) fn forget(&mut self, id: BackendId) {
        let held = std::mem::take(&mut self.of(id).held);
        let blocks_max = self.of(id).blocks_max;
        // What the index believes goes only when it is told.
        *self.of(id) = Believed { held, blocks_max, ..Believed::new(self.default_max) };
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.flight.len()
    }

    fn sums(&self, id: BackendId) -> Sums {
        self.sums[id.index()]
    }

    fn fits(&self, id: BackendId, tokens: u64) -> bool {
        let (sums, limits) = (self.sums(id), self.backends[id.index()].limits);
        let requests = limits.requests_max == 0 || sums.requests < limits.requests_max;
        let pool = limits.tokens_max - limits.tokens_max / 10;
        // Alone on a backend a request of any size goes at once.
        let alone = sums.requests == 0;
        requests && (limits.tokens_max == 0 || alone || sums.tokens + tokens <= pool)
    }

    /// Whether the backend may be given this request, capacity aside.
    fn may_take(&self, id: BackendId, request: &Request, pool: &BackendSet) -> bool {
        pool.contains(id)
            && !request.broken.contains(id)
            && !request.busy.contains(id)
            && self.backends[id.index()].admits()
    }

    /// Whether anybody could take this request now.
    pub(crate) fn has_room(&self, request: &Request, pool: &BackendSet) -> bool {
        pool.iter()
            .any(|id| self.may_take(id, request, pool) && self.fits(id, request.charge_tokens()))
    }

    /// A place was given out: to whom it may go, within what is there, charged as it must be.
    pub(crate) fn placed(
        &mut self,
        number: u64,
        request: &Request,
        pool: &BackendSet,
        decision: &Decision,
    ) -> Checked {
        let Some(backend) = decision.backend else {
            hold!("decision", false, "{number} was placed with nobody");
            return Ok(());
        };
        hold!("decision", self.may_take(backend, request, pool), "{number} went to {backend}");
        let tokens = request.charge_tokens();
        hold!(
            "limits",
            self.fits(backend, tokens),
            "{number} ({tokens}) on {backend}: {:?}",
            self.sums(backend)
        );
        let cached = u64::from(decision.overlap_blocks) * u64::from(BLOCK_TOKENS);
        let uncached = request.prompt_tokens().saturating_sub(cached).max(1);
        let charged = decision.predicted_uncached_tokens;
        hold!("charge", charged == uncached, "{number} is charged {charged}, not {uncached}");
        self.flight.insert(number, Held { backend, tokens, uncached });
        let sums = &mut self.sums[backend.index()];
        sums.requests += 1;
        sums.tokens += tokens;
        sums.uncached += uncached;
        Ok(())
    }

    /// Nobody was given a place: then nobody could have been.
    pub(crate) fn refused(
        &self,
        request: &Request,
        pool: &BackendSet,
        nowhere: &Nowhere,
        (home_wait_ms, turn_wait_ms): (u64, u64),
    ) -> Checked {
        let anybody = pool.iter().any(|id| self.may_take(id, request, pool));
        match nowhere {
            Nowhere::NoBackend(_) => {
                hold!("decision", !anybody, "nobody was found among those who take requests");
            }
            Nowhere::Busy(_) => {
                let room = self.has_room(request, pool);
                hold!(
                    "decision",
                    anybody && !room,
                    "said to be full: admissible {anybody}, room {room}"
                );
            }
            Nowhere::NotItsTurn(_) => {
                let room = self.has_room(request, pool);
                let busy = pool.iter().any(|id| self.sums(id).uncached > 0);
                let waits = request.waited_ms < turn_wait_ms;
                hold!(
                    "decision",
                    waits && room && busy,
                    "waits {waits} for its turn: room {room}, somebody prefills {busy}"
                );
            }
            Nowhere::HomeFull(decision) => {
                let full = |home: BackendId| {
                    self.may_take(home, request, pool) && !self.fits(home, request.charge_tokens())
                };
                let waits = request.waited_ms < home_wait_ms;
                hold!(
                    "decision",
                    waits && decision.home.is_some_and(full),
                    "waits {waits} for its home"
                );
            }
        }
        Ok(())
    }

    /// It was ended with so much left to prefill, and sent again. Never more than before.
    pub(crate) fn gave_way(&mut self, number: u64, left: u64) -> Checked {
        if let Some(held) = self.flight.get_mut(&number) {
            let before = std::mem::replace(&mut held.uncached, left);
            hold!("pending", left <= before, "{number} has {left} left of {before}");
            self.sums[held.backend.index()].uncached -= before - left;
        }
        Ok(())
    }

    /// It may have been found to have more to prefill, never more than its prompt.
    pub(crate) fn looked_after(&mut self, number: u64, uncached: u64) -> Checked {
        if let Some(held) = self.flight.get_mut(&number) {
            let before = std::mem::replace(&mut held.uncached, uncached);
            let all = held.tokens;
            hold!("pending", before <= uncached, "{number} has {uncached} left, and had {before}");
            hold!("pending", uncached <= all, "{number} has {uncached} to prefill of {all}");
            self.sums[held.backend.index()].uncached += uncached - before;
        }
        Ok(())
    }

    pub(crate) fn prefilled(&mut self, number: u64) {
        if let Some(held) = self.flight.get_mut(&number) {
            self.sums[held.backend.index()].uncached -= std::mem::take(&mut held.uncached);
        }
    }

    pub(crate) fn left(&mut self, number: u64) {
        if let Some(held) = self.flight.remove(&number) {
            let sums = &mut self.sums[held.backend.index()];
            sums.requests -= 1;
            sums.tokens -= held.tokens;
            sums.uncached -= held.uncached;
        }
    }

    /// Reservations and pending prefill are those of the requests in flight, no more and no less.
    pub(crate) fn check_load(&self, fleet: &Fleet) -> Checked {
        for id in self.ids() {
            let (backend, sums) = (fleet.backend(id), self.sums(id));
            let (requests, tokens) = backend.slots.in_flight();
            let same = (requests, tokens) == (sums.requests, sums.tokens);
            hold!("reservations", same, "{id} holds {requests} and {tokens} tokens, not {sums:?}");
            let pending = backend.load.uncached_tokens();
            hold!(
                "pending",
                pending == sums.uncached,
                "{id} has {pending} tokens pending, not {sums:?}"
            );
        }
        Ok(())
    }

    /// Conversations counted are those that have a home.
    pub(crate) fn check_conversations(
        &self,
        fleet: &Fleet,
        conversations: &[Conversation],
        now: index::Millis,
    ) -> Checked {
        let homes = conversations.iter().filter_map(|chat| fleet.affinity().get(chat.key, now));
        let mut living = vec![0; self.backends.len()];
        homes.for_each(|home| living[home.index()] += 1);
        for (id, living) in self.ids().zip(living) {
            let counted = fleet.backend(id).load.conversations();
            hold!("conversations", counted == living, "{id} counts {counted}, {living} live there");
        }
        Ok(())
    }

    /// Notes what the index was told.
    pub(crate) fn told(&mut self, observation: &Observation) {
        match observation {
            Observation::Stored { backend, blocks, .. } => {
                self.of(*backend).held.extend(blocks.iter().map(|hash| hash.0));
            }
            Observation::Reported { backend, blocks, predicted_blocks, cached_blocks, .. } => {
                if *predicted_blocks > cached_blocks + 1 {
                    let beyond = blocks.iter().skip(*cached_blocks as usize);
                    beyond.for_each(|hash| _ = self.of(*backend).held.remove(&hash.0));
                }
            }
            Observation::Cached { .. } => {}
            Observation::Cleared { backend } => self.of(*backend).held.clear(),
            Observation::Removed { backend } => {
                self.of(*backend).held.clear();
                self.of(*backend).blocks_max = self.default_max;
            }
            Observation::Budget { backend, blocks_max } => {
                let known = Some(*blocks_max).filter(|max| *max > 0);
                self.of(*backend).blocks_max = known.unwrap_or(self.default_max);
            }
        }
    }

    /// The snapshot says of nobody what was never said, or was taken back.
    pub(crate) fn check_evidence(&self, snapshot: &Snapshot, chain: &[SequenceHash]) -> Checked {
        let mut overlaps = Overlaps::new();
        snapshot.overlaps(chain, &mut overlaps);
        for id in self.ids() {
            let (says, may) = (overlaps.depth(id) as usize, self.backends[id.index()].depth(chain));
            hold!(
                "evidence",
                says <= may,
                "{id} is said to hold {says} of {}, not {may}",
                chain.len()
            );
        }
        Ok(())
    }

    /// What was stored last on a backend is there, as far as it may hold so much.
    pub(crate) fn check_stored(
        &self,
        snapshot: &Snapshot,
        writer: &IndexWriter,
        id: BackendId,
        chain: &[SequenceHash],
    ) -> Checked {
        let mut overlaps = Overlaps::new();
        snapshot.overlaps(chain, &mut overlaps);
        let stats = writer.stats();
        let known = stats.backends.iter().find(|stats| stats.id == id);
        let may = known.map_or(0, |stats| stats.blocks_max);
        let expected = (chain.len() as u64).min(may);
        let crowded = writer.stats().resident_blocks >= self.fleet_max;
        let says = u64::from(overlaps.depth(id));
        hold!("stored", crowded || says >= expected, "{id} holds {says} of {expected} stored");
        Ok(())
    }

    /// The index keeps to its bounds.
    pub(crate) fn check_bounds(&self, writer: &IndexWriter) -> Checked {
        let stats = writer.stats();
        let resident = stats.resident_blocks;
        hold!("bounds", resident <= self.fleet_max, "{resident} blocks of {}", self.fleet_max);
        for backend in &stats.backends {
            let told = self.backends[backend.id.index()].blocks_max;
            let (id, blocks, max) = (backend.id, backend.blocks, backend.blocks_max);
            let assumed = backend.blocks_assumed;
            hold!("bounds", assumed == told, "{id} is assumed to hold {assumed}, not {told}");
            // What is learned is within an eighth and eight times what it was learned from: up to twice what is told now.
            let near = max <= told.saturating_mul(16) && max >= told / 16;
            hold!("bounds", near, "{id} may hold {max} blocks, told {told}");
            let behind = writer.is_behind();
            hold!("bounds", behind || blocks <= max, "{id} holds {blocks} blocks of {max}");
        }
        Ok(())
    }

    fn ids(&self) -> impl Iterator<Item = BackendId> + use<> {
        (0..self.backends.len()).map(|at| BackendId(at as u16))
    }
}
