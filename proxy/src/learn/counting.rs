//! Counting finished requests: the learn thread's handles of the series in the tally.
//!
//! A family finds a series by hashing all words of its labels, a dozen times a request. Here each series
//! is looked up once and kept under a small key. It holds no series the tally does not show.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;

use super::tally::{ApiLabel, BackendLabel, Counts, PhaseLabel, ReasonLabel, RequestLabels, Tally};
use crate::api::Api;
use crate::clock::Micros;
use crate::published::Upstream;
use crate::record::{End, Record, Times};

/// How much of the past a new report leaves in the hit ratio.
const HIT_RATIO_DECAY: f64 = 0.999;

/// The phases of a request, by the moment that ends each.
const PHASES: [&str; 7] =
    ["body", "placed", "connected", "sent", "reply_head", "first_byte", "end"];

/// Handles by key, few enough to be looked through.
#[derive(Debug)]
struct Kept<K, M>(Vec<(K, M)>);

impl<K, M> Default for Kept<K, M> {
    fn default() -> Self {
        Kept(Vec::new())
    }
}

impl<K: PartialEq, M> Kept<K, M> {
    /// Does something to the series of `key`, which `find` finds the first time.
    fn with(&mut self, key: K, find: impl FnOnce() -> M, then: impl FnOnce(&M)) {
        if let Some((_, kept)) = self.0.iter().find(|(other, _)| *other == key) {
            return then(kept);
        }
        let found = find();
        then(&found);
        self.0.push((key, found));
    }
}

/// The series of one backend, or of requests that had none.
#[derive(Debug, Default)]
struct OfBackend {
    /// Its label; empty for none.
    name: &'static str,
    /// As many as there are statuses, ends and endpoints that came together: a handful.
    requests: Kept<(Api, u16, End), Counter>,
    first_byte: Option<Histogram>,
    prompt_tokens: Option<Counter>,
    output_tokens: Option<Counter>,
    predicted: Option<Counter>,
    reported: Option<Counter>,
    reported_of: Option<Counter>,
    evictions: Option<Counter>,
    evicted_blocks: Option<Counter>,
}

/// Decayed sums behind the hit ratio.
#[derive(Debug, Default)]
struct Recent {
    cached: f64,
    prompt: f64,
}

/// The handles, owned by the learn thread.
#[derive(Debug)]
pub(super) struct Counting {
    tally: Tally,
    backends: Vec<OfBackend>,
    nowhere: OfBackend,
    total: Kept<Api, Histogram>,
    phases: Kept<usize, Histogram>,
    reasons: Kept<index::Reason, Counter>,
    recent: Recent,
}

impl Counting {
    /// Counts into `tally` for these backends.
    pub(super) fn new(tally: &Tally, upstreams: &'static [Upstream]) -> Counting {
        let own = |upstream: &'static Upstream| OfBackend {
            name: &upstream.name,
            ..OfBackend::default()
        };
        Counting {
            tally: tally.clone(),
            backends: upstreams.iter().map(own).collect(),
            nowhere: OfBackend::default(),
            total: Kept::default(),
            phases: Kept::default(),
            reasons: Kept::default(),
            recent: Recent::default(),
        }
    }

    /// Counts a request that ended. `short_blocks` says that its engine held so many blocks less than
    /// predicted.
    pub(super) fn ended(&mut self, record: &Record, short_blocks: Option<u32>) {
        self.tally.attempts.inc_by(u64::from(record.attempts));
        self.times(record);
        let Counting { tally, reasons, .. } = self;
        if let Some(decision) = &record.decision {
            let label = || ReasonLabel { reason: decision.reason.name() };
            let find = || tally.reasons.get_or_create_owned(&label());
            reasons.with(decision.reason, find, |count| _ = count.inc());
        }
        let place = record.backend.and_then(|id| self.backends.get_mut(id.index()));
        let own = place.unwrap_or(&mut self.nowhere);
        own.ended(&self.tally, record);
        own.tokens(&self.tally, record);
        if let Some(blocks) = short_blocks {
            own.short(&self.tally, blocks);
        }
        self.note_ratio(record);
    }

    /// Notes how long a publication took, µs.
    pub(super) fn published(&self, took_us: u64) {
        self.tally.publishing.observe(in_seconds(took_us));
    }

    fn times(&mut self, record: &Record) {
        let Counting { tally, total, phases, .. } = self;
        let (times, api) = (&record.times, record.api);
        let find = || tally.total.get_or_create_owned(&ApiLabel { api: api.name() });
        total.with(api, find, |seen| seen.observe(since(times.head, times.end)));
        if record.waited_ms > 0 {
            tally.waiting.observe(in_seconds(record.waited_ms.saturating_mul(1000)));
        } else if let Some((body, placed)) = times.body.zip(times.placed) {
            // A later attempt's placement also holds the failed ones before it.
            if record.attempts <= 1 {
                tally.decision.observe(since(body, placed));
            }
        }
        for (phase, from, to) in steps(times) {
            let label = || PhaseLabel { phase: PHASES.get(phase).copied().unwrap_or_default() };
            let find = || tally.phases.get_or_create_owned(&label());
            phases.with(phase, find, |seen| seen.observe(since(from, to)));
        }
    }

    fn note_ratio(&mut self, record: &Record) {
        let Some(usage) = &record.usage else { return };
        let Some(cached) = usage.cached_tokens else { return };
        let recent = &mut self.recent;
        recent.cached = recent.cached * HIT_RATIO_DECAY + float(cached);
        recent.prompt = recent.prompt * HIT_RATIO_DECAY + float(usage.prompt_tokens);
        if recent.prompt > 0.0 {
            self.tally.hit_ratio.set(recent.cached / recent.prompt);
        }
    }
}

