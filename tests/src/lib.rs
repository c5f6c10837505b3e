//! Harness shared by the whole-process tests.
#![forbid(unsafe_code)]

pub mod tidy;
