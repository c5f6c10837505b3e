//! Chaos: a thousand conversations in four dialects through the whole proxy while its engines are killed, hung, restarted,
//! full, slow, rate-limited and cut, and clients vanish. Each request must end in one of three ways, and nothing may be left.
//!
//! `cargo test -p tests chaos` runs it, `SHEARWATER_SEED=n` before it the one a failure printed.

// In a module of this name, so that the filter finds all of it.
#[path = "."]
mod chaos {
    mod clients;
    mod dialect;
    mod figures;
    mod output;
    mod readers;
    mod runs;
    mod schedule;
    mod soak;
    mod talks;
    mod transcripts;
    mod verdict;
    mod wire;
    mod world;
}

/// Not a test of its own: the binary starts itself again with this one to have the proxy as a process.
#[test]
fn the_proxy_as_a_process() {
    tests::harness::process::serve_if_told();
}
