//! The newest decisions, explained.

use axum::Json;
use axum::extract::{Query, State};
use serde_json::{Value, json};

use super::Desk;
use super::views::Newest;

/// `GET /admin/decisions?n=`
pub(super) async fn decisions(
    State(desk): State<Desk>,
    Query(newest): Query<Newest>,
) -> Json<Value> {
    let upstreams = &desk.shared.upstreams;
    let newest = desk.insight.decisions.newest(newest.n.unwrap_or(20));
    let shown: Vec<Value> = newest.iter().map(|explained| explained.json(upstreams)).collect();
    Json(json!({"decisions": shown}))
}
