//! How far a backend's engine has come with the prefill it was given. A prompt counts as pending until its first token,
//! and prompts differ a thousandfold, so the one being prefilled is on average half done: counting all of it makes busy
//! backends look twice as far from free as they are. The rate is learned from the first tokens the proxy sees anyway; no
//! engine metric and no setting is needed. It never says that an engine got further than it was given work for, and does
//! not believe in progress where nothing comes out.
//!
//! # Orderings
//! Hints that publish nothing: Relaxed everywhere. The sums are changed by exchange, so that no sample is lost and none
//! brings back what was forgotten meanwhile.

use crate::Millis;
use crate::sync::{AtomicU64, Ordering};

/// Prefill rate and progress of one backend.
#[derive(Debug)]
pub(crate) struct Pace {
    /// When it began what it is prefilling now: the last first token, or the moment it stopped being idle.
    since_ms: AtomicU64,
    /// What was prefilled and how long that took, in one word: tokens << 32 | ms. Older samples fade.
    sums: AtomicU64,
}

/// Samples remembered, as a divisor: each new one takes a 64th of the weight. The rate follows a change of batch or of
/// hardware within some dozens of requests and does not follow single ones.
const SAMPLES: u64 = 64;

/// An engine that is late by its whole pending work once more is not believed to progress: it hangs, or is stalled by
/// something the rate does not know.
const LATE: f64 = 2.0;

impl Pace {
    pub(crate) fn new() -> Self {
        Self { since_ms: AtomicU64::new(0), sums: AtomicU64::new(0) }
    }

    /// An idle engine got work.
    pub(crate) fn started(&self, now: Millis) {
        // Relaxed: a hint.
        self.since_ms.store(now.0, Ordering::Relaxed);
    }

    /// A prefill of `tokens` ended, and the next one, if there is one, begins.
    pub(crate) fn prefilled(&self, tokens: u64, now: Millis) {
        // Relaxed: a hint.
        let since = Millis(self.since_ms.swap(now.0, Ordering::Relaxed));
        let ms = now.since(since);
        let added = |sums: u64| {
            Some(add(sums >> 32, tokens, SAMPLES) << 32 | add(sums & HALF, ms, SAMPLES))
        };
        // Relaxed: a hint. It never fails, as the closure always gives a word.
        let _ = self.sums.fetch_update(Ordering::Relaxed, Ordering::Relaxed, added);
    }

    /// What is left of `pending` tokens: at least one while any are pending, and all of them until a rate is known.
    pub(crate) fn remaining(&self, pending: u64, now: Millis) -> u64 {
        // Relaxed: hints.
        let (since, sums) =
            (self.since_ms.load(Ordering::Relaxed), self.sums.load(Ordering::Relaxed));
        let (tokens, ms) = ((sums >> 32) as f64, (sums & HALF) as f64);
        if ms == 0.0 {
            return pending;
        }
        let done = tokens / ms * now.since(Millis(since)) as f64;
        if done > LATE * pending as f64 {
            return pending;
        }
        // Between 0 and twice the pending tokens, so the cast loses only a fraction of a token.
        pending.saturating_sub(done as u64).max(pending.min(1))
    }

    /// How long prefilling `tokens` takes at the rate it has shown, ms; `None` until it has shown one.
    pub(crate) fn takes_ms(&self, tokens: u64) -> Option<u64> {
        // Relaxed: a hint.
        let sums = self.sums.load(Ordering::Relaxed);
        let (done, ms) = (sums >> 32, sums & HALF);
        (done > 0).then(|| tokens.saturating_mul(ms) / done)
    }

    /// How long the rest of `pending` tokens takes at that rate, ms: nothing once they should be done. `None` until it has
    /// shown one.
    pub(crate) fn left_ms(&self, pending: u64, now: Millis) -> Option<u64> {
        Some(self.takes_ms(pending)?.saturating_sub(self.spent_ms(now)))
    }

    /// How long it has been at what it is prefilling now, ms.
    pub(crate) fn spent_ms(&self, now: Millis) -> u64 {
        // Relaxed: a hint.
        now.since(Millis(self.since_ms.load(Ordering::Relaxed)))
    }

    /// What is prefilled in so many ms at the rate it has shown; nothing until it has shown one.
    pub(crate) fn prefills_in(&self, ms: u64) -> u64 {
        // Relaxed: a hint.
        let sums = self.sums.load(Ordering::Relaxed);
        (sums >> 32).saturating_mul(ms).checked_div(sums & HALF).unwrap_or(0)
    }

    /// Another engine stands behind this id now.
    pub(crate) fn forget(&self) {
        // Relaxed: a hint. An exchange, as every change of the sums is: those have one order.
        self.sums.swap(0, Ordering::Relaxed);
    }
}

/// The lower half of a word that holds two sums.
pub(crate) const HALF: u64 = u32::MAX as u64;

