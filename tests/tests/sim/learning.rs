//! The learn thread's part: observations reach the index in batches, late, and are published.

use std::collections::BTreeMap;

use index::{BackendId, Observation, SequenceHash};

use crate::shadow::Checked;
use crate::world::{Plant, World};

/// Chains looked up after an ordinary publication.
const LOOKUPS: usize = 3;

impl World<'_> {
    /// One turn of the learn thread, if it is due.
    pub(crate) fn learn(&mut self) -> Checked {
        if self.now_us < self.learn_us {
            return Ok(());
        }
        self.learn_us = self.now_us + self.rng.u64(1_000..30_000);
        let mut stored = BTreeMap::new();
        let mut took_back = false;
        // It may be interrupted anywhere in its queue.
        let batch = self.rng.usize(0..=self.notes.len());
        for note in self.notes.drain(..batch).collect::<Vec<_>>() {
            took_back |= matches!(note, Observation::Cleared { .. } | Observation::Removed { .. });
            remember(&mut stored, &note);
            self.shadow.told(&note);
            if !self.is_lost(&note) {
                self.writer.apply(note);
            }
        }
        self.counts.published += u64::from(self.writer.publish(self.now()));
        self.check_published(&stored, took_back)
    }

    /// Violations that begin with something the index is not told.
    fn is_lost(&mut self, note: &Observation) -> bool {
        let planted = match note {
            Observation::Cleared { .. } => Plant::ForgottenClear,
            Observation::Budget { .. } => Plant::IgnoredBudget,
            Observation::Stored { .. } if self.rng.u32(0..5) == 0 => Plant::LostNotes,
            _ => return false,
        };
        self.planted(planted)
    }

    /// What can be seen in the new snapshot is what it was told: everybody's prompts after evidence was taken back,
    /// some at other times.
    fn check_published(
        &mut self,
        stored: &BTreeMap<BackendId, Vec<SequenceHash>>,
        everything: bool,
    ) -> Checked {
        let count = self.conversations.len();
        let looked_up: Vec<usize> = match everything {
            true => (0..count).collect(),
            false => (0..LOOKUPS.min(count)).map(|_| self.rng.usize(0..count)).collect(),
        };
        let snapshot = self.shards[0].reader.load();
        for at in looked_up {
            self.shadow.check_evidence(snapshot, &self.conversations[at].chain)?;
        }
        for (id, chain) in stored {
            self.shadow.check_evidence(snapshot, chain)?;
            self.shadow.check_stored(snapshot, &self.writer, *id, chain)?;
        }
        Ok(())
    }
}

/// Keeps what a batch stored last on each backend, and did not take back.
fn remember(stored: &mut BTreeMap<BackendId, Vec<SequenceHash>>, note: &Observation) {
    match note {
        Observation::Stored { backend, blocks, .. } => {
            stored.insert(*backend, blocks.clone());
        }
        Observation::Cached { .. } => {}
        Observation::Reported { backend, .. }
        | Observation::Cleared { backend }
        | Observation::Removed { backend }
        | Observation::Budget { backend, .. } => {
            stored.remove(backend);
        }
    }
}
