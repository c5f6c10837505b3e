//! What the process itself uses, read from `/proc` when asked. Elsewhere nothing is said.

use std::fs;

/// Resident memory in bytes.
pub(super) fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib.saturating_mul(1024))
}

/// Open descriptors. Newer kernels give the number as the directory's size; older ones are counted.
pub(super) fn open_descriptors() -> Option<u64> {
    let size = fs::metadata("/proc/self/fd").ok()?.len();
    if size > 0 {
        return Some(size);
    }
    u64::try_from(fs::read_dir("/proc/self/fd").ok()?.count()).ok()
}
