//! Runs this very program under callgrind and reads what its cases took.

use std::io::{Error, Result};
use std::path::PathBuf;
use std::process::Command;

use crate::baseline::Counts;
use crate::profile::inclusive;
use crate::{COUNTED, cases};

/// Counts every case, run so often; an operation takes what [`cases::ROUNDS`] of them would.
///
/// # Errors
/// When `valgrind` is missing or fails, or a case is not found in its profile.
pub(crate) fn count(names: &[&'static str], rounds: u64) -> Result<Counts> {
    let out = profile_path();
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--quiet", "--cache-sim=no", "--branch-sim=no"]);
    valgrind.arg(format!("--callgrind-out-file={}", out.display()));
    valgrind.arg(std::env::current_exe()?).args([COUNTED, &rounds.to_string()]);
    let status = valgrind.status().map_err(|error| Error::other(format!("valgrind: {error}")))?;
    if !status.success() {
        return Err(Error::other(format!("valgrind ended with {status}")));
    }
    let profile = std::fs::read_to_string(&out)?;
    std::fs::remove_file(&out)?;
    let counts = inclusive(&profile);
    names.iter().map(|name| one(&counts, name)).collect()
}

fn one(
    counts: &std::collections::HashMap<String, u64>,
    name: &'static str,
) -> Result<(&'static str, u64)> {
    let function = format!("::case_{name}");
    let found = counts.iter().find(|(symbol, _)| symbol.ends_with(&function));
    let (_, count) =
        found.ok_or_else(|| Error::other(format!("{function} is not in the profile")))?;
    Ok((name, count / cases::ROUNDS))
}

fn profile_path() -> PathBuf {
    std::env::temp_dir().join(format!("shearwater-instructions-{}.out", std::process::id()))
}
