//! What the threads share: everything a shard reads without a lock and everything it may change.
//!
//! The control thread publishes routes, addresses and health; the learn thread publishes the index;
//! shards change only atomics and push notes. Nothing here waits.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};
use config::{Config, UnknownModel};
use crossbeam::queue::ArrayQueue;
use index::breaker::{Gate, Pass};
use index::{BackendId, BackendSet, FingerprintKey, Fleet, IndexHandle, Millis};

use crate::credentials::{Credentials, Refusals};
use crate::limits::NOTES_MAX;
use crate::memory::Budget;
use crate::metrics::ShardStats;
use crate::orphans::Handed;
use crate::pins::Pins;
use crate::record::Note;

/// Signs of life closer together than this are not written down, ms: shards share the line they are on.
const ALIVE_RESOLUTION_MS: u64 = 500;

/// What kind of engine a backend is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EngineKind {
    /// Not known yet; treated as the most careful of all kinds.
    Unknown,
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// llama.cpp's server.
    Llamacpp,
    /// Anything else that speaks OpenAI's API.
    Openai,
}

impl EngineKind {
    const ALL: [EngineKind; 5] = [
        EngineKind::Unknown,
        EngineKind::Vllm,
        EngineKind::Sglang,
        EngineKind::Llamacpp,
        EngineKind::Openai,
    ];

    /// The word in configuration, logs and admin answers.
    pub fn name(self) -> &'static str {
        match self {
            EngineKind::Unknown => "unknown",
            EngineKind::Vllm => "vllm",
            EngineKind::Sglang => "sglang",
            EngineKind::Llamacpp => "llamacpp",
            EngineKind::Openai => "openai",
        }
    }

    /// Whether a connection may be used again after it carried a streamed reply. llama.cpp closes it a
    /// few milliseconds later while its head promised the opposite.
    pub fn keeps_connection_after_stream(self) -> bool {
        !matches!(self, EngineKind::Llamacpp | EngineKind::Unknown)
    }

    /// Whether it may work on for a client that has left before its reply began. The others end such a request at once.
    pub fn works_for_nobody(self) -> bool {
        self == EngineKind::Llamacpp
    }

    /// Whether it ends a prompt at once whose client leaves, and has what it computed of it when it comes again.
    pub fn stops_at_once(self) -> bool {
        matches!(self, EngineKind::Vllm | EngineKind::Sglang)
    }

    /// Whether it takes what comes and, once its pool is used up, fails everybody in it.
    pub fn fails_when_full(self) -> bool {
        self == EngineKind::Llamacpp
    }
}

/// The fixed and slowly changing facts of one backend; its load lives in the fleet.
#[derive(Debug)]
pub struct Upstream {
    /// Its name in the configuration.
    pub name: Box<str>,
    /// `host:port`, as configured.
    pub authority: Box<str>,
    address: ArcSwapOption<SocketAddr>,
    kind: AtomicU8,
    /// Whether requests are let through, as far as they were served.
    pub breaker: Gate,
    /// Who keeps which of its slots, where that is asked for.
    pub pins: Pins,
    /// Requests it may still be at work on though their clients have left.
    pub orphans: Handed,
    alive_ms: AtomicU64,
    /// Its refusals of keys.
    pub refusals: Refusals,
    given_up_ms: AtomicU64,
    ran_out_ms: AtomicU64,
}

impl Upstream {
    /// A backend whose address is not resolved yet.
    pub fn new(name: &str, authority: &str) -> Upstream {
        Upstream {
            name: name.into(),
            authority: authority.into(),
            address: ArcSwapOption::empty(),
            kind: AtomicU8::new(0),
            breaker: Gate::default(),
            pins: Pins::default(),
            refusals: Refusals::default(),
            orphans: Handed::default(),
            alive_ms: AtomicU64::new(0),
            given_up_ms: AtomicU64::new(0),
            ran_out_ms: AtomicU64::new(0),
        }
    }