impl OfBackend {
    fn ended(&mut self, tally: &Tally, record: &Record) {
        let Record { api, status, end, times, .. } = record;
        let backend = self.name;
        let labels =
            || RequestLabels { api: api.name(), status: *status, end: end.name(), backend };
        let find = || tally.requests.get_or_create_owned(&labels());
        self.requests.with((*api, *status, *end), find, |count| _ = count.inc());
        if let Some(first) = times.first_byte {
            let find = || tally.first_byte.get_or_create_owned(&BackendLabel { backend });
            self.first_byte.get_or_insert_with(find).observe(since(times.head, first));
        }
    }

    fn tokens(&mut self, tally: &Tally, record: &Record) {
        let Some(usage) = &record.usage else { return };
        let backend = self.name;
        add(&mut self.prompt_tokens, &tally.prompt_tokens, backend, usage.prompt_tokens);
        add(&mut self.output_tokens, &tally.output_tokens, backend, usage.output_tokens);
        let Some(cached) = usage.cached_tokens else { return };
        if let Some(decision) = &record.decision {
            let predicted = decision.predicted_cached_tokens;
            add(&mut self.predicted, &tally.predicted, backend, predicted);
        }
        add(&mut self.reported, &tally.reported, backend, cached);
        add(&mut self.reported_of, &tally.reported_of, backend, usage.prompt_tokens);
    }

    fn short(&mut self, tally: &Tally, blocks: u32) {
        add(&mut self.evictions, &tally.evictions, self.name, 1);
        add(&mut self.evicted_blocks, &tally.evicted_blocks, self.name, u64::from(blocks));
    }
}

/// Adds to a backend's series of `family`, found the first time.
fn add(
    kept: &mut Option<Counter>,
    family: &Counts<BackendLabel>,
    backend: &'static str,
    count: u64,
) {
    let find = || family.get_or_create_owned(&BackendLabel { backend });
    kept.get_or_insert_with(find).inc_by(count);
}

/// The phases a request went through, each by its place in [`PHASES`], with its begin and end.
fn steps(times: &Times) -> impl Iterator<Item = (usize, Micros, Micros)> {
    let moments = [
        times.body,
        times.placed,
        times.connected,
        times.sent,
        times.reply_head,
        times.first_byte,
        Some(times.end),
    ];
    let mut before = times.head;
    moments.into_iter().enumerate().filter_map(move |(phase, moment)| {
        let moment = moment?;
        let from = std::mem::replace(&mut before, moment);
        Some((phase, from, moment))
    })
}

fn since(from: Micros, to: Micros) -> f64 {
    in_seconds(to.since(from))
}

fn in_seconds(micros: u64) -> f64 {
    float(micros) / 1e6
}

// Far below 2^52 in practice; beyond it a lost digit does not matter to a histogram.
#[allow(clippy::cast_precision_loss)]
fn float(value: u64) -> f64 {
    value as f64
}
