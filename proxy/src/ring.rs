//! Which I/O driver a shard runs on, and how it is set up.
//!
//! io_uring may be denied (container profiles, sysctl) or lack a flag (older kernels), and monoio's own
//! fallback looks at operations only, so the choice is made here: all flags, then fewer, then epoll. It
//! says which one runs; it never panics.

use std::future::Future;
use std::io;

use monoio::{IoUringDriver, LegacyDriver, Runtime, RuntimeBuilder, time::TimeDriver};

use crate::limits::RING_ENTRIES;

/// A shard's event loop.
pub enum Loop {
    /// Completion-based, with the ring flags that were granted.
    Uring(Box<Runtime<TimeDriver<IoUringDriver>>>, &'static str),
    /// Readiness-based.
    Epoll(Box<Runtime<TimeDriver<LegacyDriver>>>),
}

impl std::fmt::Debug for Loop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Loop").field(&self.name()).finish()
    }
}

impl Loop {
    /// Sets up the best driver this process may use. Call it on the shard's own thread: the ring belongs
    /// to the thread that made it. `SHEARWATER_DRIVER=epoll` skips io_uring.
    ///
    /// # Errors
    /// When not even epoll can be set up.
    pub fn start() -> io::Result<Loop> {
        let uring = std::env::var_os("SHEARWATER_DRIVER").is_none_or(|driver| driver != "epoll");
        if uring {
            for (name, flags) in FLAG_SETS {
                if let Ok(runtime) = build_uring(flags) {
                    return Ok(Loop::Uring(Box::new(runtime), name));
                }
            }
        }
        let runtime = RuntimeBuilder::<LegacyDriver>::new()
            .with_entries(RING_ENTRIES)
            .enable_timer()
            .build()?;
        Ok(Loop::Epoll(Box::new(runtime)))
    }

    /// The driver in words, for the start-up line and the admin address.
    pub fn name(&self) -> &'static str {
        match self {
            Loop::Uring(_, name) => name,
            Loop::Epoll(_) => "epoll",
        }
    }

    /// Whether it is io_uring. A listener must be blocking then, and non-blocking under epoll.
    pub fn is_uring(&self) -> bool {
        matches!(self, Loop::Uring(..))
    }

    /// Runs `main` to its end.
    pub fn run<F: Future>(&mut self, main: F) -> F::Output {
        match self {
            Loop::Uring(runtime, _) => runtime.block_on(main),
            Loop::Epoll(runtime) => runtime.block_on(main),
        }
    }
}

#[derive(Clone, Copy)]
struct Flags {
    single_issuer: bool,
    coop_taskrun: bool,
}

/// Best first. `defer_taskrun` measured the same and lets a busy task starve I/O with this runtime.
const FLAG_SETS: [(&str, Flags); 3] = [
    ("io_uring (single_issuer, coop_taskrun)", Flags { single_issuer: true, coop_taskrun: true }),
    ("io_uring (coop_taskrun)", Flags { single_issuer: false, coop_taskrun: true }),
    ("io_uring", Flags { single_issuer: false, coop_taskrun: false }),
];

fn build_uring(flags: Flags) -> io::Result<Runtime<TimeDriver<IoUringDriver>>> {
    let mut ring = io_uring::IoUring::builder();
    if flags.single_issuer {
        ring.setup_single_issuer();
    }
    if flags.coop_taskrun {
        ring.setup_coop_taskrun();
    }
    RuntimeBuilder::<IoUringDriver>::new()
        .with_entries(RING_ENTRIES)
        .uring_builder(ring)
        .enable_timer()
        .build()
}
