//! The data path and the process around it. It alone knows sockets, JSON and HTTP.
//!
//! ARCHITECTURE.md names each module in the order a request meets it.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod cli;
pub mod demo;
pub mod density;
pub mod descriptors;
mod listening;
mod notify;
pub mod say;
pub mod start;
mod takeover;

pub mod answer;
pub mod api;
pub mod body;
pub mod classify;
pub mod conversation;
pub mod credentials;
pub mod edits;
pub mod encoding;
pub mod exchange;
pub mod http;
pub mod orphans;
pub mod pins;
pub mod place;
pub mod plan;
pub mod prompt;
pub mod record;
pub mod relay;
pub mod reply;
pub mod search;
pub mod session;
pub mod shard;
pub mod sse;
pub mod stream_ring;
pub mod upstream;
pub mod usage;

pub mod access_log;
pub mod admin;
pub mod alarm;
pub mod client;
pub mod clock;
pub mod control;
pub mod explain;
pub mod insight;
pub mod journal;
pub mod learn;
pub mod limits;
pub mod memory;
pub mod metrics;
mod metrics_names;
pub mod operator;
pub mod pages;
pub mod pool;
pub mod published;
pub mod rehearse;
pub mod retry;
pub mod ring;
pub mod socket;
pub mod wait;

#[cfg(test)]
mod fixture;