/// A sum that fades by one part of so many with each sample, kept within half a word.
pub(crate) fn add(sum: u64, sample: u64, samples: u64) -> u64 {
    (sum - sum / samples).saturating_add(sample).min(HALF)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A backend that prefills 8 tokens a millisecond, busy again since 10 s.
    fn paced() -> Pace {
        let pace = Pace::new();
        pace.started(Millis(1_000));
        (1..=9).for_each(|n| pace.prefilled(8_000, Millis(1_000 + 1_000 * n)));
        pace
    }

    /// Fading sums lose a fraction of a token to whole numbers.
    fn near(left: u64, expected: u64) {
        assert!(left.abs_diff(expected) * 100 < expected, "{left}, not about {expected}");
    }

    #[test]
    fn all_is_pending_until_a_rate_is_known() {
        let pace = Pace::new();
        pace.started(Millis(0));
        assert_eq!(pace.remaining(100, Millis(50)), 100);
        pace.prefilled(100, Millis(50));
        assert_eq!(pace.remaining(100, Millis(75)), 50);
        pace.forget();
        assert_eq!(pace.remaining(100, Millis(75)), 100);
    }

    #[test]
    fn work_shrinks_at_the_learned_rate_and_leaves_one_token_until_it_is_done() {
        let pace = paced();
        assert_eq!(pace.remaining(80_000, Millis(10_000)), 80_000);
        near(pace.remaining(80_000, Millis(15_000)), 40_000);
        assert_eq!(pace.remaining(79_000, Millis(20_000)), 1);
        assert_eq!(pace.remaining(0, Millis(15_000)), 0);
    }

    #[test]
    fn how_long_work_takes_follows_from_the_rate() {
        assert_eq!(Pace::new().takes_ms(8_000), None);
        near(paced().takes_ms(80_000).unwrap(), 10_000);
        assert_eq!(paced().takes_ms(0), Some(0));
    }

    #[test]
    fn what_is_prefilled_in_a_time_follows_from_the_rate() {
        assert_eq!(Pace::new().prefills_in(1_000), 0);
        near(paced().prefills_in(10_000), 80_000);
        assert_eq!(paced().spent_ms(Millis(12_000)), 2_000);
    }

    #[test]
    fn what_should_be_done_has_no_time_left() {
        assert_eq!(Pace::new().left_ms(8_000, Millis(0)), None);
        near(paced().left_ms(80_000, Millis(12_000)).unwrap(), 8_000);
        assert_eq!(paced().left_ms(80_000, Millis(90_000)), Some(0));
    }

    #[test]
    fn an_idle_time_is_not_progress() {
        let pace = paced();
        pace.started(Millis(60_000));
        near(pace.remaining(8_000, Millis(60_500)), 4_000);
    }

    #[test]
    fn an_engine_late_by_all_its_work_again_is_not_believed() {
        let pace = paced();
        assert_eq!(pace.remaining(8_000, Millis(11_900)), 1);
        assert_eq!(pace.remaining(8_000, Millis(12_100)), 8_000);
    }

    #[test]
    fn the_rate_follows_a_change_and_never_overflows() {
        let pace = paced();
        (1..=400).for_each(|n| pace.prefilled(1_000, Millis(10_000 + 1_000 * n)));
        let left = pace.remaining(100_000, Millis(420_000));
        assert!((88_000..91_000).contains(&left), "{left}");
        (0..200).for_each(|_| pace.prefilled(u64::MAX, Millis(u64::MAX)));
        assert_eq!(pace.remaining(7, Millis(u64::MAX)), 7);
    }

    #[test]
    fn rate_and_progress_are_those_of_a_naive_twin_that_keeps_every_fraction() {
        let mut rng = fastrand::Rng::with_seed(5);
        let (pace, mut now) = (Pace::new(), 1_000);
        let (mut tokens, mut ms) = (0.0, 0.0);
        pace.started(Millis(now));
        for _ in 0..2_000 {
            let (prompt, took) = (rng.u64(100..20_000), rng.u64(10..3_000));
            now += took;
            pace.prefilled(prompt, Millis(now));
            tokens = tokens * 63.0 / 64.0 + prompt as f64;
            ms = ms * 63.0 / 64.0 + took as f64;
            let (pending, later) = (rng.u64(1_000..100_000), rng.u64(..2_000));
            near(pace.takes_ms(100_000).unwrap(), (100_000.0 * ms / tokens) as u64);
            let left = pending as f64 - later as f64 * tokens / ms;
            // Near its end, and beyond, the rest is small or the engine late: those have tests of their own.
            if left > 0.2 * pending as f64 {
                near(pace.remaining(pending, Millis(now + later)), left as u64);
            }
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::thread;

    use super::*;
    use crate::sync::{Arc, model};

    fn meanwhile(pace: &Arc<Pace>, act: impl Fn(&Pace) + 'static) -> thread::JoinHandle<()> {
        let pace = Arc::clone(pace);
        thread::spawn(move || act(&pace))
    }

    fn sums(pace: &Pace) -> (u64, u64) {
        let sums = pace.sums.load(Ordering::Relaxed);
        (sums >> 32, sums & HALF)
    }

    #[test]
    fn no_prefill_is_lost_and_no_time_is_counted_twice() {
        model(|| {
            let pace = Arc::new(Pace::new());
            let other = meanwhile(&pace, |pace| pace.prefilled(10, Millis(30)));
            pace.prefilled(20, Millis(30));
            other.join().unwrap();
            assert_eq!(sums(&pace), (30, 30));
        });
    }

    #[test]
    fn a_prefill_that_ends_meanwhile_brings_nothing_back_of_what_was_forgotten() {
        model(|| {
            let pace = Arc::new(Pace::new());
            pace.prefilled(60, Millis(60));
            let other = meanwhile(&pace, |pace| pace.prefilled(1, Millis(63)));
            pace.forget();
            other.join().unwrap();
            assert!([(0, 0), (1, 3)].contains(&sums(&pace)), "{:?}", sums(&pace));
        });
    }
}
