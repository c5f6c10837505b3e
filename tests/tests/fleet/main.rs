//! The whole proxy before simulated engines: conversations come home, engines die and come back, fleets are full, and
//! nothing that was said leaves a trace.

mod coming_home;
mod connections;
mod death;
mod descriptors;
mod dialects;
mod draining;
mod evidence;
mod figures;
mod full;
mod left_behind;
mod notified;
mod operators;
mod pinning;
mod queueing;
mod said;
mod secrets;
mod sessions;
mod spelling;
mod successors;
mod takeover;
mod turns;
mod wedged;

/// Not a test of its own: the binary starts itself again with this one to have the proxy as a process.
#[test]
fn the_proxy_as_a_process() {
    tests::harness::process::serve_if_told();
}
