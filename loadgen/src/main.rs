//! Command line of the load generator.
#![forbid(unsafe_code)]

fn main() {}
