//! The product's allocator with a counter before it. It changes nothing about what is allocated.
#![allow(
    unsafe_code,
    reason = "an allocator is an unsafe trait; each call is handed on as it came"
)]

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicU64, Ordering};

use mimalloc::MiMalloc;

/// Counts calls that may take new memory: allocations and reallocations.
#[derive(Debug)]
pub(crate) struct Counting {
    calls: AtomicU64,
}

impl Counting {
    pub(crate) const fn new() -> Counting {
        Counting { calls: AtomicU64::new(0) }
    }

    /// Calls so far, of all threads.
    pub(crate) fn count(&self) -> u64 {
        // A count that stands alone: nothing is published by it.
        self.calls.load(Ordering::Relaxed)
    }

    fn one_more(&self) {
        // A count that stands alone: nothing is published by it.
        self.calls.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: every call is handed to mimalloc as it came, so its promises are ours.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.one_more();
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.one_more();
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        self.one_more();
        // SAFETY: the caller's promises about the three are passed on.
        unsafe { MiMalloc.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises about both are passed on.
        unsafe { MiMalloc.dealloc(pointer, layout) }
    }
}
