//! Least expected wait by what was seen: the moving mean of a backend's time to first token, times the requests it has.
//! It needs no knowledge of prompts or caches, and finds out by itself which backends are faster. One of which too little
//! is known yet, or nothing lately, counts as the fastest: all start with the same weight, and only who is asked can show
//! what it is. It never looks at evidence or at where a conversation lives.

use crate::{LoadView, Policy, Score, View};

/// Moving mean of first-token times, times requests in flight with this one.
#[derive(Debug, Default)]
pub(super) struct Ewma {
    /// The least mean of the candidates, in ms.
    fastest: f64,
}

/// Milliseconds at least, so that requests in flight count also where nothing is known, or answers are instant.
const LEAST: f64 = 1.0;

impl Policy for Ewma {
    fn name(&self) -> &'static str {
        "ewma"
    }

    fn prepare(&mut self, view: &View<'_>) {
        let means = view.candidates.iter().filter_map(|c| c.first_token.ms(view.ask.now));
        let fastest = means.map(f64::from).fold(f64::INFINITY, f64::min);
        self.fastest = if fastest.is_finite() { fastest.max(LEAST) } else { LEAST };
    }

    fn score(&mut self, view: &View<'_>, candidate: &LoadView) -> Score {
        let seen = candidate.first_token.ms(view.ask.now).map_or(self.fastest, f64::from);
        let ms = seen.max(LEAST);
        Score::sum(&["first_token", "in_flight"], &[ms, ms * f64::from(candidate.in_flight)])
    }
}
