//! Counts and histograms of finished requests. Written by the learn thread, read when scraped.
//!
//! These are the families as they are shown. The learn thread reaches their series through handles it
//! keeps (`counting.rs`).

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric as Registrable, Registry};

use crate::metrics_names as names;

/// A finished request's labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct RequestLabels {
    pub(super) api: &'static str,
    pub(super) status: u16,
    pub(super) end: &'static str,
    pub(super) backend: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct BackendLabel {
    pub(super) backend: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ApiLabel {
    pub(super) api: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct PhaseLabel {
    pub(super) phase: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ReasonLabel {
    pub(super) reason: &'static str,
}

pub(super) type Counts<L> = Family<L, Counter>;
pub(super) type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// Everything that is said of finished requests.
#[derive(Debug, Clone)]
pub struct Tally {
    pub(super) requests: Counts<RequestLabels>,
    pub(super) attempts: Counter,
    pub(super) first_byte: Histograms<BackendLabel>,
    pub(super) total: Histograms<ApiLabel>,
    pub(super) waiting: Histogram,
    pub(super) decision: Histogram,
    pub(super) phases: Histograms<PhaseLabel>,
    pub(super) reasons: Counts<ReasonLabel>,
    pub(super) prompt_tokens: Counts<BackendLabel>,
    pub(super) output_tokens: Counts<BackendLabel>,
    pub(super) predicted: Counts<BackendLabel>,
    pub(super) reported: Counts<BackendLabel>,
    pub(super) reported_of: Counts<BackendLabel>,
    pub(super) evictions: Counts<BackendLabel>,
    pub(super) evicted_blocks: Counts<BackendLabel>,
    pub(super) hit_ratio: Gauge<f64, AtomicU64>,
    pub(super) publishing: Histogram,
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
