//! Predict on route: what was just routed, before the writer has published it. A burst of siblings (one prompt's
//! prefix, many tails, within a millisecond) would otherwise scatter. A fixed table of single words; entries expire by
//! themselves and are hints, corrected by the next snapshot. It never allocates and never waits.
//!
//! Recording every block would cost the prompt's length, so depths are recorded on rungs, two an octave (1, 2, 3, 4, 6,
//! 8, 12, ...), and at the prompt's end: at most 29 entries, and a sibling sees at least two thirds of what it shares.
//!
//! # Orderings
//! An entry is one word and publishes nothing else; a lost race costs one hint. Relaxed everywhere.

use crate::limits::{PROMPT_BLOCKS_MAX, RECENT_ENTRIES, RECENT_MS, RECENT_WAYS};
use crate::sync::{AtomicU64, Ordering};
use crate::{BackendId, Millis, Overlaps, SequenceHash};

/// Routes too recent to be in a snapshot.
#[derive(Debug)]
pub struct RecentRoutes {
    entries: Box<[AtomicU64]>,
    /// When anything was last recorded: lets a quiet proxy skip the table.
    newest_ms: AtomicU64,
}

impl RecentRoutes {
    pub(crate) fn new() -> Self {
        Self {
            entries: (0..RECENT_ENTRIES).map(|_| AtomicU64::new(0)).collect(),
            newest_ms: AtomicU64::new(NEVER),
        }
    }

    /// `backend` was just given a prompt of these blocks. Depths up to `known` are already published for it.
    pub fn record(&self, blocks: &[SequenceHash], known: u32, backend: BackendId, now: Millis) {
        let blocks = &blocks[..blocks.len().min(PROMPT_BLOCKS_MAX)];
        for depth in rungs(blocks.len()).take_while(|&depth| depth > known as usize) {
            self.record_one(blocks[depth - 1], backend, now);
        }
        // Relaxed: a hint. Written only when it changes, so that the line stays shared.
        if self.newest_ms.load(Ordering::Relaxed) != now.0 {
            // Relaxed: as above.
            self.newest_ms.store(now.0, Ordering::Relaxed);
        }
    }

    /// Deepens `overlaps` by what was routed within the last moments.
    pub fn overlay(&self, blocks: &[SequenceHash], now: Millis, overlaps: &mut Overlaps) {
        // Relaxed: a hint.
        let newest = self.newest_ms.load(Ordering::Relaxed);
        if newest == NEVER || now.since(Millis(newest)) > RECENT_MS {
            return;
        }
        let blocks = &blocks[..blocks.len().min(PROMPT_BLOCKS_MAX)];
        for depth in rungs(blocks.len()) {
            let hash = blocks[depth - 1];
            // Relaxed: the word is the whole entry.
            let words = set_of(&self.entries, hash).iter().map(|e| e.load(Ordering::Relaxed));
            for route in words.filter_map(Route::unpack).filter(|r| r.is(hash) && r.fresh(now)) {
                overlaps.deepen(route.backend, depth as u32);
            }
        }
    }

    fn record_one(&self, hash: SequenceHash, backend: BackendId, now: Millis) {
        let set = set_of(&self.entries, hash);
        let route = Route { tag: tag(hash), backend, tick: tick(now) };
        let mut oldest = (&set[0], 0);
        for entry in set {
            // Relaxed: the word is the whole entry.
            let age = match Route::unpack(entry.load(Ordering::Relaxed)) {
                Some(old) if old.is(hash) && old.backend == backend => u32::MAX,
                Some(old) => u32::from(old.age_ticks(now)),
                None => u32::from(u16::MAX) + 1,
            };
            if age >= oldest.1 {
                oldest = (entry, age);
            }
        }
        // Relaxed: a lost race costs one hint.
        oldest.0.store(route.pack(), Ordering::Relaxed);
    }
}

const NEVER: u64 = u64::MAX;

/// Recorded depths of a prompt of `len` blocks, deepest first: its end, then powers of two and halfway between them.
fn rungs(len: usize) -> impl Iterator<Item = usize> {
    std::iter::successors((len > 0).then_some(len), move |&depth| {
        let next = if depth == len { highest_rung_below(len) } else { next_rung(depth) };
        (next > 0).then_some(next)
    })
}

/// The highest of 1, 2, 3, 4, 6, 8, 12, ... below `len`; 0 when there is none.
fn highest_rung_below(len: usize) -> usize {
    let Some(octave) = len.checked_sub(1).and_then(usize::checked_ilog2) else { return 0 };
    let (power, halfway) = (1 << octave, (1 << octave) + (1 << octave) / 2);
    if halfway < len { halfway } else { power }
}

/// The rung below one: three quarters of a power of two, two thirds of one halfway; 0 below 1.
fn next_rung(rung: usize) -> usize {
    if rung.is_power_of_two() { rung / 4 * 3 + rung % 4 / 2 } else { rung / 3 * 2 }
}

