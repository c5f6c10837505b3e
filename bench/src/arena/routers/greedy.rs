//! The candidate design, as the reference simulator has it: least `pending + a * own uncached tokens + b * requests in
//! flight`, on a guess of engines' caches or on their exact contents (the oracle). The adaptive form weighs recomputation
//! by the share of engines that have prefill pending, and charges templates at 1. It is here to check the arena against
//! the reference, and as a bound; the product's own policy is in `index`.

use crate::arena::hashing::BlockMap;
use crate::arena::holders::Mirror;
use crate::arena::job::Job;
use crate::arena::scene::{Route, Router, Scene};
use crate::arena::workload::BLOCK_TOKENS;

/// Weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// On the request's own uncached tokens.
    pub a: f64,
    /// Exact contents, or the router's guess.
    pub exact: bool,
    /// Tokens a request in flight.
    pub request_tokens: f64,
    /// Follow the fleet's load and know templates.
    pub adaptive: Option<Adaptive>,
}

/// The adaptive form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adaptive {
    /// Distinct branches below a block that make it a template.
    pub branches: u32,
}

/// Branchings seen: whether a block goes on, and how often a path branched below it.
#[derive(Debug, Default)]
struct Branchings {
    goes_on: BlockMap<bool>,
    branched: BlockMap<u32>,
}

impl Branchings {
    /// Notes a prompt. Its leading blocks that are a template.
    fn template(&mut self, blocks: &[u64], branches: u32) -> u32 {
        let known = blocks.iter().take_while(|id| self.goes_on.contains_key(id)).count();
        if known > 0 && known < blocks.len() && self.goes_on[&blocks[known - 1]] {
            for id in &blocks[..known] {
                *self.branched.entry(*id).or_default() += 1;
            }
        }
        if let Some((last, before)) = blocks.split_last() {
            let fresh = known.saturating_sub(1).min(before.len());
            self.goes_on.extend(before[fresh..].iter().map(|id| (*id, true)));
            self.goes_on.entry(*last).or_insert(false);
        }
        let template = |id: &&u64| self.branched.get(id).is_some_and(|count| *count >= branches);
        blocks.iter().take_while(template).count() as u32
    }
}

/// The router's state.
#[derive(Debug)]
pub struct Greedy {
    settings: Settings,
    mirror: Mirror,
    branchings: Branchings,
    overlaps: Vec<u32>,
}

impl Greedy {
    /// With nothing seen yet.
    pub fn new(capacities: &[usize], settings: Settings) -> Self {
        Self {
            settings,
            mirror: Mirror::new(capacities),
            branchings: Branchings::default(),
            overlaps: Vec::new(),
        }
    }

    fn weight(&self, scene: &Scene) -> f64 {
        if self.settings.adaptive.is_none() {
            return self.settings.a;
        }
        let busy = scene.pending.iter().filter(|tokens| **tokens > 0).count();
        1.0 + (self.settings.a - 1.0) * (busy as f64 / scene.len() as f64)
    }

    fn look(&mut self, scene: &mut Scene, job: &Job) {
        match (&mut scene.exact, self.settings.exact) {
            (Some(exact), true) => exact.overlaps(&job.blocks, &mut self.overlaps),
            _ => self.mirror.overlaps(&job.blocks, &mut self.overlaps),
        }
    }
}

impl Router for Greedy {
    fn reads_exact(&self) -> bool {
        self.settings.exact
    }

    fn route(&mut self, scene: &mut Scene, _key: usize, job: &Job) -> Option<Route> {
        self.look(scene, job);
        let a = self.weight(scene);
        let template = self
            .settings
            .adaptive
            .map_or(0, |adaptive| self.branchings.template(&job.blocks, adaptive.branches));
        let cost = |scene: &Scene, at: usize| {
            let uncached = job.uncached_tokens(self.overlaps[at]) as f64;
            let missing = template.saturating_sub(self.overlaps[at]);
            let spread = uncached.min((u64::from(missing) * BLOCK_TOKENS) as f64);
            let requests = self.settings.request_tokens * f64::from(scene.in_flight[at]);
            scene.pending[at] as f64 + a * uncached - (a - 1.0) * spread + requests
        };
        let engine = scene.cheapest(0.0, cost, Scene::only_or_least_busy);
        if !self.settings.exact {
            self.mirror.touch(engine, &job.blocks);
        }
        Some(Route { engine, expected_tokens: job.uncached_tokens(self.overlaps[engine]) })
    }

    fn down(&mut self, _scene: &Scene, engine: usize) {
        self.mirror.clear(engine);
    }
}