    /// Notes that reply bytes of this backend arrived: proof of life, whatever its probes say. Cheap
    /// enough for every read of a stream, because it writes at most twice a second.
    pub fn note_alive(&self, now: Millis) {
        // Relaxed: a moment that stands alone; of two writers either will do.
        let last = self.alive_ms.load(Ordering::Relaxed);
        if last == 0 || now.since(Millis(last)) >= ALIVE_RESOLUTION_MS {
            // Relaxed: as above.
            self.alive_ms.store(now.0.max(1), Ordering::Relaxed);
        }
    }

    /// Whether reply bytes of this backend arrived after `moment`, give or take half a second.
    pub fn was_alive_since(&self, moment: Millis) -> bool {
        // Relaxed: a moment that stands alone.
        let last = self.alive_ms.load(Ordering::Relaxed);
        last != 0 && last.saturating_add(ALIVE_RESOLUTION_MS) >= moment.0
    }

    /// When a reply byte last arrived, give or take half a second; 0 when none ever did.
    pub fn heard(&self) -> Millis {
        // Relaxed: a moment that stands alone.
        Millis(self.alive_ms.load(Ordering::Relaxed))
    }

    /// Gives up on every request sent there so far that has had no reply byte.
    pub fn give_up(&self, now: Millis) {
        // Relaxed: a moment that stands alone.
        self.given_up_ms.store(now.0, Ordering::Relaxed);
    }

    /// Whether a request sent then was given up since.
    pub fn gave_up_since(&self, sent: Millis) -> bool {
        // Relaxed: as above.
        self.given_up_ms.load(Ordering::Relaxed) > sent.0
    }

    /// When its pool last ran out under work it had taken; `None` if it never did since it started.
    pub fn ran_out_at(&self) -> Option<Millis> {
        // Relaxed: a moment that stands alone.
        Some(self.ran_out_ms.load(Ordering::Relaxed)).filter(|at| *at > 0).map(Millis)
    }

    /// It started anew: what was learned of its pool is of the one before.
    pub fn forget_ran_out(&self) {
        // Relaxed: a moment that stands alone.
        self.ran_out_ms.store(0, Ordering::Relaxed);
    }

    /// Notes that its pool ran out under a request placed at `placed`. Whether that is news: everybody who was there
    /// fails at once, and all but the first are told of what is known.
    fn note_ran_out(&self, placed: Millis, now: Millis) -> bool {
        let known = |last| (last < placed.0.max(1)).then_some(now.0.max(1));
        // Relaxed twice: a moment that stands alone, exchanged once for each time.
        self.ran_out_ms.fetch_update(Ordering::Relaxed, Ordering::Relaxed, known).is_ok()
    }

    /// Where to connect to; `None` until its name was resolved.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address.load().as_deref().copied()
    }

    /// Publishes a resolved address.
    pub fn set_address(&self, address: SocketAddr) {
        self.address.store(Some(Arc::new(address)));
    }

    /// Its engine, as configured or detected.
    pub fn kind(&self) -> EngineKind {
        // Relaxed: the value stands alone, nothing else is published with it.
        let kind = usize::from(self.kind.load(Ordering::Relaxed));
        EngineKind::ALL.get(kind).copied().unwrap_or(EngineKind::Unknown)
    }

    /// Publishes its engine.
    pub fn set_kind(&self, kind: EngineKind) {
        let place = EngineKind::ALL.iter().position(|other| *other == kind).unwrap_or(0);
        // Relaxed: the value stands alone, nothing else is published with it.
        self.kind.store(u8::try_from(place).unwrap_or(0), Ordering::Relaxed);
    }
}

/// What was learned about a model's tokens, shared by all versions of its pool.
#[derive(Debug)]
pub struct Learned {
    /// 0 until the first reply.
    bytes_per_token_milli: AtomicU32,
}

impl Default for Learned {
    fn default() -> Self {
        Learned { bytes_per_token_milli: AtomicU32::new(0) }
    }
}

impl Learned {
    /// Thousandths of a canonical prompt byte per token.
    pub fn bytes_per_token_milli(&self) -> u32 {
        self.taught().unwrap_or(BYTES_PER_TOKEN_MILLI_USUAL)
    }

