//! Harness shared by the whole-process tests. It holds no test of its own.
#![forbid(unsafe_code)]

pub mod harness;