/// One entry. Word: bits 0..16 tick, 16..32 backend, 32..64 tag; a tag is never 0, so an empty word is no entry.
struct Route {
    tag: u32,
    backend: BackendId,
    tick: u16,
}

impl Route {
    fn pack(&self) -> u64 {
        u64::from(self.tag) << 32 | u64::from(self.backend.0) << 16 | u64::from(self.tick)
    }

    fn unpack(word: u64) -> Option<Route> {
        let tag = (word >> 32) as u32;
        let route = Route { tag, backend: BackendId((word >> 16) as u16), tick: word as u16 };
        (tag != 0).then_some(route)
    }

    fn is(&self, hash: SequenceHash) -> bool {
        self.tag == tag(hash)
    }

    fn age_ticks(&self, now: Millis) -> u16 {
        tick(now).wrapping_sub(self.tick)
    }

    /// Young enough. A route from a clock slightly ahead is as fresh as one slightly behind.
    fn fresh(&self, now: Millis) -> bool {
        let age = self.age_ticks(now);
        u64::from(age.min(age.wrapping_neg())) <= RECENT_MS.div_ceil(TICK_MS)
    }
}

/// Times are kept in ticks of 16 ms, which wrap after 17 minutes; a stale entry that wraps is one wrong hint.
const TICK_MS: u64 = 16;

fn tick(now: Millis) -> u16 {
    (now.0 / TICK_MS) as u16
}

fn tag(hash: SequenceHash) -> u32 {
    ((hash.0 >> 32) as u32).max(1)
}

fn set_of(entries: &[AtomicU64], hash: SequenceHash) -> &[AtomicU64] {
    let start = hash.0 as usize & (RECENT_ENTRIES - 1) & !(RECENT_WAYS - 1);
    &entries[start..start + RECENT_WAYS]
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn chain(seed: u64, len: usize) -> Vec<SequenceHash> {
        let mut h = seed;
        (0..len)
            .map(|_| {
                h = crate::fingerprint::mix(h);
                SequenceHash(h)
            })
            .collect()
    }

    fn depth(r: &RecentRoutes, blocks: &[SequenceHash], now: u64, id: u16) -> u32 {
        let mut overlaps = Overlaps::new();
        r.overlay(blocks, Millis(now), &mut overlaps);
        overlaps.depth(BackendId(id))
    }

    #[test]
    fn rungs_are_two_an_octave_and_the_end() {
        assert_eq!(rungs(0).count(), 0);
        assert_eq!(rungs(1).collect::<Vec<_>>(), [1]);
        assert_eq!(rungs(13).collect::<Vec<_>>(), [13, 12, 8, 6, 4, 3, 2, 1]);
        assert_eq!(rungs(16).collect::<Vec<_>>(), [16, 12, 8, 6, 4, 3, 2, 1]);
        assert!(rungs(PROMPT_BLOCKS_MAX).count() <= 29);
    }

    #[test]
    fn a_sibling_sees_two_thirds_of_what_it_shares() {
        let r = RecentRoutes::new();
        let first = chain(1, 100);
        r.record(&first, 0, BackendId(3), Millis(1000));
        for shared in 1..100 {
            let sibling: Vec<_> = first[..shared].iter().copied().chain(chain(2, 50)).collect();
            let seen = depth(&r, &sibling, 1001, 3) as usize;
            assert!(seen <= shared && seen * 3 >= shared * 2, "{seen} of {shared}");
        }
        assert_eq!(depth(&r, &first, 1001, 3), 100);
        assert_eq!(depth(&r, &first, 1001, 4), 0);
    }

    #[test]
    fn routes_expire() {
        let r = RecentRoutes::new();
        let blocks = chain(1, 8);
        r.record(&blocks, 0, BackendId(0), Millis(1000));
        assert_eq!(depth(&r, &blocks, 1000 + RECENT_MS, 0), 8);
        r.record(&chain(9, 8), 0, BackendId(0), Millis(1000 + RECENT_MS + 2 * TICK_MS));
        assert_eq!(depth(&r, &blocks, 1000 + RECENT_MS + 2 * TICK_MS, 0), 0);
    }

    #[test]
    fn depths_already_published_are_not_recorded_again() {
        let r = RecentRoutes::new();
        let blocks = chain(1, 16);
        r.record(&blocks, 12, BackendId(0), Millis(0));
        assert_eq!(depth(&r, &blocks[..15], 0, 0), 0);
        assert_eq!(depth(&r, &blocks, 0, 0), 16);
    }

    #[test]
    fn several_backends_can_hold_one_prefix() {
        let r = RecentRoutes::new();
        let blocks = chain(1, 4);
        (0..3).for_each(|id| r.record(&blocks, 0, BackendId(id), Millis(0)));
        assert!((0..3).all(|id| depth(&r, &blocks, 0, id) == 4));
    }
}