    /// The same; `None` before any reply told.
    fn taught(&self) -> Option<u32> {
        // Relaxed: an estimate that stands alone.
        Some(self.bytes_per_token_milli.load(Ordering::Relaxed)).filter(|milli| *milli > 0)
    }

    /// Canonical prompt bytes per token.
    pub fn bytes_per_token(&self) -> f32 {
        ratio(self.bytes_per_token_milli())
    }

    /// Canonical prompt bytes per token to reserve by: what was learned, or before any reply told, on an engine that
    /// fails everybody once its pool is used up, as few as a look at the text suggests.
    pub fn bytes_per_token_reserved(&self, cold_milli: Option<u32>) -> f32 {
        let cold = cold_milli.filter(|_| self.is_untaught());
        cold.map_or_else(|| self.bytes_per_token(), ratio)
    }

    /// Whether no reply has told yet.
    pub fn is_untaught(&self) -> bool {
        self.taught().is_none()
    }

    /// Takes the first reply's figures, and moves the ratio towards those of each later one (weight 1/8); called by the
    /// learn thread only.
    pub fn learn(&self, canonical_bytes: u64, prompt_tokens: u64) {
        if prompt_tokens < 16 {
            return;
        }
        let seen = canonical_bytes.saturating_mul(1000) / prompt_tokens;
        let seen = u32::try_from(seen).unwrap_or(u32::MAX).clamp(500, 64_000);
        let new = self.taught().map_or(seen, |old| old - old / 8 + seen / 8);
        // Relaxed: one writer, and readers take any recent value.
        self.bytes_per_token_milli.store(new, Ordering::Relaxed);
    }
}

/// Four bytes a token is the usual figure for English text and code until replies teach better.
const BYTES_PER_TOKEN_MILLI_USUAL: u32 = 4_000;

// At most 64,000, and exact in an f32.
#[allow(clippy::cast_precision_loss)]
fn ratio(milli: u32) -> f32 {
    milli as f32 / 1000.0
}

/// The backends of one model.
#[derive(Debug)]
pub struct Pool {
    /// The model's name; empty for the pool of all backends.
    pub model: Box<str>,
    /// Its backends.
    pub backends: BackendSet,
    /// Its tokens.
    pub learned: Arc<Learned>,
}

/// Which models there are and who serves them: published whole by the control thread.
#[derive(Debug)]
pub struct Routes {
    /// By model name.
    pub pools: HashMap<Box<str>, Pool>,
    /// Every backend, for requests without a model and for everything that is no inference call.
    pub all: Pool,
    /// Whether every backend that is up has told its models. Until then an unknown name may be known.
    pub complete: bool,
    /// `GET /v1/models` in OpenAI's shape.
    pub models_openai: Vec<u8>,
    /// The same in Anthropic's shape.
    pub models_anthropic: Vec<u8>,
}

/// Whether the process takes work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// No backend has answered yet.
    Starting,
    /// Serving.
    Ready,
    /// Not ready any more, still accepting: balancers in front need a moment to notice.
    Leaving,
    /// Not accepting; streams finish.
    Draining,
    /// Cutting what is left.
    Stopping,
}

impl Phase {
    const ALL: [Phase; 5] =
        [Phase::Starting, Phase::Ready, Phase::Leaving, Phase::Draining, Phase::Stopping];
}

/// Whose the listening sockets are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sockets {
    /// This process's alone.
    Own,
    /// Another process has them too, while one makes itself the other's successor.
    Shared,
    /// Another process accepts connections now.
    Given,
}

impl Sockets {
    const ALL: [Sockets; 3] = [Sockets::Own, Sockets::Shared, Sockets::Given];
}

