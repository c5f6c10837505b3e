//! One backend's account: its budget, what it holds, the two ends of its order of use, and what it lost so far.

use super::capacity::Capacity;
use super::ledger::{HoldId, Holds};
use super::reuse::Reuse;
use crate::BackendId;

/// What the ledger keeps for one backend.
#[derive(Clone, Debug)]
pub(super) struct Account {
    /// Stands for holding the root; in no order of use.
    pub(super) root: HoldId,
    pub(super) oldest: HoldId,
    pub(super) newest: HoldId,
    pub(super) blocks: u64,
    /// What the engine's capacity is assumed to be, once told.
    pub(super) blocks_max: Option<u64>,
    /// What it was found to be, once anything was reported.
    pub(super) learned: Option<Box<Learned>>,
    pub(super) spans: u32,
    /// How often everything was given up. A hold of an earlier epoch is stale: it is not believed, only not freed yet.
    pub(super) epoch: u16,
    /// Blocks it may be believed to hold beyond its budget, until steps have given them up.
    pub(super) excess: u64,
    /// Blocks of stale holds, part of `blocks`.
    pub(super) stale_blocks: u64,
    /// The backend left; the account is closed when nothing stale is left.
    pub(super) is_leaving: bool,
    pub(super) lost: Lost,
}

/// What a backend's reports are compared with, and what came of it.
#[derive(Clone, Debug)]
pub(super) struct Learned {
    pub(super) reuse: Reuse,
    pub(super) capacity: Capacity,
}

/// Blocks a backend lost, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Over its budget, or the fleet's.
    pub evicted_blocks: u64,
    /// The engine reported fewer cached than predicted.
    pub corrected_blocks: u64,
    /// How often that happened.
    pub corrections: u64,
    /// Not used for longer than the idle time.
    pub expired_blocks: u64,
    /// The engine restarted, or the backend left.
    pub cleared_blocks: u64,
}

impl Account {
    pub(super) fn new(root: HoldId) -> Self {
        Self {
            root,
            oldest: HoldId::NIL,
            newest: HoldId::NIL,
            blocks: 0,
            blocks_max: None,
            learned: None,
            spans: 0,
            epoch: 0,
            excess: 0,
            stale_blocks: 0,
            is_leaving: false,
            lost: Lost::default(),
        }
    }

    /// Blocks it may be believed to hold, where `default` are assumed of a backend of unknown capacity.
    pub(super) fn budget(&self, default: u64) -> u64 {
        match &self.learned {
            Some(learned) => learned.capacity.blocks(),
            None => self.blocks_max.unwrap_or(default),
        }
    }

    /// Blocks it is believed to hold.
    pub(super) fn fresh_blocks(&self) -> u64 {
        self.blocks - self.stale_blocks
    }
}

impl Learned {
    /// The order of use is bounded and names nothing twice; the capacity is within its bounds.
    pub(super) fn check_invariants(&self) -> Result<(), String> {
        self.reuse.check_invariants()?;
        self.capacity.check_invariants()
    }
}

impl Lost {
    pub(super) fn add(&mut self, other: &Lost) {
        self.evicted_blocks += other.evicted_blocks;
        self.corrected_blocks += other.corrected_blocks;
        self.corrections += other.corrections;
        self.expired_blocks += other.expired_blocks;
        self.cleared_blocks += other.cleared_blocks;
    }
}

impl Holds {
    pub(super) fn len(&self) -> usize {
        match self {
            Holds::One(..) => 1,
            Holds::Many(list) => list.len(),
        }
    }

    /// The hold at a position, in the order of backend ids.
    pub(super) fn at(&self, at: usize) -> (BackendId, HoldId) {
        match self {
            Holds::One(backend, hold) => (*backend, *hold),
            Holds::Many(list) => list[at],
        }
    }

    pub(super) fn set(&mut self, at: usize, hold: HoldId) {
        match self {
            Holds::One(_, slot) => *slot = hold,
            Holds::Many(list) => list[at].1 = hold,
        }
    }

    pub(super) fn find(&self, backend: BackendId) -> Option<HoldId> {
        match self {
            Holds::One(one, hold) => (*one == backend).then_some(*hold),
            Holds::Many(list) => {
                let at = list.binary_search_by_key(&backend, |&(id, _)| id).ok()?;
                Some(list[at].1)
            }
        }
    }

    pub(super) fn insert(&mut self, backend: BackendId, hold: HoldId) {
        match self {
            Holds::One(one, first) => {
                let mut list = Box::new(vec![(*one, *first), (backend, hold)]);
                list.sort_unstable_by_key(|&(id, _)| id);
                *self = Holds::Many(list);
            }
            Holds::Many(list) => {
                let at = list.partition_point(|&(id, _)| id < backend);
                list.insert(at, (backend, hold));
            }
        }
    }

    /// Takes the backend's hold out. True when it was the last.
    pub(super) fn remove(&mut self, backend: BackendId) -> bool {
        let Holds::Many(list) = self else { return true };
        if let Ok(at) = list.binary_search_by_key(&backend, |&(id, _)| id) {
            list.remove(at);
        }
        if let [(one, hold)] = list[..] {
            *self = Holds::One(one, hold);
        }
        false
    }
}
