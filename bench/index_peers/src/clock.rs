//! The only place of this crate that reads the clock, and the only one that waits for a time.

use std::time::{Duration, Instant};

/// Time since one moment, the same for all threads of a trial.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "a stop-watch reads the clock")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Nanoseconds since it was started.
    pub(crate) fn ns(self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Spins until `due_ns`, and returns when it is: sleeping would be late by more than a lookup takes.
    pub(crate) fn wait_until(self, due_ns: u64) -> u64 {
        loop {
            let now = self.ns();
            if now >= due_ns {
                return now;
            }
            std::hint::spin_loop();
        }
    }
}

/// Gives the core away for a moment. Nothing signals what is waited for: an index's queue has only a length.
#[expect(clippy::disallowed_methods, reason = "there is no event to wait on")]
pub(crate) fn pause(micros: u64) {
    std::thread::sleep(Duration::from_micros(micros));
}
