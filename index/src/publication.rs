//! Publishing one immutable value from one writer to many readers. Readers never wait and never free: the writer keeps
//! every value it replaced until it alone holds it, then frees it itself.
//!
//! # Paths
//! - reader: compare one word with the version it holds; only when it changed, take the new one.
//! - writer: swap the new value in, retire the old one, drop retired values nobody else holds.
//! - A reader that never looks again keeps its one version alive; versions in between are freed all the same.
//!
//! # Why a retired value seen unshared stays unshared
//! After the swap nobody can take the old value from the cell any more (a reader caught in the middle of taking it has
//! been given its own count before the swap returns). So the count only falls, and one means the writer's.
//!
//! # Orderings
//! The cell (arc-swap) releases the value with its pointer. The count is read Relaxed by the standard library; the drop
//! that follows fences with the readers' releases. Under loom a mutex stands in for the cell, which loom cannot see into;
//! what the models explore is the retirement here.

use std::fmt;

use crate::sync::Arc;

/// Makes the two ends, starting with `first`.
pub fn publication<T>(first: T) -> (Publisher<T>, Subscription<T>) {
    let current = Arc::new(first);
    let cell = Arc::new(cell::Cell::new(Arc::clone(&current)));
    (Publisher { cell: Arc::clone(&cell), current, retired: Vec::new() }, Subscription { cell })
}

/// The writing end; there is one.
pub struct Publisher<T> {
    cell: Arc<cell::Cell<T>>,
    current: Arc<T>,
    retired: Vec<Arc<T>>,
}

impl<T> Publisher<T> {
    /// Makes `value` what readers see next. The one before is retired.
    pub fn publish(&mut self, value: T) {
        let next = Arc::new(value);
        self.cell.store(Arc::clone(&next));
        self.retired.push(std::mem::replace(&mut self.current, next));
    }

    /// Frees retired values nobody else holds any more. Returns how many are still held by readers.
    pub fn reclaim(&mut self) -> usize {
        self.reclaim_into(drop)
    }

    /// Hands retired values nobody else holds any more to `take`. Returns how many are still held by readers.
    pub fn reclaim_into(&mut self, mut take: impl FnMut(T)) -> usize {
        let mut at = 0;
        while let Some(value) = self.retired.get(at) {
            if Arc::strong_count(value) > 1 {
                at += 1;
                continue;
            }
            if let Ok(value) = Arc::try_unwrap(self.retired.swap_remove(at)) {
                take(value);
            }
        }
        self.retired.len()
    }

    /// What readers see.
    pub fn current(&self) -> &T {
        &self.current
    }
}

/// Where readers come from; cheap to clone and to share.
pub struct Subscription<T> {
    cell: Arc<cell::Cell<T>>,
}

impl<T> Subscription<T> {
    /// A reader for one thread.
    pub fn reader(&self) -> Subscriber<T> {
        Subscriber { cache: cell::Cache::new(Arc::clone(&self.cell)) }
    }
}

impl<T> Clone for Subscription<T> {
    fn clone(&self) -> Self {
        Self { cell: Arc::clone(&self.cell) }
    }
}

/// The reading end of one thread. It holds the version it saw last.
pub struct Subscriber<T> {
    cache: cell::Cache<T>,
}

impl<T> Subscriber<T> {
    /// The newest value. It stays valid for as long as it is borrowed, whatever is published meanwhile.
    pub fn load(&mut self) -> &T {
        self.cache.load()
    }
}

impl<T> fmt::Debug for Publisher<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher").field("retired", &self.retired.len()).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Subscription<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Subscriber<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber").finish_non_exhaustive()
    }
}

#[cfg(not(loom))]
mod cell {
    use crate::sync::Arc;

    pub(super) type Cell<T> = arc_swap::ArcSwap<T>;

    pub(super) struct Cache<T>(arc_swap::Cache<Arc<Cell<T>>, Arc<T>>);

    impl<T> Cache<T> {
        pub(super) fn new(cell: Arc<Cell<T>>) -> Self {
            Self(arc_swap::Cache::new(cell))
        }

        pub(super) fn load(&mut self) -> &T {
            self.0.load()
        }
    }
}

#[cfg(loom)]
mod cell {
    use loom::sync::Mutex;

    use crate::sync::Arc;

    pub(super) struct Cell<T>(Mutex<Arc<T>>);

    impl<T> Cell<T> {
        pub(super) fn new(value: Arc<T>) -> Self {
            Self(Mutex::new(value))
        }

        pub(super) fn store(&self, value: Arc<T>) {
            // As arc-swap does: the replaced count is dropped after the exchange, outside of it.
            let old = std::mem::replace(&mut *self.0.lock().unwrap(), value);
            drop(old);
        }

        fn get(&self) -> Arc<T> {
            Arc::clone(&self.0.lock().unwrap())
        }
    }

    pub(super) struct Cache<T> {
        cell: Arc<Cell<T>>,
        held: Arc<T>,
    }

    impl<T> Cache<T> {
        pub(super) fn new(cell: Arc<Cell<T>>) -> Self {
            let held = cell.get();
            Self { cell, held }
        }

        pub(super) fn load(&mut self) -> &T {
            self.held = self.cell.get();
            &self.held
        }
    }
}
