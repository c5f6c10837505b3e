//! What the control thread, the learn thread and the admin address tell one another.
//!
//! Shards never touch it: mutexes are fine here, and each is held for a copy at most. It holds names,
//! numbers and times, never a byte of a prompt.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};

use index::{BackendId, IndexStats, Millis};
use tokio::sync::oneshot;

use crate::access_log::LogCounts;
use crate::control::reading::Reading;
use crate::explain::DecisionRing;
use crate::journal::Journal;
use crate::learn::tally::Tally;
use crate::limits::ERROR_BYTES_MAX;
use crate::operator::Switch;
use crate::published::Published;
use crate::takeover::handover::Inherited;

/// All of it, made once a process.
#[derive(Debug)]
pub struct Insight {
    /// The newest decisions.
    pub decisions: DecisionRing,
    /// Counts and histograms of finished requests.
    pub tally: Tally,
    /// By backend id.
    pub backends: Vec<BackendInsight>,
    /// What the learn thread last said of the index.
    pub index: Mutex<IndexFigures>,
    /// What happened to the access log's lines.
    pub log: LogCounts,
    /// Changes of state.
    pub journal: Journal,
    /// When the process started, wall-clock ms.
    pub started_wall_ms: u64,
    orders: AtomicBool,
    errands: Mutex<Vec<Errand>>,
    admissible: AtomicUsize,
    takeovers_refused: AtomicU64,
}

/// What the learn thread is asked to do, once in a process's life. Whoever asked may have gone by then.
#[derive(Debug)]
pub(crate) enum Errand {
    /// To tell what is known, for a successor.
    Tell(oneshot::Sender<Vec<u8>>),
    /// To take in what a predecessor told, and say what it was; `None` if it could not be read.
    TakeIn(Vec<u8>, mpsc::SyncSender<Option<Inherited>>),
}

/// Figures of the index, taken once a second.
#[derive(Debug, Clone, Default)]
pub struct IndexFigures {
    /// The index's own counts.
    pub stats: IndexStats,
    /// When they were taken.
    pub at: Millis,
    /// Notes taken in since the start.
    pub notes: u64,
    /// Snapshots published since the start.
    pub published: u64,
}

/// One backend, as control and learn see it.
#[derive(Debug, Default)]
pub struct BackendInsight {
    report: Mutex<Report>,
    cleared: AtomicBool,
    cache_tokens: AtomicU64,
    caches_more: AtomicBool,
    page_tokens: AtomicU32,
}

/// How asking for one thing has gone.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// When it was last asked.
    pub at: Option<Millis>,
    /// When it was last answered.
    pub answered_at: Option<Millis>,
    /// How long the last answer took, ms.
    pub took_ms: u64,
    /// Failures since the start.
    pub failures: u64,
    /// Failures in a row.
    pub failures_in_row: u32,
    /// Why the last attempt failed; `None` when it did not.
    pub error: Option<String>,
}

impl Asked {
    /// Notes an answer that took from `asked` to `now`.
    pub fn answered(&mut self, asked: Millis, now: Millis) {
        self.at = Some(now);
        self.answered_at = Some(now);
        self.took_ms = now.since(asked);
        self.failures_in_row = 0;
        self.error = None;
    }

    /// Notes that there was no need to ask: what else came from there is the answer.
    pub fn needless(&mut self, now: Millis) {
        self.answered_at = Some(now);
        self.failures_in_row = 0;
        self.error = None;
    }

    /// Notes a failure.
    pub fn failed(&mut self, now: Millis, why: &str) {
        self.at = Some(now);
        self.failures = self.failures.saturating_add(1);
        self.failures_in_row = self.failures_in_row.saturating_add(1);
        let end = (0..=ERROR_BYTES_MAX.min(why.len())).rev().find(|at| why.is_char_boundary(*at));
        self.error = Some(why.get(..end.unwrap_or(0)).unwrap_or_default().to_owned());
    }
}

/// What is known of one backend, for the admin address.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Its name's resolution.
    pub resolve: Asked,
    /// Its health probes.
    pub probe: Asked,
    /// Readings of its own numbers.
    pub scrape: Asked,
    /// Its model list.
    pub listing: Asked,
    /// The last reading.
    pub reading: Reading,
    /// Models it lists or is configured with.
    pub models: Vec<Model>,
    /// Whether those are known: configured, or listed once.
    pub told: bool,
    /// Whether anything was ever answered.
    pub answered: bool,
    /// Whether health checks let it serve.
    pub up: bool,
    /// Since when.
    pub since: Millis,
    /// Why it is down.
    pub down_reason: Option<String>,
    /// What an operator made of it.
    pub switch: Switch,
    /// When.
    pub switched_at: Millis,
    /// The epoch of its breaker that was last told of.
    pub breaker_epoch: u32,
    /// Why it opened, if not because requests failed one after another.
    pub breaker_reason: Option<String>,
    /// How often the breaker opened.
    pub breaker_opened: u64,
    /// How often it restarted.
    pub restarts: u64,
    /// What betrayed the last restart.
    pub restart_reason: Option<String>,
}

/// One model of a backend's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// Its name.
    pub id: String,
    /// When the engine says it was made, Unix seconds; 0 when it does not say.
    pub created: u64,
    /// Another name for a model that is listed already: routed, not listed.
    pub alias: bool,
}

