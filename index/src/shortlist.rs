//! Whom to look at when a pool is too large to look at everybody: who holds the deepest evidence, where the conversation
//! lives, and the least busy. It reads marks and bitmaps, 64 backends a step; what it proposes is then looked at exactly.
//!
//! What is lost against looking at everybody: among backends that hold equally little and are marked equally busy (idle,
//! no prefill pending, a little, a lot), only a sample is compared, drawn evenly. Nothing is lost of who holds a part of
//! the prompt few others hold, of the home, and of the counts.

use crate::limits::{
    SHORTLIST_CALM_MAX, SHORTLIST_DEEP_MAX, SHORTLIST_LINE_MAX, SHORTLIST_WIDE_MAX,
};
use crate::rendezvous::First;
use crate::roster::{Mark, Marks, Roster};
use crate::{Ask, BackendId, Overlaps};

/// How a policy wants a large pool looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Who holds the prompt, and who is least busy.
    Fit,
    /// An even sample, and those that follow this one.
    Even(BackendId),
    /// The first in this key's line, and an even sample to tell the mean load by.
    Line(u64),
}

/// How many follow the last one in an even sample.
const FOLLOWERS: usize = 4;

/// Counts over a whole pool, from the marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) excluded: u32,
    pub(crate) disabled: u32,
    pub(crate) unhealthy: u32,
    pub(crate) breaker_open: u32,
    pub(crate) busy_requests: u32,
    pub(crate) busy_tokens: u32,
    /// Those that take requests, full ones included.
    pub(crate) admissible: u32,
    /// Of these, those with prefill work pending.
    pub(crate) pending: u32,
}

/// Degrees of being busy: idle, no prefill pending, little pending, any.
const TIERS: usize = 4;

/// Scratch: bitmaps over the pool.
#[derive(Debug, Default)]
pub(crate) struct Shortlist {
    /// With room, by how busy they are at most.
    tiers: [Vec<u64>; TIERS],
    /// Of the pool, those without room or not admitted.
    closed: Vec<u64>,
    chosen: Vec<u64>,
    deep: Vec<(std::cmp::Reverse<u32>, usize, u64, BackendId)>,
    pub(crate) tally: Tally,
}

impl Shortlist {
    /// Chooses whom to look at.
    pub(crate) fn choose(
        &mut self,
        roster: &Roster,
        ask: &Ask<'_>,
        overlaps: &Overlaps,
        interest: Interest,
    ) {
        self.read(roster, ask);
        match interest {
            Interest::Fit => {
                self.choose_deep(overlaps, ask.random);
                self.choose_wide(overlaps, ask.random);
                self.choose_calm(None, SHORTLIST_CALM_MAX, ask.random);
            }
            Interest::Even(last) => {
                let whole = SHORTLIST_DEEP_MAX + SHORTLIST_WIDE_MAX + SHORTLIST_CALM_MAX;
                self.choose_following(last);
                self.choose_among(TIERS - 1, None, whole, ask.random);
            }
            Interest::Line(key) => {
                self.choose_first(key);
                self.choose_among(TIERS - 1, None, SHORTLIST_CALM_MAX, ask.random);
            }
        }
    }

