//! The shared mutable state of all backends: plain atomics, one cache line a backend, made once with a fixed capacity.
//! All shards share one `&Fleet`. It never allocates after it is made and never locks.

use crossbeam::utils::CachePadded;

use crate::limits::{AFFINITY_ENTRIES_DEFAULT, AFFINITY_IDLE_MS_DEFAULT};
use crate::roster::Roster;
use crate::sync::Arc;
use crate::{Affinity, Backend, BackendId, Charge, RecentRoutes, Rejected, Reservation};

/// Sizes of the shared state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetConfig {
    /// Backends there is room for; ids run from 0 to this, less one.
    pub capacity: usize,
    /// Conversation pins kept; rounded up to a power of two.
    pub affinity_entries: usize,
    /// A pin unused for this long is forgotten, in ms.
    pub affinity_idle_ms: u64,
}

impl FleetConfig {
    /// Room for `capacity` backends, everything else by default.
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            capacity,
            affinity_entries: AFFINITY_ENTRIES_DEFAULT,
            affinity_idle_ms: AFFINITY_IDLE_MS_DEFAULT,
        }
    }
}

/// All backends' shared state, the conversation pins, and the routes too recent to be in a snapshot.
#[derive(Debug)]
pub struct Fleet {
    backends: Box<[CachePadded<Backend>]>,
    /// Stands in for ids outside the fleet: disabled for ever, so that a stale id is refused instead of trusted.
    nobody: Backend,
    roster: Arc<Roster>,
    affinity: Affinity,
    recent: RecentRoutes,
}

impl Fleet {
    /// Makes the state of `config.capacity` backends (at most 65,536, the range of an id).
    pub fn new(config: FleetConfig) -> Self {
        let capacity = config.capacity.min(usize::from(u16::MAX) + 1);
        let nobody = Backend::new();
        nobody.set_enabled(false);
        let roster = Arc::new(Roster::new(capacity));
        let backend = |index: usize| Backend::marked(&roster, BackendId(index as u16));
        Self {
            backends: (0..capacity).map(|index| CachePadded::new(backend(index))).collect(),
            roster: Arc::clone(&roster),
            nobody,
            affinity: Affinity::new(config.affinity_entries, config.affinity_idle_ms),
            recent: RecentRoutes::new(),
        }
    }

    /// The state of one backend. An id outside the fleet gets a backend that admits nothing.
    pub fn backend(&self, id: BackendId) -> &Backend {
        self.backends.get(id.index()).map_or(&self.nobody, |backend| backend)
    }

    /// Backends there is room for.
    pub fn len(&self) -> usize {
        self.backends.len()
    }

    /// Whether there is room for none.
    pub fn is_empty(&self) -> bool {
        self.backends.is_empty()
    }

    /// Which conversation lives where.
    pub fn affinity(&self) -> &Affinity {
        &self.affinity
    }

    /// Routes too recent to be in a snapshot.
    pub fn recent(&self) -> &RecentRoutes {
        &self.recent
    }

    /// What the backends are doing, a bit each.
    pub(crate) fn roster(&self) -> &Roster {
        &self.roster
    }

    /// Numbered checks, true whenever nobody is changing anything: 1. no tokens held by no request; 2. what is marked of
    /// a backend is what its state says.
    pub fn check_invariants(&self) -> Result<(), String> {
        for (index, backend) in self.backends.iter().enumerate() {
            backend.slots.check_invariants()?;
            if !backend.is_noted() {
                return Err(format!("2: the marks of backend {index} are not its state"));
            }
        }
        Ok(())
    }

    /// Takes a place on one backend, both requests and tokens or neither. Looks at capacity only; whether the backend
    /// admits requests at all is [`Backend::admits`].
    pub fn reserve(&self, id: BackendId, charge: Charge) -> Result<Reservation<'_>, Rejected> {
        let Some(backend) = self.backends.get(id.index()) else { return Err(Rejected::Requests) };
        Reservation::take(backend, id, charge)
    }
}
