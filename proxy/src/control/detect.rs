//! Which engine answers at an address, found with questions that are safe for every engine.
//!
//! The model list comes first: it is needed anyway and usually names its owner. Never asked while the
//! engine is unknown: `/health` (SGLang generates a token), `/slots` (wakes a sleeping llama.cpp), and
//! `/metrics` (TensorRT-LLM drains it) unless `/version` answered first and the model list did not.

use serde_json::Value;

use super::http_client::{FetchError, Reply, Target, get};
use super::llamacpp;
use super::models;
use super::probe::{Sign, judge};
use crate::insight::Model;
use crate::published::EngineKind;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Detection {
    /// The engine; `Unknown` when nothing told.
    pub(crate) kind: EngineKind,
    /// Whether it lives.
    pub(crate) sign: Sign,
    /// Its models, when it listed them.
    pub(crate) models: Option<Vec<Model>>,
}

/// Asks until the engine is known.
pub(crate) async fn detect(target: Target<'_>) -> Detection {
    let listed = match get(target, "/v1/models").await {
        Ok(reply) => reply,
        // Nobody there, or too busy to answer: asking more would only take more time.
        Err(error) => {
            return Detection { kind: EngineKind::Unknown, sign: error.into(), models: None };
        }
    };
    let models = models::listed(&listed);
    if let Some(kind) = told_by(&listed) {
        return Detection { kind, sign: judge(&listed), models };
    }
    let kind = match ask_around(target, &listed).await {
        Ok(kind) => kind,
        Err(error) => return Detection { kind: EngineKind::Unknown, sign: error.into(), models },
    };
    let sign = if kind == EngineKind::Unknown { judge(&listed) } else { Sign::Alive };
    Detection { kind, sign, models }
}

/// What the reply to the model list tells by itself.
fn told_by(reply: &Reply) -> Option<EngineKind> {
    if reply.header("server") == Some("llama.cpp") {
        return Some(EngineKind::Llamacpp);
    }
    let value: Value = serde_json::from_slice(&reply.body).ok()?;
    let owner = value.pointer("/data/0/owned_by").and_then(Value::as_str)?;
    match owner {
        "vllm" => Some(EngineKind::Vllm),
        "sglang" => Some(EngineKind::Sglang),
        "llamacpp" => Some(EngineKind::Llamacpp),
        _ => None,
    }
}

/// The questions that are left when the model list does not tell: each only one engine answers so.
async fn ask_around(target: Target<'_>, listed: &Reply) -> Result<EngineKind, FetchError> {
    if llamacpp::props(&get(target, "/props").await?.body).is_some() {
        return Ok(EngineKind::Llamacpp);
    }
    let info = get(target, "/model_info").await?;
    if info.is_ok() && has_key(&info, "model_path") {
        return Ok(EngineKind::Sglang);
    }
    if listed.is_ok() {
        return Ok(EngineKind::Openai);
    }
    let version = get(target, "/version").await?;
    if version.is_ok() && has_key(&version, "version") {
        let metrics = get(target, "/metrics").await?;
        if metrics.text().lines().any(|line| line.starts_with("vllm:")) {
            return Ok(EngineKind::Vllm);
        }
    }
    Ok(if listed.status < 500 { EngineKind::Openai } else { EngineKind::Unknown })
}

fn has_key(reply: &Reply, key: &str) -> bool {
    serde_json::from_slice::<Value>(&reply.body).is_ok_and(|value| value.get(key).is_some())
}
