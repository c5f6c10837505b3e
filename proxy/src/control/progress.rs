//! How far the first round of questions has come, who may ask now, and who is to be woken when something changed.
//!
//! Shared by the tasks of the control thread only, the admin address among them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use index::BackendId;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

/// See the module.
#[derive(Debug)]
pub(crate) struct Progress {
    wakes: Vec<Arc<Notify>>,
    rounds: AtomicUsize,
    changes: Notify,
    visits: Semaphore,
}

impl Progress {
    /// For this many backends, so many of which may be visited at the same time.
    pub(super) fn new(backends: usize, visits_at_once: usize) -> Progress {
        Progress {
            wakes: (0..backends).map(|_| Arc::default()).collect(),
            rounds: AtomicUsize::new(0),
            changes: Notify::new(),
            visits: Semaphore::new(visits_at_once.min(Semaphore::MAX_PERMITS)),
        }
    }

    /// What wakes the backend's task.
    pub(super) fn wake(&self, id: BackendId) -> Option<Arc<Notify>> {
        self.wakes.get(id.index()).map(Arc::clone)
    }

    /// Waits until a visit may begin, and lets another begin when what it returns is dropped. Whoever asked first goes
    /// first.
    pub(super) async fn visit(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.visits.acquire().await.ok()
    }

    /// One more backend has been asked everything once.
    pub(super) fn first_round_done(&self) {
        // Relaxed: one thread runs all tasks that look at it.
        self.rounds.fetch_add(1, Ordering::Relaxed);
        self.changed();
    }

    /// Whether all have.
    pub(super) fn all_asked(&self) -> bool {
        // Relaxed: as above.
        self.rounds.load(Ordering::Relaxed) >= self.wakes.len()
    }

    /// Models or health changed: routes may have to be published.
    pub(crate) fn changed(&self) {
        self.changes.notify_one();
    }

    /// Waits for a change; changes since the last call count as one.
    pub(super) async fn wait(&self) {
        self.changes.notified().await;
    }
}