impl Insight {
    /// Empty, for this fleet and configuration.
    pub fn new(shared: &Published) -> Insight {
        let config = &shared.config;
        let kept = usize::try_from(config.explain.decisions_max).unwrap_or(usize::MAX);
        Insight {
            decisions: DecisionRing::new(kept),
            tally: Tally::default(),
            backends: config.backends.iter().map(BackendInsight::new).collect(),
            index: Mutex::default(),
            log: LogCounts::default(),
            journal: Journal::new(&config.log),
            started_wall_ms: crate::clock::wall_millis(),
            orders: AtomicBool::new(false),
            errands: Mutex::default(),
            admissible: AtomicUsize::new(shared.upstreams.len()),
            takeovers_refused: AtomicU64::new(0),
        }
    }

    /// One backend.
    pub fn backend(&self, id: BackendId) -> Option<&BackendInsight> {
        self.backends.get(id.index())
    }

    /// Tells the learn thread that the backend's cache is gone.
    pub fn order_cleared(&self, id: BackendId) {
        if let Some(backend) = self.backend(id) {
            // Relaxed: the Release on `orders` below publishes it.
            backend.cleared.store(true, Ordering::Relaxed);
            // Release: pairs with the Acquire in `take_orders`. A change and no store, so that whoever reads it sees also
            // what those ordered who were there before.
            self.orders.fetch_or(true, Ordering::Release);
        }
    }

    /// Sends the learn thread on an errand.
    pub(crate) fn send(&self, errand: Errand) {
        self.errands.lock().unwrap_or_else(PoisonError::into_inner).push(errand);
        // Release: pairs with the Acquire in `take_orders`.
        self.orders.store(true, Ordering::Release);
    }

    /// The errands since the last call.
    pub(crate) fn take_errands(&self) -> Vec<Errand> {
        std::mem::take(&mut *self.errands.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether control ordered anything since the last call; the learn thread then looks at every backend.
    pub fn take_orders(&self) -> bool {
        // Acquire: pairs with the Release in `order_cleared`, so that the backend's flag is seen.
        self.orders.load(Ordering::Acquire) && self.orders.swap(false, Ordering::Acquire)
    }

    /// Backends that take requests, as of the last patrol.
    pub fn admissible(&self) -> usize {
        // Relaxed: a count for readiness, stale by one patrol anyway.
        self.admissible.load(Ordering::Relaxed)
    }

    /// Sets how many backends take requests.
    pub fn set_admissible(&self, count: usize) {
        // Relaxed: as above.
        self.admissible.store(count, Ordering::Relaxed);
    }

    /// Counts somebody who came to the takeover socket in vain.
    pub(crate) fn count_takeover_refused(&self) {
        // Relaxed: a count.
        self.takeovers_refused.fetch_add(1, Ordering::Relaxed);
    }

    /// How many did.
    pub(crate) fn takeovers_refused(&self) -> u64 {
        // Relaxed: a count.
        self.takeovers_refused.load(Ordering::Relaxed)
    }

    /// A copy of the index's figures.
    pub fn index_figures(&self) -> IndexFigures {
        self.index.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the index's figures.
    pub fn set_index_figures(&self, figures: IndexFigures) {
        *self.index.lock().unwrap_or_else(PoisonError::into_inner) = figures;
    }
}

impl BackendInsight {
    fn new(settings: &config::Backend) -> BackendInsight {
        let new = BackendInsight::default();
        let switch = if settings.enabled { Switch::Enabled } else { Switch::Disabled };
        new.report(|report| report.switch = switch);
        new
    }

    /// Reads or changes the report; `look` runs under its lock, so it only copies.
    pub fn report<T>(&self, look: impl FnOnce(&mut Report) -> T) -> T {
        look(&mut self.report.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Publishes what the evidence budget and the reading of reports follow from.
    pub fn set_cache(&self, reading: &Reading) {
        // Relaxed: each figure stands alone, and the learn thread looks again every second.
        self.cache_tokens.store(reading.kv_tokens.unwrap_or(0), Ordering::Relaxed);
        // Relaxed: as above.
        self.caches_more.store(reading.caches_more, Ordering::Relaxed);
        // Relaxed: as above.
        self.page_tokens.store(reading.page_tokens.unwrap_or(1), Ordering::Relaxed);
    }

    /// Tokens it can keep as cached prefixes; `None` when it does not say.
    pub fn cache_tokens(&self) -> Option<u64> {
        // Relaxed: see `set_cache`.
        Some(self.cache_tokens.load(Ordering::Relaxed)).filter(|tokens| *tokens > 0)
    }

    /// Whether it keeps more than that, nobody knows how much.
    pub fn caches_more(&self) -> bool {
        // Relaxed: see `set_cache`.
        self.caches_more.load(Ordering::Relaxed)
    }

    /// Tokens in one page of its cache, at least 1.
    pub fn page_tokens(&self) -> u32 {
        // Relaxed: see `set_cache`.
        self.page_tokens.load(Ordering::Relaxed).max(1)
    }

    /// Whether its cache is gone; answers yes once per order.
    pub fn take_cleared(&self) -> bool {
        // Relaxed: `Insight::take_orders` was acquired before.
        self.cleared.swap(false, Ordering::Relaxed)
    }
}
