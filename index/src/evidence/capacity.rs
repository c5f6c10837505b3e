//! What a backend's cache really holds, learned from what its engine reports beside how long ago the blocks were used.
//! What was configured or read from the engine is only where it starts. It knows no blocks, and no time.
//!
//! # How
//! Every followed block of a reported prompt that was used before is one vote: it was cached, or it was not, at a
//! distance of so many other blocks ([`reuse`](super::reuse)). An engine with room for K blocks has those below K and
//! lacks those above. So the capacity is where the fewest votes contradict: those cached beyond it and those missing
//! below it. That is a median of sorts: a few odd reports cannot move it, however odd. Votes are counted by distance,
//! sixteen steps an octave, and fade as newer ones come, so that an engine with other settings is known again after as
//! many votes.
//!
//! What is assumed stands until votes speak against it: those between it and the better cut, who say one or the other,
//! must differ by three standard deviations of a coin's. An engine's order of use is not quite ours, so a cut that only
//! a few votes prefer is as good as the next, and following it costs: backends alike come to be believed unlike. Less than
//! that, found by all backends together, then stands in its place.
//!
//! Where votes are few they are helped. Those of all backends together, each by its distance over what is assumed of its
//! backend, say where to begin: what is wrong with an assumption is mostly wrong with all of a fleet. A capacity found
//! larger than assumed is tried as far again, an octave at most, as long as nothing was missing there: only what is believed
//! is asked for and so voted on.
//!
//! What is learned is the room for prompts in the order of our own requests: memory taken by answers, by running requests
//! and by other users of the engine is not part of it, since no prompt of ours will be found there. An answer that the
//! engine has cached is no vote, as nothing is known of its last use.
//!
//! Bounded: never less than an eighth of what is assumed, nor more than eight times it. An engine that never reports
//! anything cached does not cache, or does not count: it leaves its backend as configured and has no vote for others.

use crate::limits::{
    CAPACITY_COUNTED_DIVISOR, CAPACITY_DEVIATIONS, CAPACITY_OCTAVES, CAPACITY_PRIOR_VOTES,
    CAPACITY_VOTES,
};

/// Steps an octave.
const STEPS: usize = 16;

/// Steps from what is assumed to the farthest that can be learned.
const BOUND: i32 = (CAPACITY_OCTAVES * STEPS) as i32;

/// Steps to the farthest distances told apart.
const REACH: i32 = BOUND + STEPS as i32;

const BUCKETS: usize = 2 * REACH as usize + 1;

/// Votes by distance.
#[derive(Clone, Debug)]
pub(super) struct Votes {
    cached: [f32; BUCKETS],
    missing: [f32; BUCKETS],
}

/// What is known of one backend's capacity.
#[derive(Clone, Debug)]
pub(super) struct Capacity {
    assumed: u64,
    votes: Votes,
    /// Steps above what is assumed.
    offset: i32,
}

impl Capacity {
    /// So many blocks are assumed, and others were found to be so many steps above what is assumed of them.
    pub(super) fn new(assumed: u64, others: i32) -> Self {
        Self { assumed, votes: Votes::default(), offset: others }
    }

    /// Whether what it knows still holds where so many blocks are assumed from now on. Nothing learned: not, unless that
    /// is what was assumed. Else the engine is taken to be the same one up to twice or half as much, since figures that
    /// follow from others (bytes a token) move a little all the time.
    pub(super) fn suits(&self, assumed: u64) -> bool {
        match self.offset {
            0 => assumed == self.assumed,
            _ => self.steps_to(assumed).abs() <= STEPS as i32,
        }
    }

    /// Follows what is assumed where that moves a little. False when it moved too far for the votes to count.
    pub(super) fn follow(&mut self, assumed: u64) -> bool {
        let near = assumed.abs_diff(self.assumed) <= self.assumed / 8;
        if near {
            self.assumed = assumed;
        }
        near
    }

    /// What is learned, in blocks.
    pub(super) fn blocks(&self) -> u64 {
        scaled(self.assumed, self.offset)
    }

    /// How many steps a distance lies above what is assumed.
    pub(super) fn steps_to(&self, distance: u64) -> i32 {
        log_steps(distance) - log_steps(self.assumed)
    }

    /// Takes a report's votes in. True when the capacity moved.
    pub(super) fn learn(&mut self, votes: &[Vote], others: i32) -> bool {
        self.votes.cast(votes, 1);
        let offset = if self.votes.are_counted() { self.votes.best(others) } else { 0 };
        std::mem::replace(&mut self.offset, offset) != offset
    }

    /// Whether its engine ever reports anything cached, as far as is remembered.
    pub(super) fn is_counted(&self) -> bool {
        self.votes.are_counted()
    }

    pub(super) fn check_invariants(&self) -> Result<(), String> {
        match (-BOUND..=BOUND).contains(&self.offset) {
            true => Ok(()),
            false => Err(format!("rule 16: a capacity is {} steps off", self.offset)),
        }
    }

