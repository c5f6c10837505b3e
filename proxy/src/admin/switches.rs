//! `POST /admin/backends/NAME/drain`, `enable` and `disable`: an operator's switches.
//!
//! Each answers at once with what is left running; nothing that runs is cut.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use config::Level;
use index::BackendId;
use serde_json::{Value, json};

use super::Desk;
use crate::clock;
use crate::operator::{Switch, turn};

type Answer = (StatusCode, Json<Value>);

/// No new request goes there; the answer tells how many still run.
pub(super) async fn drain(desk: State<Desk>, name: Path<String>) -> Answer {
    switch(&desk, &name, Switch::Draining)
}

/// It is back, as far as its health allows.
pub(super) async fn enable(desk: State<Desk>, name: Path<String>) -> Answer {
    switch(&desk, &name, Switch::Enabled)
}

/// No new request goes there until it is enabled again.
pub(super) async fn disable(desk: State<Desk>, name: Path<String>) -> Answer {
    switch(&desk, &name, Switch::Disabled)
}

fn switch(desk: &Desk, name: &str, wanted: Switch) -> Answer {
    let named = desk.shared.upstreams.iter().position(|upstream| *upstream.name == *name);
    let id = named.and_then(|place| u16::try_from(place).ok()).map(BackendId);
    let Some((id, seen)) = id.and_then(|id| Some((id, desk.insight.backend(id)?))) else {
        return (StatusCode::NOT_FOUND, Json(json!({"error": "no backend has this name"})));
    };
    let turned = turn(desk.shared, id, seen, wanted, clock::now().millis());
    if turned.changed {
        let message =
            format!("an operator made it {}; {} in flight", turned.to.name(), turned.left);
        desk.insight.journal.note(Level::Info, Some(name), message);
        desk.progress.changed();
    }
    let shown = json!({
        "backend": name,
        "switch": turned.to.name(),
        "changed": turned.changed,
        "left": turned.left,
    });
    (StatusCode::OK, Json(shown))
}
