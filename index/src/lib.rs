//! The decision core: who plausibly holds a prompt's prefix, who has room, who gets the request.
//!
//! Pure: no clock, no socket, no log, no JSON. Time ([`Millis`]) and randomness are arguments, so that the proxy and the
//! simulators run this same code. Readers never wait and never lock: evidence is read from a published [`Snapshot`],
//! load and capacity from plain atomics in the [`Fleet`].
//!
//! A decision reads three things, and writes two:
//!
//! ```text
//! fingerprint ─▶ Snapshot::overlaps ─▶ + RecentRoutes ─▶ hard filters ─▶ Policy::score ─▶ reserve ─▶ Placed
//!                (evidence)             (not published yet)                               │ and: affinity, recent route
//! observations ─▶ IndexWriter::apply ─▶ IndexWriter::publish ─▶ next Snapshot
//! ```
//!
//! # Invariants (each has a test)
//! 1. Evidence is closed under prefixes: who holds block i of a chain holds every block before it.
//! 2. Evidence leaves from the end: the least recently used block that nothing hangs below goes first, never a root.
//! 3. No backend holds more blocks than its budget, and the fleet never more than the index's own bound.
//! 4. A slot's requests and tokens move together or not at all, never above the limit, and return to zero.
//! 5. A reader sees one whole published snapshot, old or new; only the writer frees snapshots.
//! 6. Ties are never broken by position.
//!
//! # What a reader may see
//! A snapshot may lack what was learned since it was published, so it may undercount. It names a backend for a block
//! only if an observation said so and nothing since, up to the publication, took it back; or, once in four thousand million
//! comparisons, because halves of two hashes are equal: the tree keeps no more of them.
#![forbid(unsafe_code)]

mod affinity;
mod backend;
pub mod breaker;
mod decision;
mod due;
mod evidence;
mod fingerprint;
mod fleet;
mod ids;
mod index;
mod latency;
pub mod limits;
mod line;
mod load;
mod overlaps;
mod pace;
mod pick;
mod policies;
mod policy;
pub mod publication;
mod recent;
mod rendezvous;
mod reservation;
mod roster;
mod set;
mod shortlist;
mod slots;
mod survey;
mod sync;
mod tree;
mod turn;
mod way;

pub use affinity::Affinity;
pub use backend::{Backend, Limits};
pub use decision::{Candidate, Decision, Nowhere, Placed, Reason, Refusal, RefusalCounts, Verdict};
pub use evidence::{Lost, Telling};
pub use fingerprint::{Fingerprint, FingerprintKey, Fingerprinter, conversation_key};
pub use fleet::{Fleet, FleetConfig};
pub use ids::{BackendId, ConversationKey, Millis, SequenceHash};
pub use index::{
    BackendStats, IndexConfig, IndexHandle, IndexReader, IndexStats, IndexWriter, Observation,
    Snapshot, index,
};
pub use latency::Seen;
pub use load::Load;
pub use overlaps::Overlaps;
pub use pick::{Ask, Picker};
pub use policies::PolicyKind;
pub use policy::{LoadView, Policy, Score, Terms, View};
pub use recent::RecentRoutes;
pub use reservation::{Charge, Rejected, Reservation};
pub use set::BackendSet;
pub use slots::Slots;
#[cfg(loom)]
pub use sync::model;
