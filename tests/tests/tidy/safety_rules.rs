//! Rules on unsafe code, memory orderings, locks and panics.

use crate::rules;

rules! {
    #[test]
    fn unsafe_code_stands_only_in_files_listed_for_it(
        tests::tidy::safety::unsafe_code_stands_where_it_is_expected
    )
    broken_by {
        [("proxy/src/relay.rs", "fn f() { unsafe { g() } }")]
        [("index/src/tree.rs", "unsafe impl Send for A {}")]
        [("bench/benches/pick.rs", "unsafe fn f() {}")]
    }
    kept_by {
        [("proxy/src/socket.rs", "fn f() { unsafe { g() } }")]
        [("proxy/src/relay.rs", "// unsafe\n#![deny(unsafe_code)]\nconst A: &str = \"unsafe\";")]
    }

    #[test]
    fn index_config_and_loadgen_forbid_unsafe_code(
        tests::tidy::safety::safe_crates_forbid_unsafe_code
    )
    broken_by {
        [("index/src/lib.rs", "//! Why.\n#![deny(unsafe_code)]")]
        [("config/src/lib.rs", "// #![forbid(unsafe_code)]")]
        [("loadgen/src/main.rs", "")]
    }
    kept_by {
        [("index/src/lib.rs", "//! Why.\n#![forbid(unsafe_code)]")]
        [("proxy/src/lib.rs", ""), ("index/src/tree.rs", "")]
    }

    #[test]
    fn every_memory_ordering_is_explained(tests::tidy::safety::orderings_are_explained)
    broken_by {
        [("index/src/a.rs", "fn f() { a.load(Ordering::Relaxed); }")]
        [("proxy/src/a.rs", "// pairs with b\n\n\n\n\n\nfn f() { a.load(Ordering::Acquire); }")]
        [("index/src/a.rs", "/// Reads it.\nfn f() { a.load(Ordering::SeqCst); }")]
        [("index/src/a.rs", "// pairs with b\nuse std::sync::atomic::Ordering::{Acquire};")]
        [("proxy/src/a.rs", "const A: &str = \"// no\"; fn f() { a.load(Ordering::AcqRel); }")]
    }
    kept_by {
        [("index/src/a.rs", "// Relaxed: a statistic.\nfn f() { a.load(Ordering::Relaxed); }")]
        [("index/src/a.rs", "fn f() { a.load(Ordering::Relaxed); } // a statistic")]
        [("index/src/a.rs", "/// Acquire: pairs with b.\nfn f() { a.load(Ordering::Acquire); }")]
        [("index/src/a.rs", "fn f() { a.cmp(b) == Ordering::Less }")]
        [("index/src/a.rs", "#[cfg(test)]\nmod tests { fn f() { a.load(Ordering::SeqCst); } }")]
        [("loadgen/src/a.rs", "fn f() { a.load(Ordering::Relaxed); }")]
    }

    #[test]
    fn files_with_atomics_open_with_a_section_on_their_orderings(
        tests::tidy::safety::files_with_atomics_open_with_their_orderings
    )
    broken_by {
        [("index/src/a.rs", "//! Why.\nfn f() { a.load(Ordering::Relaxed); }")]
        [("index/src/a.rs", "//! Why.\n\n//! # Orderings\nfn f() { a.load(Ordering::Relaxed); }")]
    }
    kept_by {
        [("index/src/a.rs", "//! Why.\n//!\n//! # Orderings\n//! None.\nfn f() { \
           a.load(Ordering::Relaxed); }")]
        [("index/src/a.rs", "//! Why.\n")]
        [("proxy/src/a.rs", "//! Why.\nfn f() { a.load(Ordering::Relaxed); }")]
    }

    #[test]
    fn atomics_of_the_index_come_through_its_sync_module(
        tests::tidy::safety::atomics_come_through_one_module
    )
    broken_by {
        [("index/src/a.rs", "use std::sync::atomic::AtomicU64;")]
        [("index/src/a.rs", "use std::sync::{\n    Arc,\n    atomic::{AtomicU8},\n};")]
        [("index/src/a.rs", "#[cfg(not(loom))]\nuse std::sync::atomic::AtomicU64;")]
        [("index/src/a.rs", "use crossbeam::atomic::AtomicCell;")]
    }
    kept_by {
        [("index/src/sync.rs", "pub(crate) use std::sync::atomic::AtomicU64;")]
        [("index/src/a.rs", "use crate::sync::{AtomicU64, Ordering};\nuse std::sync::Arc;")]
        [("proxy/src/a.rs", "use std::sync::atomic::AtomicU64;")]
        [("index/tests/loom.rs", "fn f() { loom::model(|| ()) }")]
    }

    #[test]
    fn nothing_on_the_data_path_locks(tests::tidy::safety::nothing_on_the_data_path_locks)
    broken_by {
        [("index/src/a.rs", "use std::sync::Mutex;")]
        [("proxy/src/relay.rs", "fn f(a: &RwLock<u8>) {}")]
        [("proxy/src/http/head.rs", "static A: std::sync::Mutex<u8> = b();")]
        [("proxy/src/session/mod.rs", "struct A { b: Condvar }")]
    }
    kept_by {
        [("proxy/src/admin.rs", "use std::sync::Mutex;")]
        [("proxy/src/relay.rs", "// No Mutex here.\n#[cfg(test)]\nmod tests { use std::sync::Mutex; }")]
        [("proxy/src/relay.rs", "struct MutexFree;")]
        [("index/src/a.rs", "#[cfg(loom)]\nmod cell { use loom::sync::Mutex; }")]
    }

    #[test]
    fn the_proxy_denies_panics_outside_tests(tests::tidy::safety::the_proxy_denies_panics)
    broken_by {
        [("proxy/src/lib.rs", "//! Why.")]
        [("proxy/src/lib.rs", "#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]")]
        [("proxy/src/lib.rs", "#![deny(clippy::unwrap_used, clippy::expect_used)]\n\
           #![allow(clippy::panic, clippy::indexing_slicing)]")]
    }
    kept_by {
        [("proxy/src/lib.rs", "#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::panic))]\n\
           #![deny(clippy::expect_used, clippy::indexing_slicing)]")]
    }
}
