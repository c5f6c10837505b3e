//! Whether the kernel may back this process's memory with huge pages.
//!
//! The allocator asks for them, and the little that an idle proxy holds, spread over threads, would take ten of
//! 2 MiB. A large index is looked up faster with them. So they are off at first and come with the index. It measures
//! nothing and never fails: without the kernel's consent, things stay as they are.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::limits::HUGE_PAGES_FROM_BYTES;

static SMALL: AtomicBool = AtomicBool::new(false);

/// Small pages only, from now on. Call it before memory is used.
pub fn begin_small() {
    let small = rustix::thread::disable_transparent_huge_pages(true).is_ok();
    // Relaxed: a flag that stands alone.
    SMALL.store(small, Ordering::Relaxed);
}

/// Allows huge pages once the index has this size, for what it takes from then on.
pub(crate) fn follow_index(bytes: u64) {
    // Relaxed: as above; the learn thread alone comes here.
    if bytes >= HUGE_PAGES_FROM_BYTES && SMALL.swap(false, Ordering::Relaxed) {
        // A kernel that refuses leaves the index on small pages: slower, still right.
        let _ = rustix::thread::disable_transparent_huge_pages(false);
    }
}

#[cfg(test)]
mod tests {
    use rustix::thread::transparent_huge_pages_are_disabled;

    use super::*;

    #[test]
    fn huge_pages_come_with_a_large_index_and_not_before() {
        begin_small();
        if !transparent_huge_pages_are_disabled().unwrap_or(false) {
            eprintln!("SKIPPED: this kernel does not let a process do without huge pages");
            return;
        }
        follow_index(HUGE_PAGES_FROM_BYTES - 1);
        assert_eq!(transparent_huge_pages_are_disabled(), Ok(true));
        follow_index(HUGE_PAGES_FROM_BYTES);
        assert_eq!(transparent_huge_pages_are_disabled(), Ok(false));
    }
}
