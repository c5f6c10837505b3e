//! Where the public traces lie: beside the repository, or where `SHEARWATER_TRACES` says. They are no part of it.

use std::path::{Path, PathBuf};

/// A trace's path. Says so where it is missing.
pub(crate) fn trace(name: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces");
    let folder = std::env::var_os("SHEARWATER_TRACES").map_or_else(beside, PathBuf::from);
    let path = folder.join(name);
    if path.exists() {
        return Some(path);
    }
    bench::complain(&format!("SKIPPED: no trace {name}; SHEARWATER_TRACES may say where"));
    None
}
