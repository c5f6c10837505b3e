//! The backends' part of the exposition: one line a backend and metric.

use std::collections::HashMap;
use std::fmt;

use index::breaker::State;
use index::{Backend, BackendId, BackendStats, Millis};

use super::Page;
use crate::clock;
use crate::insight::{Insight, Report};
use crate::metrics_names as names;
use crate::published::Published;

/// One backend, read once for all its lines.
struct Row<'r> {
    name: &'r str,
    backend: &'r Backend,
    breaker: State,
    report: Report,
    evidence: Option<BackendStats>,
}

/// Writes all backends.
pub(super) fn encode(page: &mut Page<'_>, shared: &Published, insight: &Insight) -> fmt::Result {
    let rows = rows(shared, insight);
    switches(page, &rows)?;
    load(page, &rows)?;
    signals(page, &rows, clock::now().millis())
}

fn rows<'r>(shared: &'r Published, insight: &Insight) -> Vec<Row<'r>> {
    let figures = insight.index_figures();
    let evidence: HashMap<BackendId, BackendStats> =
        figures.stats.backends.iter().map(|stats| (stats.id, *stats)).collect();
    let ids = (0..=u16::MAX).map(BackendId);
    let seen = ids.zip(&shared.upstreams).zip(&insight.backends);
    seen.map(|((id, upstream), seen)| Row {
        name: &upstream.name,
        backend: shared.fleet.backend(id),
        breaker: upstream.breaker.look().state,
        report: seen.report(|report| report.clone()),
        evidence: evidence.get(&id).copied(),
    })
    .collect()
}

/// One value a row, labelled with the backend's name.
fn each<'r, V>(
    rows: &'r [Row<'r>],
    value: impl Fn(&Row<'r>) -> V,
) -> impl Iterator<Item = ([(&'static str, &'r str); 1], V)> {
    rows.iter().map(move |row| ([("backend", row.name)], value(row)))
}

fn switches(page: &mut Page<'_>, rows: &[Row<'_>]) -> fmt::Result {
    page.gauges(names::BACKEND_UP, each(rows, |row| u64::from(row.report.up)))?;
    page.gauges(names::BACKEND_ADMITS, each(rows, |row| u64::from(row.backend.admits().is_ok())))?;
    page.gauges(names::BACKEND_ENABLED, each(rows, |row| u64::from(row.report.switch.admits())))?;
    page.gauges(names::BACKEND_BREAKER, each(rows, |row| u64::from(row.breaker == State::Open)))?;
    let trying = |row: &Row<'_>| u64::from(matches!(row.breaker, State::HalfOpen { .. }));
    page.gauges(names::BACKEND_BREAKER_TRYING, each(rows, trying))?;
    page.counters(names::BREAKER_OPENED, each(rows, |row| row.report.breaker_opened))?;
    page.counters(names::BACKEND_RESTARTS, each(rows, |row| row.report.restarts))
}

fn load(page: &mut Page<'_>, rows: &[Row<'_>]) -> fmt::Result {
    page.gauges(names::BACKEND_IN_FLIGHT, each(rows, |row| row.backend.slots.in_flight().0))?;
    page.gauges(names::BACKEND_TOKENS, each(rows, |row| row.backend.slots.in_flight().1))?;
    page.gauges(names::BACKEND_UNCACHED, each(rows, |row| row.backend.load.uncached_tokens()))?;
    page.gauges(names::BACKEND_CONVERSATIONS, each(rows, |row| row.backend.load.conversations()))?;
    page.gauges(names::BACKEND_REQUESTS_MAX, each(rows, |row| row.backend.limits().requests_max))?;
    page.gauges(names::BACKEND_TOKENS_MAX, each(rows, |row| row.backend.limits().tokens_max))?;
    let held = |row: &Row<'_>| row.evidence.map_or(0, |evidence| evidence.blocks);
    page.gauges(names::BACKEND_EVIDENCE, each(rows, held))?;
    let budget = |row: &Row<'_>| row.evidence.map_or(0, |evidence| evidence.blocks_max);
    page.gauges(names::BACKEND_EVIDENCE_MAX, each(rows, budget))?;
    let assumed = |row: &Row<'_>| row.evidence.map_or(0, |evidence| evidence.blocks_assumed);
    page.gauges(names::BACKEND_EVIDENCE_ASSUMED, each(rows, assumed))
}

fn signals(page: &mut Page<'_>, rows: &[Row<'_>], now: Millis) -> fmt::Result {
    page.gauges(names::BACKEND_QUEUE, each(rows, |row| row.backend.load.queue_depth()))?;
    let usage = |row: &Row<'_>| f64::from(row.backend.load.kv_usage_permille()) / 1000.0;
    page.gauges(names::BACKEND_KV_USAGE, each(rows, usage))?;
    page.counters(names::PROBE_FAILURES, each(rows, |row| row.report.probe.failures))?;
    page.counters(names::SCRAPE_FAILURES, each(rows, |row| row.report.scrape.failures))?;
    page.gauges(names::PROBE_AGE, aged(rows, now, |report| report.probe.answered_at))?;
    page.gauges(names::SCRAPE_AGE, aged(rows, now, |report| report.scrape.answered_at))
}

/// The age of a signal in seconds, of backends that ever gave it.
fn aged<'r>(
    rows: &'r [Row<'r>],
    now: Millis,
    at: impl Fn(&Report) -> Option<Millis>,
) -> impl Iterator<Item = ([(&'static str, &'r str); 1], f64)> {
    rows.iter().filter_map(move |row| {
        // Ages are far below 2^52 ms.
        #[allow(clippy::cast_precision_loss)]
        let age = now.since(at(&row.report)?) as f64 / 1000.0;
        Some(([("backend", row.name)], age))
    })
}
