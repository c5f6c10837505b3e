//! Who admits, who is full, who is idle: one bit a backend and a question, so that a decision over ten thousand backends
//! looks at 64 of them a step and reads the numbers of a few. The marks are hints derived from the backends' own state,
//! which stays the truth: a mark may be late by the instant between a change and its note, never for longer.
//!
//! A fleet small enough to be looked at whole keeps no marks and pays nothing for them.
//!
//! # Why marks come to agree
//! Whoever changes a backend's state notes it afterwards: fence, read the state, write the marks that differ, and again
//! until none differs. Take the last change of all and the note that follows it. Either it sees a mark as another thread
//! left it and puts it right, or that thread writes its older view later; then that thread looks once more, and its fence
//! comes after the change, so it sees the newest state. What the loom model explores is this.
//!
//! # Orderings
//! Both sides write one word and read another, so a sequentially consistent fence stands between; the accesses themselves
//! are Relaxed, as a mark publishes nothing.

use crossbeam::utils::CachePadded;

use crate::BackendId;
use crate::limits::SCAN_BACKENDS_MAX;
use crate::sync::{AtomicU64, Ordering, fence};

/// Questions with a bit each. The order is that of the words in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Switched off, or no backend at all.
    Disabled,
    Unhealthy,
    BreakerOpen,
    /// As many requests as are allowed.
    FullRequests,
    /// No room in the token pool even for the smallest request.
    FullTokens,
    /// Requests in flight.
    Running,
    /// Prefill work pending.
    Prefilling,
    /// A lot of it ([`HEAVY_TOKENS`](crate::limits::HEAVY_TOKENS)).
    Heavy,
}

const MARKS: usize = 8;

/// The marks of 64 backends, one word a question: one cache line.
#[derive(Debug, Default)]
struct Line {
    words: [AtomicU64; MARKS],
}

/// The marks of a fleet.
#[derive(Debug)]
pub(crate) struct Roster {
    lines: Box<[CachePadded<Line>]>,
}

/// A moment's marks of 64 backends. Each word was read once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks([u64; MARKS]);

impl Marks {
    /// The backends of which this is true.
    pub(crate) fn of(&self, mark: Mark) -> u64 {
        self.0[mark as usize]
    }
}

impl Roster {
    /// Marks for `backends` backends, none set; ids beyond are disabled.
    pub(crate) fn new(backends: usize) -> Self {
        let lines = if backends > SCAN_BACKENDS_MAX { backends.div_ceil(64) } else { 0 };
        let roster = Self { lines: (0..lines).map(|_| CachePadded::default()).collect() };
        if let (Some(last), used @ 1..) = (roster.lines.last(), backends % 64) {
            // Relaxed: nobody else has the roster yet.
            last.words[Mark::Disabled as usize].store(u64::MAX << used, Ordering::Relaxed);
        }
        roster
    }

    /// Whether there are marks at all.
    pub(crate) fn is_kept(&self) -> bool {
        !self.lines.is_empty()
    }

    /// The marks of the backends whose ids begin at 64 times `word`.
    pub(crate) fn marks(&self, word: usize) -> Marks {
        let Some(line) = self.lines.get(word) else {
            let mut none = [0; MARKS];
            none[Mark::Disabled as usize] = u64::MAX;
            return Marks(none);
        };
        // Relaxed: hints; who is chosen by them is looked at itself.
        Marks(std::array::from_fn(|mark| line.words[mark].load(Ordering::Relaxed)))
    }

    /// Makes the marks of `id` what `state` says: one bit a mark, read anew each time it is asked. To be called after
    /// every change of that state.
    pub(crate) fn note(&self, id: BackendId, state: impl Fn() -> u8) {
        let Some(line) = self.lines.get(id.index() / 64) else { return };
        let bit = 1 << (id.index() % 64);
        loop {
            // SeqCst: pairs with the same fence of whoever changed the state meanwhile. One of the two sees the other's
            // write, so that the later view is written last.
            fence(Ordering::SeqCst);
            if line.adopt(bit, state()) {
                return;
            }
        }
    }

    /// Whether the marks of `id` are what `state` says.
    pub(crate) fn agrees(&self, id: BackendId, state: u8) -> bool {
        let marks = self.marks(id.index() / 64);
        let bit = 1 << (id.index() % 64);
        !self.is_kept() || (0..MARKS).all(|at| (marks.0[at] & bit != 0) == (state >> at & 1 != 0))
    }
}

impl Line {
    /// Writes the marks that differ. True when none did.
    fn adopt(&self, bit: u64, state: u8) -> bool {
        let mut same = true;
        for (at, word) in self.words.iter().enumerate() {
            let wanted = state >> at & 1 != 0;
            // Relaxed: ordered by the fence before it.
            if (word.load(Ordering::Relaxed) & bit != 0) == wanted {
                continue;
            }
            same = false;
            if wanted {
                // Relaxed: ordered by the fence that follows.
                word.fetch_or(bit, Ordering::Relaxed);
            } else {
                // Relaxed: as above.
                word.fetch_and(!bit, Ordering::Relaxed);
            }
        }
        same
    }
}

/// One bit a mark, as [`Roster::note`] takes them.
pub(crate) fn state(marks: &[(Mark, bool)]) -> u8 {
    marks.iter().fold(0, |state, &(mark, is)| state | u8::from(is) << mark as u8)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn ids_beyond_the_fleet_are_disabled() {
        let roster = Roster::new(70);
        assert_eq!(roster.marks(0).of(Mark::Disabled), 0);
        assert_eq!(roster.marks(1).of(Mark::Disabled), u64::MAX << 6);
        assert_eq!(roster.marks(2).of(Mark::Disabled), u64::MAX);
        assert_eq!(Roster::new(128).marks(1).of(Mark::Disabled), 0);
    }

    #[test]
    fn a_note_sets_and_clears_its_own_bit_only() {
        let roster = Roster::new(200);
        let busy = state(&[(Mark::Running, true), (Mark::Heavy, true), (Mark::Unhealthy, false)]);
        roster.note(BackendId(65), || busy);
        roster.note(BackendId(66), || busy);
        roster.note(BackendId(65), || 0);
        let marks = roster.marks(1);
        assert_eq!((marks.of(Mark::Running), marks.of(Mark::Heavy)), (0b100, 0b100));
        assert!(roster.agrees(BackendId(66), busy) && roster.agrees(BackendId(65), 0));
        assert!(!roster.agrees(BackendId(66), 0));
    }
}