/// Everything shared, made once at start.
#[derive(Debug)]
pub struct Published {
    /// The checked configuration.
    pub config: Config,
    /// Slots, loads, affinity: plain atomics.
    pub fleet: Fleet,
    /// Facts of each backend, by its id.
    pub upstreams: Vec<Upstream>,
    /// Models and pools.
    pub routes: ArcSwap<Routes>,
    /// Where shards get their readers of the index.
    pub index: IndexHandle,
    /// Shards to learn thread.
    pub notes: ArrayQueue<Note>,
    /// Notes dropped because the queue was full.
    pub notes_lost: AtomicU64,
    /// Counters, one a shard.
    pub stats: Vec<ShardStats>,
    /// Requests waiting for room, all shards.
    pub waiting: AtomicUsize,
    /// Callers' credentials that engines have taken lately.
    pub credentials: Credentials,
    /// What may be held for requests and replies.
    pub memory: Budget,
    /// Key of fingerprints and conversation ids.
    pub key: FingerprintKey,
    /// Random per process; makes request ids of different processes differ.
    pub instance: u64,
    /// Client connections one shard may hold.
    pub sessions_per_shard_max: usize,
    /// Descriptors one shard may use, for sessions, their backends' connections and idle ones.
    pub descriptors_per_shard: usize,
    /// How many backends may be asked at the same time.
    pub visits_at_once: usize,
    phase: AtomicU8,
    sockets: AtomicU8,
}

/// What [`Published`] is made of.
#[derive(Debug)]
pub struct Parts {
    /// See [`Published::config`].
    pub config: Config,
    /// See [`Published::fleet`].
    pub fleet: Fleet,
    /// See [`Published::upstreams`].
    pub upstreams: Vec<Upstream>,
    /// See [`Published::routes`].
    pub routes: Routes,
    /// See [`Published::index`].
    pub index: IndexHandle,
    /// How many shards there will be.
    pub shards: usize,
    /// See [`Published::key`].
    pub key: FingerprintKey,
    /// See [`Published::instance`].
    pub instance: u64,
    /// See [`Published::sessions_per_shard_max`].
    pub sessions_per_shard_max: usize,
    /// See [`Published::descriptors_per_shard`].
    pub descriptors_per_shard: usize,
    /// See [`Published::visits_at_once`].
    pub visits_at_once: usize,
}

impl Published {
    /// Puts the parts together, in phase `Starting`.
    pub fn new(parts: Parts) -> Published {
        Published {
            fleet: parts.fleet,
            upstreams: parts.upstreams,
            routes: ArcSwap::from_pointee(parts.routes),
            index: parts.index,
            notes: ArrayQueue::new(NOTES_MAX),
            notes_lost: AtomicU64::new(0),
            stats: (0..parts.shards).map(|_| ShardStats::default()).collect(),
            waiting: AtomicUsize::new(0),
            credentials: Credentials::default(),
            memory: Budget::new(parts.config.limits.body_memory, parts.shards),
            key: parts.key,
            instance: parts.instance,
            config: parts.config,
            sessions_per_shard_max: parts.sessions_per_shard_max,
            descriptors_per_shard: parts.descriptors_per_shard,
            visits_at_once: parts.visits_at_once,
            phase: AtomicU8::new(0),
            sockets: AtomicU8::new(0),
        }
    }

    /// Bytes a body may have: one that is larger than the whole budget could never be taken in.
    pub fn body_bytes_max(&self) -> u64 {
        self.config.limits.body_bytes_max.min(self.memory.max())
    }

    /// Facts of a backend.
    pub fn upstream(&self, id: index::BackendId) -> Option<&Upstream> {
        self.upstreams.get(usize::from(id.0))
    }

