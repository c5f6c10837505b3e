//! Clients that hang up: which requests, and when. Pure and seeded.

use std::time::Duration;

use fastrand::Rng;

/// When the client of one request hangs up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cancel {
    Never,
    /// After this time, whatever has come by then: usually nothing yet.
    AfterDelay(Duration),
    /// After this many content events, if the reply has as many.
    AfterEvents(u32),
}

/// Draws a plan: a share `fraction` of requests is hung up on, every second of these before the
/// first token (after at most `prefill_max`), the others at a random event of the reply.
pub(crate) fn plan(rng: &mut Rng, fraction: f64, prefill_max: Duration, max_tokens: u32) -> Cancel {
    if rng.f64() >= fraction {
        return Cancel::Never;
    }
    if rng.bool() {
        Cancel::AfterDelay(prefill_max.mul_f64(rng.f64()))
    } else {
        Cancel::AfterEvents(rng.u32(1..=max_tokens.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::seed::{self, Stream};
    use super::*;

    const PREFILL_MAX: Duration = Duration::from_millis(50);

    fn plans(fraction: f64) -> Vec<Cancel> {
        let draw =
            |number| plan(&mut seed::rng(1, Stream::Request, number), fraction, PREFILL_MAX, 10);
        (0..4_000).map(draw).collect()
    }

    #[test]
    fn the_fraction_is_kept_and_half_of_it_leaves_early() {
        let plans = plans(0.5);
        let late = plans.iter().filter(|plan| matches!(plan, Cancel::AfterEvents(_))).count();
        let early = plans.iter().filter(|plan| matches!(plan, Cancel::AfterDelay(_))).count();
        assert!((850..1_150).contains(&late), "{late}");
        assert!((850..1_150).contains(&early), "{early}");
    }

    #[test]
    fn hang_ups_stay_within_their_bounds() {
        for plan in plans(1.0) {
            match plan {
                Cancel::AfterDelay(delay) => assert!(delay <= PREFILL_MAX),
                Cancel::AfterEvents(events) => assert!((1..=10).contains(&events)),
                Cancel::Never => panic!("a fraction of 1 spares nobody"),
            }
        }
    }

    #[test]
    fn a_fraction_of_zero_spares_everybody() {
        assert!(plans(0.0).iter().all(|plan| *plan == Cancel::Never));
    }
}
