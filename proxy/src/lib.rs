//! The data path and the process around it. It alone knows sockets, JSON and HTTP.

pub mod access_log;
pub mod admin;
pub mod answer;
pub mod api;
pub mod clock;
pub mod control;
pub mod conversation;
pub mod encoding;
pub mod explain;
pub mod http;
pub mod insight;
pub mod journal;
pub mod learn;
pub mod limits;
pub mod metrics;
mod metrics_names;
pub mod prompt;
pub mod published;
pub mod record;
pub mod sse;
pub mod usage;