    /// The backends for a model: its pool, or all of them when no model was named, when any name will do,
    /// or while some backend has not told its models yet.
    pub fn pool_of<'r>(&self, routes: &'r Routes, model: Option<&str>) -> Option<&'r Pool> {
        let Some(model) = model else { return Some(&routes.all) };
        let any = self.config.unknown_model == UnknownModel::Any || !routes.complete;
        routes.pools.get(model).or_else(|| any.then_some(&routes.all))
    }

    /// Whether some model's requests would find nobody unless this backend takes them.
    pub fn is_last_hope(&self, id: BackendId) -> bool {
        let routes = self.routes.load();
        let admits = |other: BackendId| self.fleet.backend(other).admits().is_ok();
        let mut pools = routes.pools.values().chain([&routes.all]);
        pools.any(|pool| pool.backends.contains(id) && !pool.backends.iter().any(admits))
    }

    /// Lets a request through to a backend, if its breaker does.
    pub fn enter(&self, id: BackendId) -> Option<Pass<'_>> {
        self.upstream(id)?.breaker.enter(id, self.fleet.backend(id))
    }

    /// Notes that a backend sent something: see [`Upstream::note_alive`].
    pub fn note_alive(&self, id: index::BackendId, now: Millis) {
        if let Some(upstream) = self.upstream(id) {
            upstream.note_alive(now);
        }
    }

    /// A backend failed a request, placed at `placed`, because its pool was used up, although what is reserved there
    /// should have fit: estimates are off, or others use it, too. From now on less is reserved there at once.
    pub fn note_ran_out(&self, id: BackendId, placed: Millis, now: Millis) {
        let Some(upstream) = self.upstream(id) else { return };
        // Others turn requests away, or make them wait, and fail nobody.
        if upstream.kind().fails_when_full() && upstream.note_ran_out(placed, now) {
            self.fleet.backend(id).lower_tokens_max();
        }
    }

    /// Gives a note to the learn thread, or drops and counts it.
    pub fn note(&self, note: Note) {
        if self.notes.push(note).is_err() {
            // Relaxed: a count.
            self.notes_lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether the process takes work.
    pub fn phase(&self) -> Phase {
        // Acquire: pairs with the Release in `set_phase`, so that whoever sees a phase sees what led to it.
        let phase = usize::from(self.phase.load(Ordering::Acquire));
        Phase::ALL.get(phase).copied().unwrap_or(Phase::Stopping)
    }

    /// Moves on to a phase.
    pub fn set_phase(&self, phase: Phase) {
        let place = Phase::ALL.iter().position(|other| *other == phase).unwrap_or(0);
        // Release: pairs with the Acquire in `phase`.
        self.phase.store(u8::try_from(place).unwrap_or(0), Ordering::Release);
    }

    /// Whether connections are taken.
    pub fn accepts(&self) -> bool {
        self.phase() < Phase::Draining && self.sockets() != Sockets::Given
    }

    /// Whose the listening sockets are.
    pub fn sockets(&self) -> Sockets {
        // Relaxed: the value stands alone; whoever reads it a tick late accepts one connection more.
        let sockets = usize::from(self.sockets.load(Ordering::Relaxed));
        Sockets::ALL.get(sockets).copied().unwrap_or(Sockets::Own)
    }

    /// Says whose they are.
    pub fn set_sockets(&self, sockets: Sockets) {
        let place = Sockets::ALL.iter().position(|other| *other == sockets).unwrap_or(0);
        // Relaxed: as in `sockets`.
        self.sockets.store(u8::try_from(place).unwrap_or(0), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reply_replaces_what_was_assumed_and_later_ones_move_it() {
        let learned = Learned::default();
        assert_eq!(learned.bytes_per_token_milli(), BYTES_PER_TOKEN_MILLI_USUAL);
        learned.learn(2_000, 1_000);
        assert_eq!(learned.bytes_per_token_milli(), 2_000);
        learned.learn(4_000, 1_000);
        assert_eq!(learned.bytes_per_token_milli(), 2_250);
    }

    #[test]
    fn before_any_reply_more_is_reserved_only_where_a_full_pool_fails_everybody() {
        let learned = Learned::default();
        let both = |learned: &Learned| {
            [None, Some(2_000)].map(|cold| learned.bytes_per_token_reserved(cold))
        };
        assert_eq!(both(&learned), [4.0, 2.0]);
        learned.learn(3_000, 1_000);
        assert_eq!(both(&learned), [3.0, 3.0]);
    }

    #[test]
    fn all_who_were_there_when_a_pool_ran_out_are_one_event() {
        let upstream = Upstream::new("a", "a:1");
        assert!(upstream.note_ran_out(Millis(5), Millis(100)));
        assert!(!upstream.note_ran_out(Millis(99), Millis(101)));
        assert_eq!(upstream.ran_out_at(), Some(Millis(100)));
        assert!(upstream.note_ran_out(Millis(101), Millis(200)));
        upstream.forget_ran_out();
        assert_eq!(upstream.ran_out_at(), None);
    }
}