    /// Those chosen, lowest id first.
    pub(crate) fn chosen(&self) -> impl Iterator<Item = BackendId> + '_ {
        ids(&self.chosen)
    }

    /// Those of the pool that cannot take the request, lowest id first.
    pub(crate) fn closed(&self) -> impl Iterator<Item = BackendId> + '_ {
        ids(&self.closed)
    }

    /// Reads the marks of the whole pool, each once.
    fn read(&mut self, roster: &Roster, ask: &Ask<'_>) {
        let words = ask.pool.words().len();
        let Self { tiers, closed, chosen, tally, .. } = self;
        tiers.iter_mut().chain([&mut *closed, &mut *chosen]).for_each(|bitmap| {
            bitmap.clear();
            bitmap.resize(words, 0);
        });
        *tally = Tally::default();
        for (at, &pool) in ask.pool.words().iter().enumerate() {
            let excluded = ask.excluded.words().get(at).copied().unwrap_or(0);
            let marks = roster.marks(at);
            let open = tally.count(pool, excluded, &marks);
            closed[at] = pool & !open;
            let calmer = [Mark::Running, Mark::Prefilling, Mark::Heavy].map(|mark| !marks.of(mark));
            for (tier, calm) in tiers.iter_mut().zip(calmer.into_iter().chain([u64::MAX])) {
                tier[at] = open & calm;
            }
        }
    }

    /// The deepest of those whose depth was found one by one; of equals the calmer ones.
    fn choose_deep(&mut self, overlaps: &Overlaps, random: u64) {
        let mut deep = std::mem::take(&mut self.deep);
        deep.clear();
        let open = overlaps.single().iter().filter_map(|&id| {
            let lot = crate::fingerprint::mix(random ^ u64::from(id.0));
            Some((std::cmp::Reverse(overlaps.depth(id)), self.tier(id)?, lot, id))
        });
        deep.extend(open);
        if deep.len() > SHORTLIST_DEEP_MAX {
            deep.select_nth_unstable(SHORTLIST_DEEP_MAX);
            deep.truncate(SHORTLIST_DEEP_MAX);
        }
        deep.iter().for_each(|&(_, _, _, id)| self.choose_one(id));
        self.deep = deep;
    }

    /// The calmest of those that share a depth with many, from the deepest.
    fn choose_wide(&mut self, overlaps: &Overlaps, random: u64) {
        let mut wanted = SHORTLIST_WIDE_MAX;
        for bitmap in overlaps.wide() {
            wanted -= self.choose_calm(Some(bitmap), wanted, random);
            if wanted == 0 {
                return;
            }
        }
    }

    /// The calmest, of everybody or within a bitmap. Returns how many.
    fn choose_calm(&mut self, within: Option<&[u64]>, wanted: usize, random: u64) -> usize {
        let mut found = 0;
        for tier in 0..TIERS {
            if found < wanted {
                found += self.choose_among(tier, within, wanted - found, random);
            }
        }
        found
    }

    /// An even sample of those of a tier (within a bitmap) that are not chosen yet. Returns how many.
    fn choose_among(
        &mut self,
        tier: usize,
        within: Option<&[u64]>,
        wanted: usize,
        random: u64,
    ) -> usize {
        let Self { tiers, chosen, .. } = self;
        let bits = |at: usize, taken: u64| {
            let within = within.map_or(u64::MAX, |words| words.get(at).copied().unwrap_or(0));
            tiers[tier][at] & within & !taken
        };
        let all = (0..chosen.len()).map(|at| bits(at, chosen[at]).count_ones() as usize).sum();
        let mut sample = Sample::new(all, wanted, random);
        for (at, chosen) in chosen.iter_mut().enumerate() {
            *chosen |= sample.of(bits(at, *chosen));
        }
        wanted.min(all)
    }

    /// The first few with room after `last`, around the end of the range.
    fn choose_following(&mut self, last: BackendId) {
        let open = &self.tiers[TIERS - 1];
        let after = |id: &BackendId| id.0 > last.0;
        let behind = ids_from(open, last.index() / 64).filter(after);
        let around = ids(open).filter(|id| !after(id));
        let mut found = [None; FOLLOWERS];
        found.iter_mut().zip(behind.chain(around)).for_each(|(slot, id)| *slot = Some(id));
        found.into_iter().flatten().for_each(|id| self.choose_one(id));
    }

    /// The first with room in a key's line.
    fn choose_first(&mut self, key: u64) {
        let mut first = First::<SHORTLIST_LINE_MAX>::new(key);
        ids(&self.tiers[TIERS - 1]).for_each(|id| first.offer(id));
        first.ids().for_each(|id| self.choose_one(id));
    }

    fn choose_one(&mut self, id: BackendId) {
        if let Some(word) = self.chosen.get_mut(id.index() / 64) {
            *word |= 1 << (id.index() % 64);
        }
    }

    /// How busy one is; none without room.
    fn tier(&self, id: BackendId) -> Option<usize> {
        let (word, bit) = (id.index() / 64, 1 << (id.index() % 64));
        let is_in = |tier: &Vec<u64>| tier.get(word).is_some_and(|bits| bits & bit != 0);
        self.tiers.iter().position(is_in)
    }
}

impl Tally {
    /// Counts 64 backends and returns those with room. Each is counted once, by the first reason that rules it out.
    fn count(&mut self, pool: u64, excluded: u64, marks: &Marks) -> u64 {
        let mut left = pool;
        let mut rule_out = |sum: &mut u32, bits: u64| {
            *sum += (left & bits).count_ones();
            left &= !bits;
            left
        };
        rule_out(&mut self.excluded, excluded);
        rule_out(&mut self.disabled, marks.of(Mark::Disabled));
        rule_out(&mut self.unhealthy, marks.of(Mark::Unhealthy));
        let admitted = rule_out(&mut self.breaker_open, marks.of(Mark::BreakerOpen));
        self.admissible += admitted.count_ones();
        self.pending += (admitted & marks.of(Mark::Prefilling)).count_ones();
        rule_out(&mut self.busy_requests, marks.of(Mark::FullRequests));
        rule_out(&mut self.busy_tokens, marks.of(Mark::FullTokens))
    }
}

