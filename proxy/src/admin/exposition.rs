//! `GET /metrics` in Prometheus' text format.
//!
//! What finished requests left is kept as metrics by the learn thread; everything else is read where it
//! lives at the moment of the scrape, so that no second copy can go stale.

mod fleet;

use std::fmt;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeLabelSet, NoLabelSet,
    prometheus_text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::{Desk, process};
use crate::insight::Insight;
use crate::metrics::{Count, Level};
use crate::metrics_names::{self as names, Metric};
use crate::published::{Phase, Published};

/// `GET /metrics`
pub(super) async fn metrics(State(desk): State<Desk>) -> Response {
    let mut text = String::new();
    match write(&mut text, desk.shared, &desk.insight) {
        Ok(()) => ([(header::CONTENT_TYPE, prometheus_text::CONTENT_TYPE)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn write(text: &mut String, shared: &'static Published, insight: &Arc<Insight>) -> fmt::Result {
    let mut registry = Registry::default();
    insight.tally.register(&mut registry);
    registry.register_collector(Box::new(Live { shared, insight: Arc::clone(insight) }));
    prometheus_text::encode(text, &registry)
}

/// Everything read at the moment of the scrape.
#[derive(Debug)]
struct Live {
    shared: &'static Published,
    insight: Arc<Insight>,
}

impl Collector for Live {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page(encoder);
        self.shards(&mut page)?;
        self.queues(&mut page)?;
        self.process(&mut page)?;
        fleet::encode(&mut page, self.shared, &self.insight)
    }
}

const COUNTS: [(Count, Metric); 21] = [
    (Count::Accepted, names::CONNECTIONS_ACCEPTED),
    (Count::ConnectionsRefused, names::CONNECTIONS_REFUSED),
    (Count::Closed, names::CONNECTIONS_CLOSED),
    (Count::AcceptErrors, names::ACCEPT_ERRORS),
    (Count::Panics, names::PANICS),
    (Count::HeadsRefused, names::HEADS_REFUSED),
    (Count::UpstreamConnects, names::UPSTREAM_CONNECTS),
    (Count::UpstreamReused, names::UPSTREAM_REUSED),
    (Count::UpstreamStale, names::UPSTREAM_STALE),
    (Count::Retries, names::RETRIES),
    (Count::GaveWay, names::GAVE_WAY),
    (Count::BusyAnswers, names::BUSY_ANSWERS),
    (Count::RateLimited, names::RATE_LIMITED),
    (Count::KeysRefused, names::KEYS_REFUSED),
    (Count::UpstreamFailures, names::UPSTREAM_FAILURES),
    (Count::BodiesRefused, names::BODIES_REFUSED),
    (Count::BytesDown, names::REPLY_BYTES),
    (Count::Events, names::EVENTS),
    (Count::BodiesRepaired, names::BODIES_REPAIRED),
    (Count::BodiesOpaque, names::BODIES_OPAQUE),
    (Count::SlotsNamed, names::SLOTS_NAMED),
];

// A counter without a name here would never be seen.
const _: () = assert!(COUNTS.len() == crate::metrics::COUNTS);

impl Live {
    fn shards(&self, page: &mut Page<'_>) -> fmt::Result {
        let stats = &self.shared.stats;
        for (count, metric) in COUNTS {
            let sum = stats.iter().map(|shard| shard.count(count)).fold(0, u64::wrapping_add);
            page.counter(metric, sum)?;
        }
        let level = |level| stats.iter().map(|shard| shard.level(level)).sum::<u64>();
        page.gauge(names::SESSIONS, level(Level::Sessions))?;
        page.gauge(names::UPSTREAM_IDLE, level(Level::UpstreamIdle))?;
        page.gauge(names::WAITING, level(Level::Waiting))?;
        page.gauge(names::MEMORY_HELD, level(Level::MemoryHeld))?;
        page.gauge(names::MEMORY_HELD_MAX, self.shared.memory.max())?;
        let uring = level(Level::IoUring);
        let epoll = (stats.len() as u64).saturating_sub(uring);
        let drivers = [([("driver", "io_uring")], uring), ([("driver", "epoll")], epoll)];
        page.gauges(names::DRIVER, drivers)
    }

    fn queues(&self, page: &mut Page<'_>) -> fmt::Result {
        let figures = self.insight.index_figures();
        // Relaxed: a count.
        let lost = self.shared.notes_lost.load(std::sync::atomic::Ordering::Relaxed);
        page.gauge(names::INDEX_BLOCKS, figures.stats.resident_blocks)?;
        page.gauge(names::INDEX_BYTES, figures.stats.bytes)?;
        page.counter(names::INDEX_PUBLISHED, figures.published)?;
        page.counter(names::NOTES, figures.notes)?;
        page.counter(names::NOTES_LOST, lost)?;
        page.gauge(names::NOTES_QUEUED, self.shared.notes.len() as u64)?;
        page.counter(names::LOG_LINES, self.insight.log.lines())?;
        page.counter(names::LOG_DROPPED, self.insight.log.dropped())?;
        page.counter(names::LOG_ERRORS, self.insight.log.write_errors())
    }

    fn process(&self, page: &mut Page<'_>) -> fmt::Result {
        let ready = self.shared.phase() == Phase::Ready && self.insight.admissible() > 0;
        page.gauge(names::READY, u64::from(ready))?;
        page.counter(names::TAKEOVERS_REFUSED, self.insight.takeovers_refused())?;
        let ratio = self.shared.routes.load().all.learned.bytes_per_token();
        page.gauge(names::BYTES_PER_TOKEN, f64::from(ratio))?;
        page.gauges(names::BUILD, [([("version", env!("CARGO_PKG_VERSION"))], 1_u64)])?;
        page.gauge(names::STARTED, self.insight.started_wall_ms / 1000)?;
        if let Some(bytes) = process::resident_bytes() {
            page.gauge(names::RESIDENT, bytes)?;
        }
        match process::open_descriptors() {
            Some(open) => page.gauge(names::DESCRIPTORS, open),
            None => Ok(()),
        }
    }
}

const NO_LABELS: [(&str, &str); 0] = [];

/// The exposition being written.
struct Page<'e>(DescriptorEncoder<'e>);

impl Page<'_> {
    fn counter(&mut self, metric: Metric, value: u64) -> fmt::Result {
        self.counters(metric, [(NO_LABELS, value)])
    }

    fn gauge(&mut self, metric: Metric, value: impl EncodeGaugeValue) -> fmt::Result {
        self.gauges(metric, [(NO_LABELS, value)])
    }

    fn counters<L: EncodeLabelSet, V: EncodeCounterValue>(
        &mut self,
        metric: Metric,
        values: impl IntoIterator<Item = (L, V)>,
    ) -> fmt::Result {
        let Metric { name, help } = metric;
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in values {
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, V, u64>(&value, None)?;
        }
        Ok(())
    }

    fn gauges<L: EncodeLabelSet, V: EncodeGaugeValue>(
        &mut self,
        metric: Metric,
        values: impl IntoIterator<Item = (L, V)>,
    ) -> fmt::Result {
        let Metric { name, help } = metric;
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in values {
            family.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }
}
