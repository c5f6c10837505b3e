//! Faults a simulated engine commits on demand: at the start, by a library call, or live through `POST /sim/faults`, whose JSON
//! object changes only the members it names. They apply to inference requests; `/sim/*` always answers unless connections are
//! refused or reset.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How a stream is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum CutHow {
    /// The connection is closed in good order after a whole event, without the last chunk.
    #[default]
    Close,
    /// The connection is reset (RST).
    Reset,
    /// The connection is closed in the middle of the next event.
    InsideEvent,
}

/// Streams die after some events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cut {
    /// Whole events sent before the cut.
    pub after_events: u32,
    /// How.
    #[serde(default)]
    pub how: CutHow,
    /// For so many streams only; absent = every stream.
    #[serde(default)]
    pub times: Option<u32>,
}

/// Requests are over a limit of their rate, as a gateway or a provider before an engine says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RateLimit {
    /// What `Retry-After` says, seconds; absent = no such header.
    pub retry_after_s: Option<u32>,
}

/// The faults in force.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// Streams are cut.
    pub cut: Option<Cut>,
    /// Streams stop after so many events and stay open, silent.
    pub stall_after_events: Option<u32>,
    /// Nothing listens: connections are refused. Open ones live on.
    pub refuse: bool,
    /// Connections are reset as soon as they are accepted. Open ones live on.
    pub reset_on_accept: bool,
    /// Every reply's head is held back so long, milliseconds.
    pub slow_head_ms: u64,
    /// Idle connections are closed after this long instead, milliseconds.
    pub idle_close_ms: Option<u64>,
    /// The connection is reset instead of answering, at the so many-th inference request from now (1 = the next).
    pub reset_on: Option<u32>,
    /// The connection is closed without a reply at every so many-th inference request.
    pub drop_every: Option<u32>,
    /// Everything computes so many times slower.
    pub slow_factor: f64,
    /// No request gets room: refused or deferred as this engine does it.
    pub full: bool,
    /// Requests are accepted and nothing is ever computed.
    pub wedge: bool,
    /// Health endpoints answer 503.
    pub unhealthy: bool,
    /// Inference requests are answered 500.
    pub internal_error: bool,
    /// Inference requests are answered 429.
    pub rate_limited: Option<RateLimit>,
    /// Inference requests are answered 401: the key they carry is not accepted.
    pub key_refused: bool,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            cut: None,
            stall_after_events: None,
            refuse: false,
            reset_on_accept: false,
            slow_head_ms: 0,
            idle_close_ms: None,
            reset_on: None,
            drop_every: None,
            slow_factor: 1.0,
            full: false,
            wedge: false,
            unhealthy: false,
            internal_error: false,
            rate_limited: None,
            key_refused: false,
        }
    }
}

impl Faults {
    /// These faults with the members of a JSON object put in place of the old ones; `null` takes one back to its default.
    pub fn patched(&self, patch: &Value) -> Result<Faults, FaultsError> {
        let Value::Object(changes) = patch else {
            return Err(FaultsError("a JSON object is expected".to_owned()));
        };
        let mut merged = serde_json::to_value(self).map_err(FaultsError::from_json)?;
        if let Value::Object(members) = &mut merged {
            for (name, value) in changes {
                match value {
                    Value::Null => members.remove(name),
                    given => members.insert(name.clone(), given.clone()),
                };
            }
        }
        let faults: Faults = serde_json::from_value(merged).map_err(FaultsError::from_json)?;
        faults.checked()
    }

    fn checked(self) -> Result<Faults, FaultsError> {
        if self.slow_factor.is_finite() && self.slow_factor > 0.0 {
            Ok(self)
        } else {
            Err(FaultsError("slow_factor must be a number above 0".to_owned()))
        }
    }

    /// The pace of the model under these faults: 1 as configured, 0 nothing moves.
    pub(crate) fn pace(&self) -> f64 {
        if self.wedge { 0.0 } else { 1.0 / self.slow_factor }
    }
}

/// A patch that does not describe faults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultsError(String);

impl FaultsError {
    fn from_json(error: serde_json::Error) -> Self {
        Self(error.to_string())
    }
}

impl fmt::Display for FaultsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FaultsError {}
