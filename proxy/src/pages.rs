//! How the allocator and the kernel share pages: when huge ones are used, and when freed ones go back.
//!
//! The allocator asks for them, and the little that an idle proxy holds, spread over threads, would take ten of
//! 2 MiB. A large index is looked up faster with them. So they are off at first and come with the index. A body's memory
//! is freed when its reply begins, and would stay with the process for seconds if it were not given back soon. It
//! measures nothing and never fails: without the kernel's consent, things stay as they are.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_long};

use std::sync::atomic::{AtomicBool, Ordering};

// Its library is what the function below is found in.
use mimalloc as _;

use crate::limits::{FREED_PAGES_KEPT_MS, HUGE_PAGES_FROM_BYTES};

unsafe extern "C" {
    /// Sets one of the allocator's options.
    fn mi_option_set(option: c_int, value: c_long);
}

/// The allocator's number for the time, in ms, after which it gives freed pages back.
const MI_OPTION_PURGE_DELAY: c_int = 15;

/// Freed pages go back to the kernel soon, from now on. Call it before memory is used.
pub fn give_back_soon() {
    // SAFETY: the signature is the library's own; it checks the number, and stores one word, which is read when pages
    // are freed.
    unsafe { mi_option_set(MI_OPTION_PURGE_DELAY, FREED_PAGES_KEPT_MS) }
}

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

    unsafe extern "C" {
        fn mi_option_get(option: c_int) -> c_long;
    }

    fn kept_ms() -> c_long {
        // SAFETY: the signature is the library's own; it reads one word.
        unsafe { mi_option_get(MI_OPTION_PURGE_DELAY) }
    }

    #[test]
    fn freed_pages_are_kept_for_as_long_as_is_said_here() {
        let by_default = 1_000;
        assert_eq!(kept_ms(), by_default, "the number is no longer that of this option");
        give_back_soon();
        assert_eq!(kept_ms(), FREED_PAGES_KEPT_MS);
    }

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
