//! Policies that look at load alone, or at nothing: baselines, and right for engines without a prefix cache. They never
//! look at evidence or at where a conversation lives.

use crate::fingerprint::mix;
use crate::{BackendId, LoadView, Policy, Score, View};

/// One after the other, in order of id. Its cursor is an id, not a position, so a changed fleet does not restart it.
#[derive(Debug)]
pub(super) struct RoundRobin {
    last: Option<BackendId>,
}

impl RoundRobin {
    pub(super) fn new() -> Self {
        Self { last: None }
    }
}

impl Policy for RoundRobin {
    fn name(&self) -> &'static str {
        "round_robin"
    }

    fn prepare(&mut self, view: &View<'_>) {
        // Shards that start together must not walk together.
        let at = view.ask.random as usize % view.candidates.len().max(1);
        self.last = self.last.or_else(|| view.candidates.get(at).map(|c| c.id));
    }

    fn score(&mut self, _view: &View<'_>, candidate: &LoadView) -> Score {
        let last = self.last.map_or(0, |id| id.0);
        // Distance to walk from the last one, wrapping at the end of the id range.
        let distance = candidate.id.0.wrapping_sub(last).wrapping_sub(1);
        Score::sum(&["distance"], &[f64::from(distance)])
    }

    fn placed(&mut self, id: BackendId, _uncached_tokens: f64, _follows: bool) {
        self.last = Some(id);
    }
}

/// Uniformly at random.
#[derive(Debug)]
pub(super) struct Random;

impl Policy for Random {
    fn name(&self) -> &'static str {
        "random"
    }

    fn score(&mut self, view: &View<'_>, candidate: &LoadView) -> Score {
        let draw = mix(view.ask.random ^ u64::from(candidate.id.0)) >> 11;
        Score::sum(&["draw"], &[draw as f64])
    }
}

/// Fewest requests in flight.
#[derive(Debug)]
pub(super) struct LeastRequests;

impl Policy for LeastRequests {
    fn name(&self) -> &'static str {
        "least_requests"
    }

    fn score(&mut self, _view: &View<'_>, candidate: &LoadView) -> Score {
        Score::sum(&["in_flight"], &[f64::from(candidate.in_flight)])
    }
}

/// The less busy of two taken at random; the rest follow, for the case that both lose their room.
#[derive(Debug)]
pub(super) struct PowerOfTwo {
    pair: [Option<BackendId>; 2],
}

impl PowerOfTwo {
    pub(super) fn new() -> Self {
        Self { pair: [None; 2] }
    }
}

impl Policy for PowerOfTwo {
    fn name(&self) -> &'static str {
        "power_of_two"
    }

    fn prepare(&mut self, view: &View<'_>) {
        let len = view.candidates.len().max(1) as u64;
        let first = mix(view.ask.random) % len;
        // One of the others: a step of 1..len from the first, so the two are distinct.
        let second = (first + 1 + mix(view.ask.random ^ 1) % len.saturating_sub(1).max(1)) % len;
        self.pair = [first, second].map(|at| view.candidates.get(at as usize).map(|c| c.id));
    }

    fn score(&mut self, _view: &View<'_>, candidate: &LoadView) -> Score {
        let drawn = self.pair.contains(&Some(candidate.id));
        let behind = if drawn { 0.0 } else { f64::from(u32::MAX) };
        Score::sum(&["in_flight", "not_drawn"], &[f64::from(candidate.in_flight), behind])
    }
}
