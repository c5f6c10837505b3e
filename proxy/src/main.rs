//! Command line of the proxy.

fn main() {}
