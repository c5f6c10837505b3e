//! The one door to shared memory: the standard library's atomics, or loom's when the models run. No other file of this
//! crate names an atomic type's home, so every interleaving loom explores is one the real code can take.

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc,
    atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence},
};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Arc,
    atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence},
};
