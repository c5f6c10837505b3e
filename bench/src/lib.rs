//! Micro-benchmarks and recorded results.
#![forbid(unsafe_code)]
