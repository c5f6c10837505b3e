//! How many files and connections the process may have open: as many as the system lets it, with room made at once.
//!
//! A process begins with the lower one of two limits, often 1,024, for the sake of programs that use `select`; nothing
//! here does. And the kernel doubles the table of descriptors when a number does not fit. In a process with several
//! threads whoever asked for that number then waits until every processor has passed a quiet state (`expand_fdtable` in
//! Linux's `fs/file.c`): 10 to 25 ms, on the data path at a shard's every stream, at the 256th descriptor, the 512th, and
//! so on. It never lowers a limit and never fails: without the system's consent, things stay as they are.

use std::io::stdin;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::limits::{DESCRIPTORS_RESERVED, DESCRIPTORS_ROOM, VISITS_DESCRIPTORS_DIVISOR};

/// Takes all that the system allows and makes the table as large as it will need to be; returns how many descriptors
/// there may be. Costs nothing as long as the process has one thread.
pub fn take_all() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    // No number: no limit.
    let allowed = (if raised { maximum } else { current }).unwrap_or(u64::MAX);
    make_room(allowed.min(DESCRIPTORS_ROOM));
    allowed
}

/// Who may have how many of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// The control thread, for visits to backends: how many may be under way at the same time.
    pub visits: usize,
    /// All shards together.
    pub shards: usize,
}

impl Shares {
    /// Of so many, before a fleet of this size.
    pub fn of(allowed: u64, backends: usize) -> Shares {
        let part = usize::try_from(allowed / VISITS_DESCRIPTORS_DIVISOR).unwrap_or(usize::MAX);
        let visits = part.min(backends).max(1);
        let left = allowed.saturating_sub(DESCRIPTORS_RESERVED);
        let shards = usize::try_from(left).unwrap_or(usize::MAX).saturating_sub(visits);
        Shares { visits, shards }
    }
}

/// Has the table hold so many: the kernel makes room for a number, and keeps it when the number is free again.
fn make_room(count: u64) {
    let last = i32::try_from(count.saturating_sub(1)).unwrap_or(i32::MAX);
    drop(fcntl_dupfd_cloexec(stdin(), last));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many descriptors the table of this process holds, by the kernel's word.
    fn table() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let size = status.lines().find_map(|line| line.strip_prefix("FDSize:")).unwrap();
        size.trim().parse().unwrap()
    }

    #[test]
    fn visits_have_an_eighth_and_never_more_than_there_are_backends() {
        for (allowed, backends, visits, shards) in [
            (1_024, 2, 2, 766),
            (1_024, 1_000, 128, 640),
            (20_000, 10_000, 2_500, 17_244),
            (100, 1_000, 12, 0),
            (4, 1_000, 1, 0),
            (1_024, 0, 1, 767),
        ] {
            let shares = Shares { visits, shards };
            assert_eq!(Shares::of(allowed, backends), shares, "{allowed}, {backends}");
        }
    }

    #[test]
    fn the_table_has_room_for_all_that_is_allowed_and_the_last_place_is_free() {
        let allowed = take_all();
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        assert_eq!(current, maximum, "the lower limit is the upper one");
        assert_eq!(current.unwrap_or(u64::MAX), allowed);
        let room = allowed.min(DESCRIPTORS_ROOM);
        assert!(table() >= room, "{} of {room}", table());
        let last = format!("/proc/self/fd/{}", room - 1);
        assert!(!std::fs::exists(&last).unwrap(), "{last} stays open");
    }
}
