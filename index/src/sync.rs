//! The one door to shared memory: the standard library's atomics, or loom's when the models run. No other file of this
//! crate names an atomic type's home, so every interleaving loom explores is one the real code can take.

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence},
};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence},
};

/// Explores every interleaving with at most so many preemptions, unless `LOOM_MAX_PREEMPTIONS` says otherwise: three find
/// every bug a model of this size has been seen to have, and all of them would take hours.
#[cfg(loom)]
const PREEMPTIONS: usize = 3;

/// Runs `check` once for each interleaving of its threads.
#[cfg(loom)]
pub fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(PREEMPTIONS);
    builder.check(check);
}
