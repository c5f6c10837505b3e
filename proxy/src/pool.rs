//! Idle upstream connections of one shard.
//!
//! Engines close an idle connection after 5 s and llama.cpp after each streamed reply, announcing
//! neither, so a pooled connection is a guess. It is looked at while idle and once more when taken, is
//! kept shorter than any engine would, and never leaves its shard. What is kept for later never takes the descriptors of
//! connections that are needed now: before a large fleet there are more backends than descriptors.

use std::cell::{Cell, RefCell};

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
    count: Cell<usize>,
    /// The backend that is next to lose one when there are too many.
    next: Cell<usize>,
}

impl Pools {
    /// The most recently used connection to `backend` that still looks alive.
    pub fn take(&self, backend: BackendId, now: Millis) -> Option<Socket> {
        let mut all = self.by_backend.borrow_mut();
        let idle = all.get_mut(usize::from(backend.0))?;
        while let Some(entry) = idle.pop() {
            self.count.set(self.count.get() - 1);
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
            self.count.set(self.count.get() + 1);
        }
    }

    /// Closes some until there are at most so many: of one backend after the other the one used longest ago.
    pub fn keep_at_most(&self, most: usize) {
        let mut all = self.by_backend.borrow_mut();
        let places = all.len();
        let (mut next, mut passed_by) = (self.next.get(), 0);
        while self.count.get() > most && passed_by < places {
            next = (next + 1) % places;
            match all.get_mut(next).filter(|idle| !idle.is_empty()) {
                Some(idle) => {
                    drop(idle.remove(0));
                    self.count.set(self.count.get() - 1);
                    passed_by = 0;
                }
                None => passed_by += 1,
            }
        }
        self.next.set(next);
    }

    /// Closes what expired, what the engine closed, and what spoke out of turn.
    pub fn sweep(&self, now: Millis) {
        let mut all = self.by_backend.borrow_mut();
        for idle in all.iter_mut() {
            idle.retain(|entry| entry.is_fit(now));
        }
        self.count.set(all.iter().map(Vec::len).sum());
    }

    /// How many connections are idle, for the gauge.
    pub fn idle_count(&self) -> usize {
        self.count.get()
    }
}

impl Idle {
    fn is_fit(&self, now: Millis) -> bool {
        now < self.until && self.socket.peek() == Peek::Quiet
    }
}
