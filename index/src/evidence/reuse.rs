//! How much else a backend was given between two uses of one block: the block's reuse distance. An engine that forgets
//! the least recently used has a block exactly when its distance is below what the engine can hold, so distances beside
//! what the engine says it had cached tell its capacity, also beyond what is believed of it.
//!
//! # How
//! Keeping every block in its order of use would cost as much as the evidence itself. So one in 2^n blocks is followed,
//! chosen by its hash and therefore the same ones on every use; distances counted among them, times 2^n, are unbiased
//! (spatial sampling: Waldspurger et al., FAST 2015). The order is a plain list of tags, oldest first, which one pass
//! over a few kilobytes keeps in order: measured against an order tree it is smaller and not slower at this size. It
//! never looks at a clock, and never holds more than [`REUSE_SAMPLES_MAX`] entries.

use crate::SequenceHash;
use crate::limits::{REUSE_SAMPLES_ASSUMED, REUSE_SAMPLES_MAX};

/// A block had not been used before, or its distance has been told already.
const UNKNOWN: u16 = u16::MAX;

/// The sampled blocks of one backend in their order of use.
#[derive(Clone, Debug, Default)]
pub(super) struct Reuse {
    /// One in 2^shift blocks is followed.
    shift: u32,
    /// Which blocks, least recently used first.
    tags: Vec<u32>,
    /// Of each, how its last use went.
    uses: Vec<Use>,
}

/// The last use of a block.
#[derive(Clone, Copy, Debug)]
struct Use {
    /// Which use, by the low bits of its time.
    stamp: u16,
    /// Sampled blocks used since the use before.
    distance: u16,
}

const _: () = assert!(size_of::<Use>() == 4 && REUSE_SAMPLES_MAX < UNKNOWN as usize);

impl Reuse {
    /// Follows as many blocks as suits a backend of this assumed capacity.
    pub(super) fn new(assumed_blocks: u64) -> Self {
        let most = (assumed_blocks / REUSE_SAMPLES_ASSUMED).max(1);
        Self { shift: most.ilog2(), tags: Vec::new(), uses: Vec::new() }
    }

    /// Begins anew if too few of the followed blocks stand for what the backend was found to hold, or if that much is more
    /// than is followed.
    pub(super) fn suit(&mut self, found_blocks: u64) {
        let samples = found_blocks >> self.shift;
        let few = self.shift > 0 && samples < REUSE_SAMPLES_ASSUMED / 4 * 3;
        if few || samples > REUSE_SAMPLES_MAX as u64 {
            *self = Self::new(found_blocks);
        }
    }

    /// A prompt is used as a whole: its distances are taken first, then its blocks become the most recent ones, the first
    /// of them last of all.
    pub(super) fn note(&mut self, blocks: &[SequenceHash], stamp: u16) {
        let (start, shift) = (self.tags.len(), self.shift);
        for tag in blocks.iter().filter_map(|&hash| sampled(hash, shift)) {
            let known = self.tags[..start].iter().rposition(|&other| other == tag);
            let distance = known.map_or(UNKNOWN, |place| (start - 1 - place) as u16);
            self.tags.push(tag);
            self.uses.push(Use { stamp, distance });
        }
        if self.tags.len() == start {
            return;
        }
        self.take_out_older(start);
        self.keep_bound();
    }

    /// Takes out the older entries of what was used again, and turns the newest ones round: the deepest is the oldest.
    fn take_out_older(&mut self, start: usize) {
        let mut gone: Vec<usize> = self.uses[start..]
            .iter()
            .filter(|used| used.distance != UNKNOWN)
            .map(|used| start - 1 - usize::from(used.distance))
            .collect();
        self.tags[start..].reverse();
        self.uses[start..].reverse();
        gone.sort_unstable();
        gone.dedup();
        let Some(&first) = gone.first() else { return };
        let (mut kept, mut gone) = (first, gone.into_iter().peekable());
        for at in first..self.tags.len() {
            if gone.next_if_eq(&at).is_none() {
                self.tags[kept] = self.tags[at];
                self.uses[kept] = self.uses[at];
                kept += 1;
            }
        }
        self.tags.truncate(kept);
        self.uses.truncate(kept);
    }

    fn keep_bound(&mut self) {
        let over = self.tags.len().saturating_sub(REUSE_SAMPLES_MAX);
        self.tags.drain(..over);
        self.uses.drain(..over);
    }

    /// Calls `each` with the place in the prompt and the distance, in blocks, of every followed block whose last use was
    /// the one with this stamp. Each is told once.
    pub(super) fn tell(
        &mut self,
        blocks: &[SequenceHash],
        stamp: u16,
        mut each: impl FnMut(usize, u64),
    ) {
        for (place, &hash) in blocks.iter().enumerate() {
            let Some(tag) = sampled(hash, self.shift) else { continue };
            let Some(at) = self.tags.iter().rposition(|&other| other == tag) else { continue };
            let used = &mut self.uses[at];
            if used.stamp == stamp && used.distance != UNKNOWN {
                each(place, u64::from(used.distance) << self.shift);
                used.distance = UNKNOWN;
            }
        }
    }

    pub(super) fn check_invariants(&self) -> Result<(), String> {
        let (tags, uses) = (self.tags.len(), self.uses.len());
        if tags != uses || tags > REUSE_SAMPLES_MAX {
            return Err(format!("rule 16: {tags} tags and {uses} uses are followed"));
        }
        let distinct = self.tags.iter().collect::<std::collections::BTreeSet<_>>().len();
        // Tags are half a hash: two blocks may share one.
        match distinct + 2 < tags {
            true => Err(format!("rule 16: {distinct} blocks are followed as {tags}")),
            false => Ok(()),
        }
    }