    /// Trusts what was seen so far less, by this factor.
    pub(super) fn doubt(&mut self, factor: f32) {
        self.votes.fade(factor);
    }
}

/// A block last used so many steps above what is assumed was cached, or was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Vote {
    pub(super) steps: i32,
    pub(super) cached: bool,
}

impl Default for Votes {
    fn default() -> Self {
        Self { cached: [0.0; BUCKETS], missing: [0.0; BUCKETS] }
    }
}

impl Votes {
    /// Counts votes of one of so many voters, and lets the older ones fade.
    pub(super) fn cast(&mut self, votes: &[Vote], voters: usize) {
        let kept = 1.0 - 1.0 / (CAPACITY_VOTES * voters.max(1) as f32);
        self.fade(votes.iter().fold(1.0, |factor, _| factor * kept));
        for vote in votes {
            let side = if vote.cached { &mut self.cached } else { &mut self.missing };
            side[place(vote.steps.clamp(-REACH, REACH))] += 1.0;
        }
    }

    fn fade(&mut self, factor: f32) {
        self.cached.iter_mut().chain(&mut self.missing).for_each(|votes| *votes *= factor);
    }

    /// Whether enough was cached of what could have been for reports to mean anything.
    fn are_counted(&self) -> bool {
        let cached: f32 = self.cached.iter().sum();
        cached * CAPACITY_COUNTED_DIVISOR >= self.missing.iter().sum()
    }

    /// How many steps above what is assumed to believe: `likely` (none, unless known better) until votes speak against it.
    /// More than what is assumed is tried out, and so followed at once.
    pub(super) fn best(&self, likely: i32) -> i32 {
        let cut = self.cut(likely);
        match cut {
            _ if likely <= 0 && !self.speak_for(cut, likely) => likely,
            1.. => self.farther(cut),
            _ => cut,
        }
    }

    /// Whether the votes between a cut and what is believed are for the cut, and not by chance.
    fn speak_for(&self, cut: i32, believed: i32) -> bool {
        let (mut cached, mut missing) = (0.0, 0.0);
        for steps in cut.min(believed)..cut.max(believed) {
            cached += self.cached[place(steps)];
            missing += self.missing[place(steps)];
        }
        let lead = if cut < believed { missing - cached } else { cached - missing };
        lead > CAPACITY_DEVIATIONS * f32::sqrt(cached + missing)
    }

    /// The steps above what is assumed that the fewest votes contradict, `likely` unless others are worth going there.
    fn cut(&self, likely: i32) -> i32 {
        let mut against: f32 = self.cached.iter().sum();
        let (mut best, mut least) = (0, f32::INFINITY);
        for offset in -REACH..=BOUND {
            let odd = CAPACITY_PRIOR_VOTES * (offset - likely).abs() as f32 / STEPS as f32;
            if offset >= -BOUND && against + odd < least {
                (best, least) = (offset, against + odd);
            }
            against += self.missing[place(offset)] - self.cached[place(offset)];
        }
        best
    }

    /// As far again above `from`, an octave at most, as long as nothing speaks against it.
    fn farther(&self, from: i32) -> i32 {
        let mut against = 0.0;
        let most = from + from.min(STEPS as i32);
        let free = (from..most.min(BOUND)).take_while(|offset| {
            against += self.missing[place(*offset)] - self.cached[place(*offset)];
            // Half a vote: one that has faded to less is forgotten.
            against <= 0.5
        });
        from + free.count() as i32
    }
}

fn place(steps: i32) -> usize {
    (steps + REACH) as usize
}

/// Steps from 1 to a number: its logarithm, straight within an octave, so that it is the same on every machine.
fn log_steps(number: u64) -> i32 {
    let number = number.max(1);
    let octave = number.ilog2();
    let within = ((u128::from(number) * STEPS as u128) >> octave) as i32 - STEPS as i32;
    octave as i32 * STEPS as i32 + within
}

