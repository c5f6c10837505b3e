//! The end of a workload, told to threads and to tasks alike.

use std::sync::{Condvar, Mutex, PoisonError};

use tokio::sync::watch;
use tokio::time::Instant;

/// Set once, never cleared.
#[derive(Debug)]
pub(crate) struct Stop {
    stopped: Mutex<bool>,
    changed: Condvar,
    told: watch::Sender<bool>,
}

impl Stop {
    pub(crate) fn new() -> Stop {
        Stop {
            stopped: Mutex::new(false),
            changed: Condvar::new(),
            told: watch::Sender::new(false),
        }
    }

    pub(crate) fn set(&self) {
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
        self.told.send_replace(true);
    }

    /// Blocks the thread until `at`, to some ten microseconds; `true` when stopped before.
    pub(crate) fn wait_until(&self, at: Instant) -> bool {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        let left = at.saturating_duration_since(Instant::now());
        let waited = self.changed.wait_timeout_while(stopped, left, |stopped| !*stopped);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits until stopped.
    pub(crate) async fn stopped(&self) {
        // The sender lives in `self`, so the wait can only end by the value.
        let _ = self.told.subscribe().wait_for(|stopped| *stopped).await;
    }
}
