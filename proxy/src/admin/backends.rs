//! What the proxy believes of each backend, with the health of every signal behind it.

use axum::Json;
use axum::extract::State;
use index::{BackendId, BackendStats, IndexStats, Millis};
use serde_json::{Value, json};

use super::Desk;
use crate::clock;
use crate::explain::refusal_name;
use crate::insight::{Asked, Report};
use crate::published::{Published, Upstream};

/// `GET /admin/backends`
pub(super) async fn backends(State(desk): State<Desk>) -> Json<Value> {
    let now = clock::now().millis();
    let stats = desk.insight.index_figures().stats;
    let ids = (0..=u16::MAX).map(BackendId);
    let shown = ids.zip(&desk.shared.upstreams).zip(&desk.insight.backends);
    let shown: Vec<Value> = shown
        .map(|((id, upstream), seen)| {
            let report = seen.report(|report| report.clone());
            backend(desk.shared, id, upstream, &report, evidence_of(&stats, id), now)
        })
        .collect();
    Json(json!({"backends": shown}))
}

/// The index's figures for one backend.
pub(super) fn evidence_of(stats: &IndexStats, id: BackendId) -> Option<&BackendStats> {
    stats.backends.iter().find(|backend| backend.id == id)
}

fn backend(
    shared: &Published,
    id: BackendId,
    upstream: &Upstream,
    report: &Report,
    evidence: Option<&BackendStats>,
    now: Millis,
) -> Value {
    json!({
        "name": upstream.name,
        "authority": upstream.authority,
        "address": upstream.address().map(|address| address.to_string()),
        "kind": upstream.kind().name(),
        "models": report.models.iter().map(|model| model.id.as_str()).collect::<Vec<_>>(),
        "state": state(shared, id, upstream, report, now),
        "limits": limits(shared, id, report),
        "load": load(shared, id, report),
        "evidence": evidence.map(|evidence| json!({
            "blocks": evidence.blocks,
            "blocks_max": evidence.blocks_max,
            "blocks_assumed": evidence.blocks_assumed,
        })),
        "signals": {
            "resolve": asked(&report.resolve, now),
            "probe": asked(&report.probe, now),
            "scrape": asked(&report.scrape, now),
            "models": asked(&report.listing, now),
        },
        "restarts": {"count": report.restarts, "last_reason": report.restart_reason},
    })
}

fn state(
    shared: &Published,
    id: BackendId,
    upstream: &Upstream,
    report: &Report,
    now: Millis,
) -> Value {
    let admits = shared.fleet.backend(id).admits();
    json!({
        "admits": admits.is_ok(),
        "refusal": admits.err().map(refusal_name),
        "up": report.up,
        "since_ms": now.since(report.since),
        "down_reason": report.down_reason,
        "operator": {
            "switch": report.switch.name(),
            "since_ms": now.since(report.switched_at),
            "left": (!report.switch.admits()).then(|| shared.fleet.backend(id).slots.in_flight().0),
        },
        "breaker": {
            "state": upstream.breaker.look().name(),
            "opened": report.breaker_opened,
            "reason": report.breaker_reason,
            "failures_in_row": upstream.breaker.look().failures(),
            "tried_in_ms": upstream.breaker.due().map(|due| due.since(now)),
        },
    })
}

fn limits(shared: &Published, id: BackendId, report: &Report) -> Value {
    let limits = shared.fleet.backend(id).limits();
    let configured = shared.config.backends.get(id.index());
    let counts = configured.map(|backend| report.reading.clone().under(backend));
    json!({
        "requests_max": limits.requests_max,
        "tokens_max": limits.tokens_max,
        "ranks": counts.and_then(|counts| counts.ranks),
        "from_config": {
            "requests_max": configured.is_some_and(|backend| backend.slots.is_some()),
            "tokens_max": configured.is_some_and(|backend| backend.kv_tokens.is_some()),
            "ranks": configured.is_some_and(|backend| backend.ranks.is_some()),
        },
    })
}

fn load(shared: &Published, id: BackendId, report: &Report) -> Value {
    let backend = shared.fleet.backend(id);
    let (requests, tokens) = backend.slots.in_flight();
    json!({
        "requests": requests,
        "tokens": tokens,
        "uncached_tokens": backend.load.uncached_tokens(),
        "conversations": backend.load.conversations(),
        "reported": {
            "running": report.reading.running,
            "waiting": report.reading.waiting,
            "kv_usage_permille": report.reading.kv_usage_permille,
        },
    })
}

fn asked(asked: &Asked, now: Millis) -> Value {
    json!({
        "asked_ms_ago": asked.at.map(|at| now.since(at)),
        "answered_ms_ago": asked.answered_at.map(|at| now.since(at)),
        "took_ms": asked.took_ms,
        "failures": asked.failures,
        "failures_in_row": asked.failures_in_row,
        "error": asked.error,
    })
}
