//! Stickiness alone: a conversation goes home; one without a home goes where the fewest requests are in flight. It never
//! looks at evidence.

use crate::{LoadView, Policy, Score, View};

/// The conversation's home, else fewest requests in flight.
#[derive(Debug)]
pub(super) struct Session;

impl Policy for Session {
    fn name(&self) -> &'static str {
        "session"
    }

    fn score(&mut self, view: &View<'_>, candidate: &LoadView) -> Score {
        let away = view.home.is_some_and(|home| home != candidate.id);
        let away = if away { f64::from(u32::MAX) } else { 0.0 };
        Score::sum(&["away", "in_flight"], &[away, f64::from(candidate.in_flight)])
    }

    fn keeps_home(&self) -> bool {
        true
    }
}