    /// Nothing was ever used.
    pub(super) fn forget(&mut self) {
        self.tags.clear();
        self.uses.clear();
    }
}

/// The tag of a block, if it is one of one in 2^shift.
fn sampled(hash: SequenceHash, shift: u32) -> Option<u32> {
    let low = (1_u64 << shift) - 1;
    (hash.0 & low == 0).then_some((hash.0 >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u64) -> SequenceHash {
        SequenceHash(number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29))
    }

    /// What it is a sample of: every block in its order of use.
    #[derive(Default)]
    struct Naive(Vec<SequenceHash>);

    impl Naive {
        fn note(&mut self, blocks: &[SequenceHash]) -> Vec<Option<usize>> {
            let place = |hash| self.0.iter().rposition(|other| other == hash);
            let distances = blocks.iter().map(|hash| place(hash).map(|at| self.0.len() - 1 - at));
            let distances = distances.collect();
            self.0.retain(|hash| !blocks.contains(hash));
            self.0.extend(blocks.iter().rev());
            distances
        }
    }

    fn told(reuse: &mut Reuse, blocks: &[SequenceHash], stamp: u16) -> Vec<(usize, u64)> {
        let mut told = Vec::new();
        reuse.tell(blocks, stamp, |place, distance| told.push((place, distance)));
        told
    }

    fn prompt(rng: &mut fastrand::Rng, of: u64) -> Vec<SequenceHash> {
        let conversation = rng.u64(..of) * 1000;
        (0..rng.u64(1..40)).map(|block| hash(conversation + block)).collect()
    }

    #[test]
    fn where_every_block_is_followed_distances_are_exact() {
        let mut rng = fastrand::Rng::with_seed(3);
        let (mut reuse, mut naive) = (Reuse::new(1), Naive::default());
        for stamp in 0..500 {
            let blocks = prompt(&mut rng, 30);
            let expected = naive.note(&blocks);
            reuse.note(&blocks, stamp);
            reuse.check_invariants().unwrap();
            let told = told(&mut reuse, &blocks, stamp);
            let known = expected.iter().enumerate();
            let known: Vec<_> = known.filter_map(|(at, far)| Some((at, (*far)? as u64))).collect();
            assert_eq!(told, known);
        }
    }

    #[test]
    fn a_sample_tells_distances_that_are_right_on_average() {
        let mut rng = fastrand::Rng::with_seed(4);
        let (mut reuse, mut naive) = (Reuse::new(REUSE_SAMPLES_ASSUMED * 8), Naive::default());
        let (mut sum, mut expected_sum) = (0.0, 0.0);
        for stamp in 0..4_000 {
            let blocks = prompt(&mut rng, 400);
            let expected = naive.note(&blocks);
            reuse.note(&blocks, stamp);
            for (place, distance) in told(&mut reuse, &blocks, stamp) {
                sum += distance as f64;
                expected_sum += expected[place].map_or(0.0, |distance| distance as f64);
            }
        }
        let ratio = sum / expected_sum;
        assert!(expected_sum > 0.0 && (0.9..1.1).contains(&ratio), "{ratio}");
    }

    #[test]
    fn each_use_is_told_once_and_only_to_the_prompt_it_was() {
        let mut reuse = Reuse::new(1);
        let blocks = [hash(1), hash(2)];
        reuse.note(&blocks, 1);
        assert_eq!(told(&mut reuse, &blocks, 1), []);
        reuse.note(&blocks, 2);
        assert_eq!(told(&mut reuse, &blocks, 1), []);
        assert_eq!(told(&mut reuse, &blocks, 2), [(0, 0), (1, 1)]);
        assert_eq!(told(&mut reuse, &blocks, 2), []);
        reuse.note(&blocks, 3);
        reuse.forget();
        assert_eq!(told(&mut reuse, &blocks, 3), []);
    }

    #[test]
    fn of_a_capacity_found_smaller_no_fewer_blocks_are_followed_than_of_one_assumed_right() {
        let assumed = 64 * REUSE_SAMPLES_ASSUMED;
        for found in
            [assumed * 8, assumed * 2, assumed, assumed * 3 / 4, assumed / 2, assumed / 8, 1]
        {
            let mut reuse = Reuse::new(assumed);
            reuse.suit(found);
            let samples = found >> reuse.shift;
            let enough = samples >= REUSE_SAMPLES_ASSUMED / 4 * 3 || reuse.shift == 0;
            assert!(enough && samples <= REUSE_SAMPLES_MAX as u64, "{found}: {samples}");
        }
    }

    #[test]
    fn what_is_followed_is_kept_while_the_capacity_found_wavers() {
        let mut reuse = Reuse::new(64 * REUSE_SAMPLES_ASSUMED);
        let blocks: Vec<_> = (0..4_000).map(hash).collect();
        reuse.note(&blocks, 1);
        let followed = reuse.tags.len();
        for found in [80, 64, 63, 50, 200, 400] {
            reuse.suit(found * REUSE_SAMPLES_ASSUMED);
            assert_eq!((reuse.tags.len(), followed > 0), (followed, true));
        }
        reuse.suit(30 * REUSE_SAMPLES_ASSUMED);
        assert_eq!(reuse.tags.len(), 0);
    }

    #[test]
    fn however_much_is_used_no_more_than_the_bound_is_kept() {
        let mut reuse = Reuse::new(1);
        for from in 0..20 {
            let blocks: Vec<_> = (from * 300..from * 300 + 500).map(hash).collect();
            reuse.note(&blocks, 0);
            reuse.check_invariants().unwrap();
        }
        assert_eq!(reuse.tags.len(), REUSE_SAMPLES_MAX);
    }
}
