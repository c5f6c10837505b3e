//! Who may know what: clocks in one module, the decision core without a world, leaves as leaves.

use super::safety::has_word;
use super::{File, Finding, Tree};

/// What the decision core may depend on; nothing here knows a clock, a socket or a format.
const INDEX_MAY_USE: [&str; 5] = ["arc-swap", "crossbeam", "fastrand", "loom", "xxhash-rust"];

/// Crates that depend on none of ours.
const LEAVES: [&str; 3] = ["index/Cargo.toml", "config/Cargo.toml", "loadgen/Cargo.toml"];

/// Our crates.
pub const CRATES: [&str; 7] =
    ["proxy", "index", "config", "loadgen", "bench", "bench/index_peers", "tests"];

/// Time is read in clock modules only, so that tests can move it. The load generator may use
/// tokio's clock anywhere, because tokio's tests move that one.
pub fn time_is_read_in_clock_modules(tree: &Tree) -> Vec<Finding> {
    let reads = |line: &str| line.contains("Instant::now") || line.contains("SystemTime::now");
    let mut findings = Vec::new();
    for file in tree.rust().filter(|file| !is_clock(file) && !has_tokios_clock(file)) {
        for (index, _) in file.shipped.lines().enumerate().filter(|(_, line)| reads(line)) {
            let what = "take time from the crate's clock module, so that tests can move it";
            findings.push(Finding::new(&file.path, index + 1, what));
        }
    }
    findings
}

fn is_clock(file: &File) -> bool {
    file.path.split('/').any(|part| part == "clock" || part == "clock.rs")
}

fn has_tokios_clock(file: &File) -> bool {
    let imports = |home: &str| {
        let uses = file.shipped.split("use ").filter_map(|rest| rest.split(';').next());
        uses.into_iter().any(|path| path.starts_with(home) && has_word(path, "Instant"))
    };
    let reads_std = file.shipped.contains("SystemTime::now");
    file.path.starts_with("loadgen/") && imports("tokio::time") && !imports("std::") && !reads_std
}

/// The decision core knows no clock, socket, file, process or environment.
pub fn the_decision_core_is_pure(tree: &Tree) -> Vec<Finding> {
    let worlds =
        ["std::time", "std::net", "std::fs", "std::io", "std::env", "std::process", "std::thread"];
    let mut findings = Vec::new();
    for file in tree.rust_in("index/src/") {
        for (index, line) in file.shipped.lines().enumerate() {
            for world in worlds.iter().filter(|world| line.contains(**world)) {
                let what = format!("{world}: time, randomness and everything else are arguments");
                findings.push(Finding::new(&file.path, index + 1, what));
            }
        }
    }
    findings
}

/// The decision core depends on a few packages that know nothing of the world.
pub fn the_decision_core_depends_on_little(tree: &Tree) -> Vec<Finding> {
    let Some(file) = tree.file("index/Cargo.toml") else { return Vec::new() };
    let foreign = |(_, name): &(usize, &str)| !INDEX_MAY_USE.contains(name);
    let what = |name: &str| format!("index must not depend on {name}: see what it may use");
    let dependencies = dependencies(&file.text).into_iter().filter(foreign);
    dependencies.map(|(line, name)| Finding::new(&file.path, line, what(name))).collect()
}

/// The leaves of the crate graph depend on none of our crates.
pub fn leaves_depend_on_none_of_ours(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in LEAVES.iter().filter_map(|path| tree.file(path)) {
        for (line, name) in dependencies(&file.text) {
            if CRATES.contains(&name) {
                let what = format!("a leaf must not depend on {name}");
                findings.push(Finding::new(&file.path, line, what));
            }
        }
    }
    findings
}

/// Lines and names of a manifest's dependencies, of every kind.
fn dependencies(manifest: &str) -> Vec<(usize, &str)> {
    let mut inside = false;
    let mut found = Vec::new();
    for (index, line) in manifest.lines().enumerate() {
        if line.starts_with('[') {
            inside = line.trim_end().ends_with("dependencies]");
        } else if inside && let Some((key, _)) = line.split_once('=') {
            let name = key.trim().split('.').next().unwrap_or_default();
            found.push((index + 1, name.trim_matches('"')));
        }
    }
    found
}
