//! The static configuration: a TOML file as typed ([`raw`]), then checked into plain values with
//! units ([`Config`]).
//!
//! Unknown keys are refused, every number has bounds with a reason, and all mistakes of a file are
//! reported at once, each with its line, key, value and reason. This crate never opens a socket,
//! never resolves a name and never fills in what only the running process can know (cores,
//! descriptor limits): such values stay `None`.
#![forbid(unsafe_code)]

mod backend;
mod check;
mod effective;
mod error;
mod model;
mod names;
mod raw;
mod source;
mod units;

pub use backend::BACKENDS_MAX;
pub use error::{ConfigError, Problem};
pub use model::{
    AccessLog, Backend, Config, Explain, FingerprintKey, Health, Kind, Level, Limits, Log,
    LogFormat, Origin, Policy, Routing, Timeouts, UnknownModel,
};
pub use source::FILE_BYTES_MAX;
