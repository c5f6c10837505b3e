//! Idle upstream connections of one shard.
//!
//! Engines close an idle connection after 5 s and llama.cpp after each streamed reply, announcing
//! neither, so a pooled connection is a guess. It is looked at while idle and once more when taken, is
//! kept shorter than any engine would, and never leaves its shard.

use std::cell::RefCell;

use index::{BackendId, Millis};

use crate::limits::POOL_IDLE_PER_BACKEND_MAX;
use crate::socket::{Peek, Socket};

/// One pooled connection.
#[derive(Debug)]
struct Idle {
    socket: Socket,
    until: Millis,
}

/// The idle connections, by backend.
#[derive(Debug, Default)]
pub struct Pools {
    by_backend: RefCell<Vec<Vec<Idle>>>,
}

impl Pools {
    /// The most recently used connection to `backend` that still looks alive.
    pub fn take(&self, backend: BackendId, now: Millis) -> Option<Socket> {
        let mut all = self.by_backend.borrow_mut();
        let idle = all.get_mut(usize::from(backend.0))?;
        while let Some(entry) = idle.pop() {
            if entry.is_fit(now) {
                return Some(entry.socket);
            }
        }
        None
    }

    /// Keeps a connection over which a whole reply was read cleanly, for at most `idle_ms`.
    pub fn put(&self, backend: BackendId, socket: Socket, now: Millis, idle_ms: u64) {
        let slot = usize::from(backend.0);
        let mut all = self.by_backend.borrow_mut();
        if all.len() <= slot {
            all.resize_with(slot + 1, Vec::new);
        }
        if let Some(idle) = all.get_mut(slot)
            && idle.len() < POOL_IDLE_PER_BACKEND_MAX
        {
            idle.push(Idle { socket, until: Millis(now.0.saturating_add(idle_ms)) });
        }
    }

    /// Closes what expired, what the engine closed, and what spoke out of turn.
    pub fn sweep(&self, now: Millis) {
        for idle in self.by_backend.borrow_mut().iter_mut() {
            idle.retain(|entry| entry.is_fit(now));
        }
    }

    /// How many connections are idle, for the gauge.
    pub fn idle_count(&self) -> usize {
        self.by_backend.borrow().iter().map(Vec::len).sum()
    }
}

impl Idle {
    fn is_fit(&self, now: Millis) -> bool {
        now < self.until && self.socket.peek() == Peek::Quiet
    }
}
