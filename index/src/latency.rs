//! How long a backend lets its clients wait for the first token: a moving mean of what was seen. Until a backend has
//! answered some requests nothing is known of it, and what was known long ago is no longer: who was slow once must not be
//! left alone for ever. It judges nothing, and does not tell a long prompt from a slow engine.
//!
//! # Orderings
//! One word is the whole state and publishes nothing: Relaxed everywhere. It is changed by exchange, so no sample is lost.

use crate::Millis;
use crate::limits::{LATENCY_FRESH_S, LATENCY_SAMPLES_COLD};
use crate::sync::{AtomicU64, Ordering};

/// The share of the newest sample in the mean.
const ALPHA: f32 = 0.3;

/// The mean of one backend: ms as a 32-bit float << 32 | samples (5 bits) << 27 | the second of the last one.
#[derive(Debug)]
pub(crate) struct Latency(AtomicU64);

impl Latency {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// A first token came after so long.
    pub(crate) fn add(&self, ms: u64, now: Millis) {
        let changed = |word| Some(Seen(word).with(ms as f32, now).0);
        // Relaxed: a gauge. It never fails, as the closure always gives a word.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, changed);
    }

    pub(crate) fn seen(&self) -> Seen {
        // Relaxed: a gauge.
        Seen(self.0.load(Ordering::Relaxed))
    }

    /// Another engine stands behind this id now, or the same one anew.
    pub(crate) fn forget(&self) {
        // Relaxed: a gauge. An exchange, as every change of the word is: those have one order.
        self.0.swap(0, Ordering::Relaxed);
    }
}

/// What was seen of one backend, read once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen(u64);

impl Seen {
    /// The moving mean of the time to the first token, in ms, as long as it says something: from the twentieth sample on,
    /// until a minute has passed without one.
    pub fn ms(self, now: Millis) -> Option<f32> {
        (self.samples() >= LATENCY_SAMPLES_COLD && self.is_fresh(now)).then_some(self.mean())
    }

    /// What was seen before a long silence is no part of the new mean.
    fn with(self, ms: f32, now: Millis) -> Self {
        let (samples, mean) = (self.samples(), self.mean());
        let goes_on = samples > 0 && self.is_fresh(now);
        let mean = if goes_on { mean + ALPHA * (ms - mean) } else { ms };
        let samples = (samples + 1).min(LATENCY_SAMPLES_COLD);
        let seen = samples << SECOND_BITS | second(now);
        Self(u64::from(mean.to_bits()) << 32 | u64::from(seen))
    }

    fn is_fresh(self, now: Millis) -> bool {
        let age = second(now).wrapping_sub(self.0 as u32) & SECONDS;
        // Threads read the clock apart: what was seen a little later than now was seen now.
        age <= LATENCY_FRESH_S || age > SECONDS / 2
    }

    fn mean(self) -> f32 {
        f32::from_bits((self.0 >> 32) as u32)
    }

    fn samples(self) -> u32 {
        self.0 as u32 >> SECOND_BITS
    }
}

const SECOND_BITS: u32 = 27;
const SECONDS: u32 = (1 << SECOND_BITS) - 1;

const _: () = assert!(LATENCY_SAMPLES_COLD < 1 << (u32::BITS - SECOND_BITS));

fn second(now: Millis) -> u32 {
    (now.0 / 1000) as u32 & SECONDS
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn seen(samples: &[u64], at: Millis) -> Seen {
        let latency = Latency::new();
        samples.iter().for_each(|ms| latency.add(*ms, at));
        latency.seen()
    }

    #[test]
    fn the_newest_sample_has_three_tenths_of_the_mean() {
        let at = Millis(5_000);
        assert_eq!(seen(&[100], at).mean(), 100.0);
        assert_eq!(seen(&[100, 200], at).mean(), 130.0);
    }

    #[test]
    fn twenty_samples_say_something_and_nineteen_do_not() {
        let at = Millis(5_000);
        assert_eq!(seen(&[100; 19], at).ms(at), None);
        assert_eq!(seen(&[100; 20], at).ms(at), Some(100.0));
        assert_eq!(seen(&[100; 500], at).ms(at), Some(100.0));
    }

    #[test]
    fn what_was_seen_a_minute_ago_says_nothing_any_more_and_is_no_part_of_what_comes() {
        let old = seen(&[900; 20], Millis(50_000));
        assert_eq!(old.ms(Millis(49_000)), Some(900.0), "a clock slightly behind");
        assert_eq!(old.ms(Millis(110_999)), Some(900.0));
        assert_eq!(old.ms(Millis(111_000)), None);
        let again = old.with(100.0, Millis(200_000));
        assert_eq!(again.ms(Millis(200_000)), Some(100.0));
    }

    #[test]
    fn a_forgotten_backend_is_a_new_one() {
        let latency = Latency::new();
        (0..20).for_each(|_| latency.add(100, Millis(0)));
        latency.forget();
        assert_eq!(latency.seen(), Seen::default());
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::thread;

    use super::*;
    use crate::sync::{Arc, model};

    const NOW: Millis = Millis(5_000);

    fn first_token(latency: &Arc<Latency>, ms: u64) -> thread::JoinHandle<()> {
        let latency = Arc::clone(latency);
        thread::spawn(move || latency.add(ms, NOW))
    }

    #[test]
    fn no_sample_is_lost_and_the_mean_is_that_of_some_order() {
        model(|| {
            let latency = Arc::new(Latency::new());
            let others = [first_token(&latency, 100), first_token(&latency, 200)];
            let seen = latency.seen();
            assert!([0.0, 100.0, 200.0, 130.0, 170.0].contains(&seen.mean()), "{seen:?}");
            others.into_iter().for_each(|other| other.join().unwrap());
            let seen = latency.seen();
            assert_eq!(seen.samples(), 2);
            assert!([130.0, 170.0].contains(&seen.mean()), "{seen:?}");
        });
    }

    #[test]
    fn a_sample_that_comes_meanwhile_brings_nothing_back_of_what_was_forgotten() {
        model(|| {
            let latency = Arc::new(Latency::new());
            latency.add(900, NOW);
            let other = first_token(&latency, 100);
            latency.forget();
            other.join().unwrap();
            let new = Seen::default().with(100.0, NOW);
            assert!([Seen::default(), new].contains(&latency.seen()), "{:?}", latency.seen());
        });
    }
}
