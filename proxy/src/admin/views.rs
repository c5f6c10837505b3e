//! The small views: health, readiness, the journal, the configuration in force.

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Desk;
use crate::limits::JOURNAL_ENTRIES_MAX;
use crate::published::Phase;

/// The process is alive: whoever can ask gets yes.
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// The process takes work. Looks at two numbers, whatever the fleet's size.
pub(super) async fn readyz(State(desk): State<Desk>) -> impl IntoResponse {
    let (phase, admissible) = (desk.shared.phase(), desk.insight.admissible());
    let (status, word) = match phase {
        Phase::Ready if admissible > 0 => (StatusCode::OK, "ready"),
        Phase::Ready => (StatusCode::SERVICE_UNAVAILABLE, "no backend takes requests"),
        Phase::Starting => {
            (StatusCode::SERVICE_UNAVAILABLE, "starting: no backend has answered yet")
        }
        Phase::Leaving | Phase::Draining | Phase::Stopping => {
            (StatusCode::SERVICE_UNAVAILABLE, "stopping")
        }
    };
    (status, format!("{word}\n"))
}

/// How many entries to show.
#[derive(Debug, Deserialize)]
pub(super) struct Newest {
    pub(super) n: Option<usize>,
}

/// The newest changes of state.
pub(super) async fn journal(State(desk): State<Desk>, Query(newest): Query<Newest>) -> Json<Value> {
    let count = newest.n.unwrap_or(50).min(JOURNAL_ENTRIES_MAX);
    Json(json!({"entries": desk.insight.journal.newest(count)}))
}

/// The configuration in force; secrets are only said to be set.
pub(super) async fn config(State(desk): State<Desk>) -> String {
    desk.shared.config.effective_toml()
}
