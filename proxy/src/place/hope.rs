//! What a request that nobody takes waits for, and until when. The kinds of waiting stand side by side here; who waits,
//! and where, is not this file's matter, and it reads no clock.

use config::Routing;

use crate::answer::Situation;
use crate::limits::BREAKER_WAIT_MS;

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hope {
    /// Room at its conversation's home. After a while any other will do.
    Home,
    /// Its turn at a backend that prefills others. After a while it stands in line there.
    Turn,
    /// Room, with anybody.
    Room,
    /// The next trial of somebody whose breaker is open: it comes within moments.
    Trial,
    /// The end of a pause that somebody asked for. Whoever else is left says no.
    Pause,
}

impl Hope {
    /// How long a request that has waited for so long waits before it looks again, ms. The first pause that somebody asked
    /// for ends in `pause_ms`: then he may be asked again, whatever is waited for.
    ///
    /// # Errors
    /// What to answer where there is nothing left to wait for.
    pub(super) fn next_look_ms(
        self,
        routing: &Routing,
        waited_ms: u64,
        pause_ms: Option<u64>,
    ) -> Result<u64, Situation> {
        let patience_ms = match self {
            Hope::Trial => routing.queue_wait_ms.min(BREAKER_WAIT_MS),
            Hope::Home | Hope::Turn | Hope::Room | Hope::Pause => routing.queue_wait_ms,
        };
        let left_ms = patience_ms.saturating_sub(waited_ms);
        let look_ms = match self {
            Hope::Home | Hope::Room if left_ms == 0 => return Err(Situation::NoRoom),
            Hope::Trial if left_ms == 0 => return Err(Situation::NoHealthyBackend),
            // The pause lasts for longer than this request may wait.
            Hope::Pause if pause_ms.is_none_or(|pause_ms| pause_ms > left_ms) => {
                return Err(Situation::NoHealthyBackend);
            }
            Hope::Home => routing.home_wait_ms.saturating_sub(waited_ms).max(1),
            Hope::Turn => routing.turn_wait_ms.saturating_sub(waited_ms).max(1),
            Hope::Room | Hope::Trial | Hope::Pause => left_ms,
        };
        Ok(pause_ms.map_or(look_ms, |pause_ms| pause_ms.min(look_ms)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE_MS: u64 = 30_000;
    const HOME_MS: u64 = 2_000;
    const TURN_MS: u64 = 10_000;

    fn next(hope: Hope, waited_ms: u64, pause_ms: Option<u64>) -> Result<u64, Situation> {
        let mut routing =
            crate::fixture::config("[[backend]]\nname = \"a\"\nurl = \"http://127.0.0.1:9\"\n")
                .routing;
        (routing.queue_wait_ms, routing.home_wait_ms) = (QUEUE_MS, HOME_MS);
        routing.turn_wait_ms = TURN_MS;
        hope.next_look_ms(&routing, waited_ms, pause_ms)
    }

    #[test]
    fn room_is_waited_for_as_long_as_a_request_may_wait_and_a_home_for_less() {
        assert_eq!(next(Hope::Room, 10_000, None), Ok(QUEUE_MS - 10_000));
        assert_eq!(next(Hope::Home, 500, None), Ok(HOME_MS - 500));
        assert_eq!(next(Hope::Home, HOME_MS, None), Ok(1), "then any other will do");
        for hope in [Hope::Room, Hope::Home] {
            assert_eq!(next(hope, QUEUE_MS, None), Err(Situation::NoRoom));
            assert_eq!(next(hope, QUEUE_MS, Some(1)), Err(Situation::NoRoom));
        }
    }

    #[test]
    fn a_turn_is_waited_for_until_the_request_had_better_stand_in_line() {
        assert_eq!(next(Hope::Turn, 500, None), Ok(TURN_MS - 500));
        assert_eq!(next(Hope::Turn, TURN_MS, None), Ok(1), "then it goes where it would have gone");
        assert_eq!(next(Hope::Turn, 0, Some(70)), Ok(70));
    }

    #[test]
    fn a_trial_comes_within_moments_or_is_not_waited_for() {
        assert_eq!(next(Hope::Trial, 100, None), Ok(BREAKER_WAIT_MS - 100));
        assert_eq!(next(Hope::Trial, BREAKER_WAIT_MS, None), Err(Situation::NoHealthyBackend));
    }

    #[test]
    fn a_pause_is_waited_for_only_if_it_ends_in_time() {
        assert_eq!(next(Hope::Pause, 0, Some(QUEUE_MS)), Ok(QUEUE_MS));
        assert_eq!(next(Hope::Pause, 1, Some(QUEUE_MS)), Err(Situation::NoHealthyBackend));
        assert_eq!(next(Hope::Pause, 0, None), Err(Situation::NoHealthyBackend));
    }

    #[test]
    fn whoever_asked_for_a_pause_is_asked_again_after_it_whatever_is_waited_for() {
        for hope in [Hope::Home, Hope::Room, Hope::Trial, Hope::Pause] {
            assert_eq!(next(hope, 0, Some(70)), Ok(70));
        }
    }
}