/// The number so many steps above another; at least 1.
fn scaled(number: u64, steps: i32) -> u64 {
    if steps == 0 {
        return number;
    }
    let to = (log_steps(number) + steps).max(0) as u32;
    let (octave, within) = (to / STEPS as u32, to % STEPS as u32);
    let blocks = (u128::from(STEPS as u32 + within) << octave) / STEPS as u128;
    u64::try_from(blocks).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distances from a sixteenth to four times what is assumed, as an engine of `real` blocks answers.
    fn answers(capacity: &Capacity, real: u64) -> Vec<Vote> {
        let distances = (1..=64).map(|part| capacity.assumed * part / 16);
        distances
            .map(|distance| Vote { steps: capacity.steps_to(distance), cached: distance < real })
            .collect()
    }

    fn learned(assumed: u64, real: u64, rounds: usize) -> Capacity {
        let mut capacity = Capacity::new(assumed, 0);
        for _ in 0..rounds {
            capacity.learn(&answers(&capacity, real), 0);
        }
        capacity
    }

    #[test]
    fn a_quarter_to_four_times_the_assumed_is_found() {
        for real in [1_000, 1_500, 2_000, 4_000, 6_000, 8_000, 16_000] {
            let found = learned(4_000, real, 4).blocks() as f64 / real as f64;
            assert!((0.87..=1.13).contains(&found), "{real}: {found}");
        }
    }

    #[test]
    fn what_is_assumed_stands_while_the_votes_against_it_could_be_chance() {
        let mut capacity = learned(4_000, 4_000, 4);
        let cast = |capacity: &mut Capacity, cached: usize, missing: usize| {
            let vote = |cached| Vote { steps: -8, cached };
            let votes = [vec![vote(true); cached], vec![vote(false); missing]].concat();
            capacity.learn(&votes, 0);
            capacity.blocks()
        };
        assert_eq!(cast(&mut capacity, 40, 60), 4_000);
        assert!(cast(&mut capacity, 0, 60) < 4_000);
    }

    #[test]
    fn it_is_bounded_on_both_sides_whatever_is_reported() {
        assert_eq!(learned(4_096, 300, 100).blocks(), 512);
        assert_eq!(learned(4_096, u64::MAX, 100).blocks(), 32_768);
        assert_eq!(scaled(u64::MAX, BOUND), u64::MAX);
        assert_eq!((scaled(1, -BOUND), scaled(0, BOUND)), (1, 8));
    }

    #[test]
    fn an_engine_that_never_reports_anything_cached_changes_nothing() {
        let silent = learned(4_000, 0, 100);
        assert_eq!((silent.blocks(), silent.is_counted()), (4_000, false));
    }

    #[test]
    fn a_few_odd_reports_do_not_move_it() {
        let mut capacity = learned(4_000, 4_000, 8);
        let odd = |steps, cached| [Vote { steps, cached }; 4];
        assert!(!capacity.learn(&odd(-32, false), 0) && !capacity.learn(&odd(32, true), 0));
        assert_eq!(capacity.blocks(), 4_000);
    }

    #[test]
    fn an_engine_with_other_settings_is_known_again_after_as_many_votes() {
        for (before, after) in [(2_000, 8_000), (8_000, 2_000)] {
            let mut capacity = learned(4_000, before, 200);
            let rounds = 1 + 2 * CAPACITY_VOTES as usize / 64;
            (0..rounds).for_each(|_| _ = capacity.learn(&answers(&capacity, after), 0));
            let found = capacity.blocks() as f64 / after as f64;
            assert!((0.87..=1.13).contains(&found), "{before} to {after}: {found}");
        }
    }

    #[test]
    fn what_others_were_found_to_hold_is_believed_until_votes_say_otherwise() {
        let mut capacity = Capacity::new(4_096, -32);
        assert_eq!(capacity.blocks(), 1_024);
        capacity.learn(&[Vote { steps: -40, cached: true }], -32);
        assert_eq!(capacity.blocks(), 1_024);
        (0..4).for_each(|_| _ = capacity.learn(&answers(&capacity, 4_096), -32));
        assert_eq!(capacity.steps_to(capacity.blocks()).abs().max(1), 1, "a step at most");
    }

    #[test]
    fn less_than_assumed_once_found_stands_while_the_votes_against_it_could_be_chance() {
        let mut votes = Votes::default();
        votes.cast(&[Vote { steps: -31, cached: true }; 8], 1);
        assert_eq!(votes.best(-32), -32);
        votes.cast(&[Vote { steps: -31, cached: true }; 8], 1);
        assert_eq!(votes.best(-32), -30);
    }

    #[test]
    fn steps_and_numbers_agree() {
        for number in (STEPS as u64..5_000).chain([u64::MAX >> 20, u64::MAX]) {
            assert!(scaled(1, log_steps(number)) <= number, "{number}");
            assert!(scaled(1, log_steps(number) + 1) > number || number > u64::MAX >> 1);
        }
    }

    #[test]
    fn no_cut_is_contradicted_by_fewer_votes_than_the_one_found() {
        let mut rng = fastrand::Rng::with_seed(6);
        for round in 0..300 {
            let (mut votes, likely) = (Votes::default(), rng.i32(-BOUND..=BOUND));
            let real = rng.i32(-REACH..=REACH);
            for _ in 0..rng.usize(1..400) {
                let steps = rng.i32(-REACH..=REACH);
                // One in four says anything.
                let cached = if rng.u8(..4) == 0 { rng.bool() } else { steps < real };
                votes.cast(&[Vote { steps, cached }], 1);
            }
            let against = |cut: i32| {
                let odd = f64::from(CAPACITY_PRIOR_VOTES) * f64::from((cut - likely).abs()) / 16.0;
                let each = (-REACH..=REACH).map(|steps| {
                    let side = if steps < cut { &votes.missing } else { &votes.cached };
                    f64::from(side[place(steps)])
                });
                odd + each.sum::<f64>()
            };
            let least = (-BOUND..=BOUND).map(against).fold(f64::INFINITY, f64::min);
            let found = against(votes.cut(likely));
            assert!(found <= least + 0.01, "round {round}: {found} votes and not {least}");
        }
    }
}
