//! Which thread runs where: the same for all indexes. Updates have the last core for themselves, lookups the others.

use core_affinity::CoreId;

/// The cores of a trial.
#[derive(Clone, Debug)]
pub(crate) struct Cores {
    updates: CoreId,
    lookups: Vec<CoreId>,
}

impl Cores {
    /// All cores of this process; a single one serves both.
    pub(crate) fn of_process() -> Result<Self, String> {
        let mut all = core_affinity::get_core_ids().unwrap_or_default();
        let updates = all.pop().ok_or("cores cannot be told apart here")?;
        let lookups = if all.is_empty() { vec![updates] } else { all };
        Ok(Self { updates, lookups })
    }

    /// Puts the calling thread where updates are made; threads it starts are there too.
    pub(crate) fn enter_updates(&self) {
        core_affinity::set_for_current(self.updates);
    }

    /// Puts the calling thread where lookups of front `at` are made.
    pub(crate) fn enter_lookups(&self, at: usize) {
        core_affinity::set_for_current(self.lookups[at % self.lookups.len()]);
    }
}
