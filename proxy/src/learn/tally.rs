//! Counts and histograms of finished requests. Written by the learn thread, read when scraped.
//!
//! Labels are static names and numbers, so that counting allocates only the first time it sees a set.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric as Registrable, Registry};

use crate::clock::Micros;
use crate::metrics_names as names;
use crate::record::{Record, Times};

/// How much of the past a new report leaves in the hit ratio.
const HIT_RATIO_DECAY: f64 = 0.999;

/// A finished request's labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    api: &'static str,
    status: u16,
    end: &'static str,
    backend: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BackendLabel {
    backend: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ApiLabel {
    api: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabel {
    phase: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

type Counts<L> = Family<L, Counter>;
type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// Everything that is said of finished requests.
#[derive(Debug)]
pub struct Tally {
    requests: Counts<RequestLabels>,
    attempts: Counter,
    first_byte: Histograms<BackendLabel>,
    total: Histograms<ApiLabel>,
    waiting: Histogram,
    decision: Histogram,
    phases: Histograms<PhaseLabel>,
    reasons: Counts<ReasonLabel>,
    prompt_tokens: Counts<BackendLabel>,
    output_tokens: Counts<BackendLabel>,
    predicted: Counts<BackendLabel>,
    reported: Counts<BackendLabel>,
    reported_of: Counts<BackendLabel>,
    evictions: Counts<BackendLabel>,
    evicted_blocks: Counts<BackendLabel>,
    hit_ratio: Gauge<f64, AtomicU64>,
    recent: std::sync::Mutex<Recent>,
    publishing: Histogram,
}

/// Decayed sums behind the hit ratio.
#[derive(Debug, Default)]
struct Recent {
    cached: f64,
    prompt: f64,
}

impl Default for Tally {
    fn default() -> Self {
        Tally {
            requests: Family::default(),
            attempts: Counter::default(),
            first_byte: Family::new_with_constructor(seconds),
            total: Family::new_with_constructor(seconds),
            waiting: seconds(),
            decision: micros(),
            phases: Family::new_with_constructor(fine),
            reasons: Family::default(),
            prompt_tokens: Family::default(),
            output_tokens: Family::default(),
            predicted: Family::default(),
            reported: Family::default(),
            reported_of: Family::default(),
            evictions: Family::default(),
            evicted_blocks: Family::default(),
            hit_ratio: Gauge::default(),
            recent: std::sync::Mutex::default(),
            publishing: micros(),
        }
    }
}

/// 1 ms to 9 minutes: replies.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 20))
}

/// 1 µs to 33 ms: the proxy's own work.
fn micros() -> Histogram {
    Histogram::new(exponential_buckets(0.000_001, 2.0, 16))
}

/// 10 µs to 2.8 minutes, coarse: phases, from a local connect to a long stream.
fn fine() -> Histogram {
    Histogram::new(exponential_buckets(0.000_01, 4.0, 13))
}

impl Tally {
    /// Counts a request that ended at `backend` (empty when it had none). `short_blocks` says that its
    /// engine held so many blocks less than predicted.
    pub fn ended(&self, record: &Record, backend: &'static str, short_blocks: Option<u32>) {
        let api = record.api.name();
        let end = record.end.name();
        let labels = RequestLabels { api, status: record.status, end, backend };
        self.requests.get_or_create(&labels).inc();
        self.attempts.inc_by(u64::from(record.attempts));
        self.times(record, api, backend);
        if let Some(decision) = &record.decision {
            self.reasons.get_or_create(&ReasonLabel { reason: decision.reason.name() }).inc();
        }
        self.tokens(record, backend);
        if let Some(blocks) = short_blocks {
            let label = BackendLabel { backend };
            self.evictions.get_or_create(&label).inc();
            self.evicted_blocks.get_or_create(&label).inc_by(u64::from(blocks));
        }
    }

    /// Notes how long a publication took, µs.
    pub fn published(&self, took_us: u64) {
        self.publishing.observe(in_seconds(took_us));
    }

    fn times(&self, record: &Record, api: &'static str, backend: &'static str) {
        let times = &record.times;
        let since = |from: Micros, to: Micros| in_seconds(to.since(from));
        self.total.get_or_create(&ApiLabel { api }).observe(since(times.head, times.end));
        if let Some(first) = times.first_byte {
            let label = BackendLabel { backend };
            self.first_byte.get_or_create(&label).observe(since(times.head, first));
        }
        if record.waited_ms > 0 {
            self.waiting.observe(in_seconds(record.waited_ms.saturating_mul(1000)));
        } else if let Some((body, placed)) = times.body.zip(times.placed) {
            // A later attempt's placement also holds the failed ones before it.
            if record.attempts <= 1 {
                self.decision.observe(since(body, placed));
            }
        }
        for (phase, from, to) in steps(times) {
            self.phases.get_or_create(&PhaseLabel { phase }).observe(since(from, to));
        }
    }

    fn tokens(&self, record: &Record, backend: &'static str) {
        let Some(usage) = &record.usage else { return };
        let label = BackendLabel { backend };
        let add = |counts: &Counts<BackendLabel>, tokens: Option<u64>| {
            if let Some(tokens) = tokens {
                counts.get_or_create(&label).inc_by(tokens);
            }
        };
        add(&self.prompt_tokens, Some(usage.prompt_tokens));
        add(&self.output_tokens, Some(usage.output_tokens));
        let (prompt, Some(cached)) = (usage.prompt_tokens, usage.cached_tokens) else { return };
        let predicted = record.decision.as_ref().map(|decision| decision.predicted_cached_tokens);
        add(&self.predicted, predicted);
        add(&self.reported, Some(cached));
        add(&self.reported_of, Some(prompt));
        self.note_ratio(prompt, cached);
    }

    fn note_ratio(&self, prompt: u64, cached: u64) {
        let mut recent = self.recent.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        recent.cached = recent.cached * HIT_RATIO_DECAY + float(cached);
        recent.prompt = recent.prompt * HIT_RATIO_DECAY + float(prompt);
        if recent.prompt > 0.0 {
            self.hit_ratio.set(recent.cached / recent.prompt);
        }
    }

    /// Adds everything to a registry; the values stay shared.
    pub fn register(&self, registry: &mut Registry) {
        let mut add = Registrar(registry);
        add.one(names::REQUESTS, &self.requests);
        add.one(names::ATTEMPTS, &self.attempts);
        add.one(names::TIME_TO_FIRST_BYTE, &self.first_byte);
        add.one(names::REQUEST_SECONDS, &self.total);
        add.one(names::WAITING_SECONDS, &self.waiting);
        add.one(names::DECISION_SECONDS, &self.decision);
        add.one(names::PHASE_SECONDS, &self.phases);
        add.one(names::DECISIONS, &self.reasons);
        add.one(names::PROMPT_TOKENS, &self.prompt_tokens);
        add.one(names::OUTPUT_TOKENS, &self.output_tokens);
        add.one(names::CACHED_PREDICTED, &self.predicted);
        add.one(names::CACHED_REPORTED, &self.reported);
        add.one(names::CACHED_OF, &self.reported_of);
        add.one(names::HIT_RATIO, &self.hit_ratio);
        add.one(names::EVICTIONS_SEEN, &self.evictions);
        add.one(names::EVICTED_BLOCKS, &self.evicted_blocks);
        add.one(names::PUBLISH_SECONDS, &self.publishing);
    }
}

struct Registrar<'r>(&'r mut Registry);

impl Registrar<'_> {
    fn one(&mut self, metric: names::Metric, value: &(impl Registrable + Clone)) {
        self.0.register(metric.name, metric.help, value.clone());
    }
}

/// The phases a request went through, each with its begin and end.
fn steps(times: &Times) -> impl Iterator<Item = (&'static str, Micros, Micros)> {
    let moments = [
        ("body", times.body),
        ("placed", times.placed),
        ("connected", times.connected),
        ("sent", times.sent),
        ("reply_head", times.reply_head),
        ("first_byte", times.first_byte),
        ("end", Some(times.end)),
    ];
    let mut before = times.head;
    moments.into_iter().filter_map(move |(phase, moment)| {
        let moment = moment?;
        let from = std::mem::replace(&mut before, moment);
        Some((phase, from, moment))
    })
}

fn in_seconds(micros: u64) -> f64 {
    float(micros) / 1e6
}

// Far below 2^52 in practice; beyond it a lost digit does not matter to a histogram.
#[allow(clippy::cast_precision_loss)]
fn float(value: u64) -> f64 {
    value as f64
}
