//! A dry run: a request body comes in, the decision it would get goes out. Nothing is reserved, nothing
//! is sent, nothing is kept.
//!
//! The data path knows how a body becomes a question to the index; it answers through [`Explain`].

use std::sync::PoisonError;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use index::{ConversationKey, Decision};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Desk;
use crate::api::Api;
use crate::explain;

/// A request that is not sent.
#[derive(Debug, Clone, Copy)]
pub struct DryRunRequest<'r> {
    /// Its path, as a client would ask for it.
    pub path: &'r str,
    /// Its headers: a session header or an encoding may matter.
    pub headers: &'r HeaderMap,
    /// Its body, as sent.
    pub body: &'r [u8],
}

/// What would be decided.
#[derive(Debug, Clone)]
pub struct DryRun {
    /// Endpoint the path stands for.
    pub api: Api,
    /// Model asked for.
    pub model: Option<String>,
    /// Canonical bytes of its prompt.
    pub canonical_bytes: u64,
    /// Whole blocks of it.
    pub blocks: u32,
    /// Prompt tokens, estimated.
    pub prompt_tokens: u64,
    /// Hash of its conversation's id.
    pub conversation: Option<ConversationKey>,
    /// The decision.
    pub decision: Decision,
}

/// Why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DryRunRefused {
    /// Status the client would be answered with.
    pub status: u16,
    /// In words, without any of the body.
    pub reason: String,
}

/// Answers dry runs. Called on a helper thread, one at a time; it may take as long as reading the body takes.
pub trait Explain: Send {
    /// Decides as a shard would, without reserving or recording anything.
    ///
    /// # Errors
    /// When a client would have been refused.
    fn explain(&mut self, request: DryRunRequest<'_>) -> Result<DryRun, DryRunRefused>;
}

/// Which endpoint the body is meant for.
#[derive(Debug, Deserialize)]
pub(super) struct Meant {
    path: Option<String>,
}

/// `POST /admin/explain?path=`
pub(super) async fn explain(
    State(desk): State<Desk>,
    Query(meant): Query<Meant>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let Some(explain) = desk.explain else {
        return refused(StatusCode::NOT_IMPLEMENTED, "this process answers no dry runs");
    };
    let path = meant.path.unwrap_or_else(|| "/v1/chat/completions".to_owned());
    let answered = tokio::task::spawn_blocking(move || {
        let request = DryRunRequest { path: &path, headers: &headers, body: &body };
        explain.lock().unwrap_or_else(PoisonError::into_inner).explain(request)
    });
    match answered.await {
        Ok(Ok(dry_run)) => Json(shown(&dry_run, &desk.shared.upstreams)).into_response(),
        Ok(Err(DryRunRefused { status, reason })) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
            refused(status, &reason)
        }
        Err(_) => refused(StatusCode::INTERNAL_SERVER_ERROR, "the dry run failed"),
    }
}

fn refused(status: StatusCode, reason: &str) -> Response {
    (status, Json(json!({"error": reason}))).into_response()
}

fn shown(dry_run: &DryRun, upstreams: &[crate::published::Upstream]) -> Value {
    json!({
        "api": dry_run.api.name(),
        "model": dry_run.model,
        "canonical_bytes": dry_run.canonical_bytes,
        "blocks": dry_run.blocks,
        "prompt_tokens": dry_run.prompt_tokens,
        "conversation": dry_run.conversation.map(|key| explain::short_hash(key.0)),
        "decision": explain::decision_json(&dry_run.decision, upstreams),
    })
}
