//! What a router may look at, and the one thing it is: a choice of an engine for each request. Each model of a router
//! uses only what the real one would know, and says so.

use super::engine::Engine;
use super::holders::Holders;
use super::job::Job;
use super::mersenne::Mersenne;

/// The fleet as a router sees it.
#[derive(Debug)]
pub struct Scene {
    /// The engines; their gauges are read fresh.
    pub engines: Vec<Engine>,
    /// Requests dispatched to each and not finished: the router's own count.
    pub in_flight: Vec<u32>,
    /// Prefill tokens the router believes each still has to do.
    pub pending: Vec<u64>,
    /// What each engine really holds, kept only for routers that ask for it.
    pub exact: Option<Holders>,
    /// Which of them run.
    pub up: Vec<bool>,
    /// For ties.
    pub random: Mersenne,
    /// The time, in seconds.
    pub now_s: f64,
}

impl Scene {
    /// Engines in the fleet.
    pub fn len(&self) -> usize {
        self.engines.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.engines.is_empty()
    }

    /// Those that run.
    pub fn live(&self) -> Vec<usize> {
        (0..self.len()).filter(|at| self.up[*at]).collect()
    }

    /// One of `among` with the fewest requests in flight, ties by lot.
    pub fn least_busy(&mut self, among: &[usize]) -> usize {
        let fewest = among.iter().map(|at| self.in_flight[*at]).min().unwrap_or_default();
        let least: Vec<usize> =
            among.iter().copied().filter(|at| self.in_flight[*at] == fewest).collect();
        self.lot(&least)
    }

    /// The only one of `among`, or else one of those with the fewest requests in flight.
    pub fn only_or_least_busy(&mut self, among: &[usize]) -> usize {
        match among {
            [one] => *one,
            _ => self.least_busy(among),
        }
    }

    /// One of `among`, by lot. A lot is drawn even for one alone, as the reference does.
    pub fn lot(&mut self, among: &[usize]) -> usize {
        among.get(self.random.below(among.len())).copied().unwrap_or_default()
    }

    /// The engine of least cost; those within `slack` of it, or the one, are given to `tie`.
    pub fn cheapest(
        &mut self,
        slack: f64,
        mut cost: impl FnMut(&Scene, usize) -> f64,
        tie: impl FnOnce(&mut Scene, &[usize]) -> usize,
    ) -> usize {
        let costs: Vec<f64> = (0..self.len())
            .map(|at| if self.up[at] { cost(self, at) } else { f64::INFINITY })
            .collect();
        let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
        let best: Vec<usize> = (0..costs.len()).filter(|at| costs[*at] <= least + slack).collect();
        tie(self, &best)
    }
}

/// A choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Which engine.
    pub engine: usize,
    /// Prefill tokens the router believes this brings.
    pub expected_tokens: u64,
}

/// A router, real or modelled.
pub trait Router {
    /// Whether it is told exactly what engines hold.
    fn reads_exact(&self) -> bool {
        false
    }

    /// Chooses for request `key`, or lets it wait until somebody finishes.
    fn route(&mut self, scene: &mut Scene, key: usize, job: &Job) -> Option<Route>;

    /// Which request is to be ended at this engine and to be put behind the one that was just placed there.
    fn gives_way(&mut self, _scene: &Scene, _engine: usize) -> Option<usize> {
        None
    }

    /// What the chosen engines' scores were made of, on average; empty where scores have no terms.
    fn terms(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    /// Puts requests that wait in the order they are asked again.
    fn rank(&mut self, _scene: &Scene, _jobs: &[Job], _waiting: &mut [usize]) {}

    /// The request's engine failed before its end.
    fn lost(&mut self, scene: &Scene, key: usize, job: &Job) {
        self.finished(scene, key, job);
    }

    /// An engine failed; it will come back cold, if at all.
    fn down(&mut self, _scene: &Scene, _engine: usize) {}

    /// It came back.
    fn up(&mut self, _engine: usize) {}

    /// The request's prefill ended.
    fn prefilled(&mut self, _scene: &Scene, _key: usize, _job: &Job) {}

    /// The request's answer ended.
    fn finished(&mut self, _scene: &Scene, _key: usize, _job: &Job) {}
}
