//! How many of the conversations that live on a backend are about to come back. Most of those pinned there are over, and
//! nobody says goodbye: the longer one has been silent, the less it is expected. So each counts `exp(-silence / gap)`,
//! where the gap is the mean silence of those that did come back, learned from all. Sums of such terms fade together,
//! which is why one word a backend is enough. It promises nothing about any one conversation.
//!
//! # Orderings
//! Gauges that publish nothing: Relaxed everywhere. Sums are changed by exchange, so no change is lost.

use crate::Millis;
use crate::sync::{AtomicU64, Ordering};

/// The sum of one backend: its value as a 32-bit float << 32 | the time it held, in ms, of which the low half is kept.
#[derive(Debug)]
pub(crate) struct Due(AtomicU64);

impl Due {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The sum at this time, where a silence is `gap_ms` long on average.
    pub(crate) fn at(&self, now: Millis, gap_ms: f32) -> f32 {
        // Relaxed: a gauge.
        faded(self.0.load(Ordering::Relaxed), now, gap_ms)
    }

    /// A conversation spoke here.
    pub(crate) fn add(&self, now: Millis, gap_ms: f32) {
        self.change(now, gap_ms, 1.0);
    }

    /// One that spoke here `age_ms` ago no longer lives here, or speaks again.
    pub(crate) fn sub(&self, now: Millis, gap_ms: f32, age_ms: f32) {
        self.change(now, gap_ms, -fade(age_ms, gap_ms));
    }

    fn change(&self, now: Millis, gap_ms: f32, by: f32) {
        let changed = |word| {
            // Ages are whole seconds, so what is taken out may be a little more than what is left of it.
            let value = (faded(word, now, gap_ms) + by).max(0.0);
            Some(u64::from(value.to_bits()) << 32 | u64::from(now.0 as u32))
        };
        // Relaxed: a gauge. It never fails, as the closure always gives a word.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, changed);
    }
}

/// Threads read the clock apart by less than this.
const CLOCK_SKEW_MS: u32 = 60_000;

fn faded(word: u64, now: Millis, gap_ms: f32) -> f32 {
    let value = f32::from_bits((word >> 32) as u32);
    let age = (now.0 as u32).wrapping_sub(word as u32);
    // What was written a little later than now is new.
    let age = if age > u32::MAX - CLOCK_SKEW_MS { 0 } else { age };
    if value == 0.0 { 0.0 } else { value * fade(age as f32, gap_ms) }
}

fn fade(age_ms: f32, gap_ms: f32) -> f32 {
    (-age_ms / gap_ms).exp()
}

/// The mean silence of conversations that came back, of the whole fleet: how many << 32 | their seconds together.
#[derive(Debug)]
pub(crate) struct Gaps(AtomicU64);

/// Returns remembered: silences differ a thousandfold, and the mean of fewer would follow single ones.
const GAPS_MAX: u64 = 512;

impl Gaps {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// A conversation came back after this many seconds.
    pub(crate) fn add(&self, seconds: u64) {
        let added = |sums: u64| {
            let (mut count, mut sum) = (sums >> 32, sums & HALF);
            if count >= GAPS_MAX {
                (count, sum) = (count - 1, sum - sum / GAPS_MAX);
            }
            // Seconds are bounded by the longest idle time, so 512 of them fit half a word.
            Some((count + 1) << 32 | (sum + seconds).min(HALF))
        };
        // Relaxed: a hint. It never fails, as the closure always gives a word.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, added);
    }

    /// Their mean in ms, at least a second; `unknown_ms` while none came back.
    pub(crate) fn mean_ms(&self, unknown_ms: f32) -> f32 {
        // Relaxed: a hint.
        let sums = self.0.load(Ordering::Relaxed);
        let (count, sum) = ((sums >> 32) as f32, (sums & HALF) as f32);
        if count > 0.0 { (1000.0 * sum / count).max(1000.0) } else { unknown_ms }
    }
}

const HALF: u64 = u32::MAX as u64;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const GAP_MS: f32 = 10_000.0;

    fn near(value: f32, expected: f32) {
        assert!((value - expected).abs() < 0.01, "{value}, not {expected}");
    }

    #[test]
    fn who_speaks_counts_whole_and_fades_with_its_silence() {
        let due = Due::new();
        near(due.at(Millis(5), GAP_MS), 0.0);
        due.add(Millis(1_000), GAP_MS);
        near(due.at(Millis(1_000), GAP_MS), 1.0);
        near(due.at(Millis(11_000), GAP_MS), 0.368);
        due.add(Millis(11_000), GAP_MS);
        near(due.at(Millis(11_000), GAP_MS), 1.368);
        near(due.at(Millis(1_000_000), GAP_MS), 0.0);
    }

    #[test]
    fn who_leaves_takes_out_what_is_left_of_it_and_never_more_than_all() {
        let due = Due::new();
        due.add(Millis(0), GAP_MS);
        due.add(Millis(8_000), GAP_MS);
        due.sub(Millis(10_000), GAP_MS, 10_000.0);
        near(due.at(Millis(10_000), GAP_MS), 0.819);
        due.sub(Millis(10_000), GAP_MS, 1_000.0);
        near(due.at(Millis(10_000), GAP_MS), 0.0);
    }

    #[test]
    fn a_clock_slightly_behind_and_one_that_wrapped_are_no_silence() {
        let due = Due::new();
        due.add(Millis(9_000), GAP_MS);
        near(due.at(Millis(7_000), GAP_MS), 1.0);
        let (due, wrap) = (Due::new(), u64::from(u32::MAX) + 1);
        due.add(Millis(wrap - 5_000), GAP_MS);
        near(due.at(Millis(wrap + 5_000), GAP_MS), 0.368);
    }

    #[test]
    fn the_mean_gap_is_that_of_all_who_came_back_and_follows_a_change() {
        let gaps = Gaps::new();
        assert_eq!(gaps.mean_ms(77.0), 77.0, "none came back yet");
        gaps.add(0);
        assert_eq!(gaps.mean_ms(77.0), 1_000.0, "never below a second");
        gaps.add(40);
        assert_eq!(gaps.mean_ms(77.0), 20_000.0);
        (0..5_000).for_each(|_| gaps.add(100));
        assert!((99_000.0..101_000.0).contains(&gaps.mean_ms(77.0)), "{}", gaps.mean_ms(77.0));
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::thread;

    use super::*;
    use crate::sync::{Arc, model};

    #[test]
    fn no_return_is_lost_when_two_come_back_at_once() {
        model(|| {
            let gaps = Arc::new(Gaps::new());
            let other = {
                let gaps = Arc::clone(&gaps);
                thread::spawn(move || gaps.add(10))
            };
            gaps.add(30);
            other.join().unwrap();
            assert_eq!(gaps.0.load(Ordering::Relaxed), 2 << 32 | 40);
        });
    }
}
