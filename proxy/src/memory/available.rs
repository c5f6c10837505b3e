//! How much memory this process may use: what its control group allows, or what the machine has.
//!
//! Read once, at start. Without an answer the caller's least default applies; nothing here fails.

use std::fs;
use std::path::Path;

const GROUPS: &str = "/sys/fs/cgroup";

/// Bytes this process may use, as far as the system says.
pub(super) fn bytes() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let read = |file: &Path| fs::read_to_string(file).ok();
    [machine, limit(&groups, &read)].into_iter().flatten().min()
}

/// The machine's memory, as `/proc/meminfo` tells it in KiB.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The smallest limit of the process's control groups and of those above them, of version 2 (`0::/path`) and of
/// version 1 (`4:memory:/path`). Inside a container its own group is usually mounted as the root.
fn limit(groups: &str, read: &impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let mut least = None;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else { continue };
        let (root, file) = match controllers {
            "" => (Path::new(GROUPS).to_path_buf(), "memory.max"),
            _ if controllers.split(',').any(|one| one == "memory") => {
                (Path::new(GROUPS).join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        for above in root.join(group.trim_start_matches('/')).ancestors() {
            if above.starts_with(&root) {
                // "max", and a missing file, are no limit.
                let said = read(&above.join(file)).and_then(|text| text.trim().parse::<u64>().ok());
                least = least.into_iter().chain(said).min();
            }
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit_among(groups: &str, files: &[(&str, &str)]) -> Option<u64> {
        let read = |file: &Path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == file)?;
            Some(found.1.to_owned())
        };
        limit(groups, &read)
    }

    #[test]
    fn the_smallest_limit_on_the_way_up_counts() {
        let files = [
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/memory.max", "1048576\n"),
            ("/sys/fs/cgroup/memory.max", "2097152\n"),
            ("/sys/fs/cgroup/other/memory.max", "1\n"),
        ];
        assert_eq!(limit_among("0::/a/b\n", &files), Some(1 << 20));
    }

    #[test]
    fn the_older_version_is_read_too_and_its_other_controllers_are_not() {
        let files = [
            ("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "4096\n"),
            ("/sys/fs/cgroup/memory/y/memory.limit_in_bytes", "1\n"),
        ];
        assert_eq!(limit_among("5:cpu,cpuacct:/y\n4:memory:/x\n", &files), Some(4096));
    }

    #[test]
    fn without_a_limit_there_is_none_and_nonsense_is_none() {
        let files = [("/sys/fs/cgroup/memory.max", "max")];
        for groups in ["0::/", "", "nonsense", "1:memory"] {
            assert_eq!(limit_among(groups, &files), None, "{groups:?}");
        }
    }

    #[test]
    fn the_machines_memory_is_read_in_bytes() {
        assert_eq!(total("MemFree: 1 kB\nMemTotal:       16 kB\n"), Some(16 * 1024));
        assert_eq!(total("MemTotal: much\n"), None);
        assert!(bytes().is_some_and(|bytes| bytes > 1 << 20), "this machine has memory");
    }
}