/// Draws a number of bits out of many, evenly spaced from a random start, so that each is as likely.
struct Sample {
    /// Bits passed so far.
    passed: usize,
    drawn: usize,
    wanted: usize,
    all: usize,
    start: usize,
}

impl Sample {
    fn new(all: usize, wanted: usize, random: u64) -> Self {
        let start = crate::fingerprint::mix(random ^ all as u64) as usize % all.max(1);
        Self { passed: 0, drawn: 0, wanted: wanted.min(all), all, start }
    }

    /// The rank of the next bit to draw: a random share of the first step, then whole steps.
    fn next(&self) -> usize {
        (self.drawn * self.all + self.start) / self.wanted.max(1)
    }

    /// Those drawn of the next word.
    fn of(&mut self, bits: u64) -> u64 {
        let (first, count) = (self.passed, bits.count_ones() as usize);
        self.passed += count;
        if self.wanted == self.all {
            return bits;
        }
        let mut out = 0;
        while self.drawn < self.wanted && self.next() < self.passed {
            out |= bit_of_rank(bits, self.next() - first);
            self.drawn += 1;
        }
        out
    }
}

/// The bit with `rank` set bits below it; there must be one. Bits are counted in all bytes at once (Knuth, The Art of
/// Computer Programming 4A, 7.1.3), the byte is found by comparing with all, and the bit by taking away those below it.
fn bit_of_rank(bits: u64, rank: usize) -> u64 {
    let each = |byte: u64| byte * EACH_BYTE;
    let pairs = bits - ((bits >> 1) & each(0x55));
    let nibbles = (pairs & each(0x33)) + ((pairs >> 2) & each(0x33));
    let counts = (nibbles + (nibbles >> 4)) & each(0x0f);
    // In each byte the bits of it and of all bytes below; at most 64, so that a byte's highest bit is free.
    let sums = counts.wrapping_mul(EACH_BYTE);
    let passed = ((each(rank as u64) | each(0x80)) - sums) & each(0x80);
    let shift = ((passed >> 7).wrapping_mul(EACH_BYTE) >> 56) * 8;
    let below = ((sums << 8) >> shift) & 0xff;
    let mut byte = (bits >> shift) & 0xff;
    for _ in below..rank as u64 {
        byte &= byte - 1;
    }
    (byte & byte.wrapping_neg()) << shift
}

/// A one in each byte.
const EACH_BYTE: u64 = 0x0101_0101_0101_0101;

fn ids(bitmap: &[u64]) -> impl Iterator<Item = BackendId> + '_ {
    ids_from(bitmap, 0)
}

fn ids_from(bitmap: &[u64], word: usize) -> impl Iterator<Item = BackendId> + '_ {
    bitmap.iter().enumerate().skip(word).flat_map(|(at, &bits)| crate::set::ids_of(at, bits))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_bit_is_found_by_its_rank() {
        let mut rng = fastrand::Rng::with_seed(7);
        for bits in [u64::MAX, 1, 1 << 63, 0x8000_0000_0000_0001, rng.u64(..), rng.u64(..)] {
            let set: Vec<u64> = (0..64).map(|at| 1 << at).filter(|bit| bits & bit != 0).collect();
            for (rank, bit) in set.into_iter().enumerate() {
                assert_eq!(bit_of_rank(bits, rank), bit, "rank {rank} of {bits:x}");
            }
        }
    }

    #[test]
    fn a_sample_is_as_large_as_wanted_and_reaches_everybody_evenly() {
        let bitmap = [0xff00_ff00_0000_0001, 0, 0xffff, 0x8000_0000_0000_0000];
        let all: usize = bitmap.iter().map(|bits: &u64| bits.count_ones() as usize).sum();
        let mut drawn = [0; 256];
        for random in 0..4000 {
            let mut sample = Sample::new(all, 5, random);
            let out = bitmap.map(|bits| sample.of(bits));
            assert_eq!(ids(&out).count(), 5);
            ids(&out).for_each(|id| drawn[id.index()] += 1);
        }
        let expected = 4000 * 5 / all as u32;
        for id in ids(&bitmap) {
            let times: u32 = drawn[id.index()];
            assert!(times.abs_diff(expected) < expected / 4, "{id}: {times} of {expected}");
        }
    }

    #[test]
    fn nobody_and_fewer_than_wanted_are_samples_too() {
        assert_eq!(Sample::new(0, 5, 3).of(0), 0);
        assert_eq!(Sample::new(3, 5, 3).of(0b1011), 0b1011);
        assert_eq!(Sample::new(3, 0, 3).of(0b1011), 0);
    }
}
