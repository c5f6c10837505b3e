//! Client workloads and simulated engines.
#![forbid(unsafe_code)]

pub mod client;
pub mod engine;
pub mod report;
