//! SGLang's `cache_aware` policy as SMG ships it: where the fleet is imbalanced the least loaded engine; else, if more
//! than a threshold of the prompt matches, who was sent the deepest matching piece last; else the least loaded.
//!
//! Modelled on block ids where the real one has characters, and with a tree that is never trimmed (its default bound of
//! 2^26 characters an engine is not reached here; a failed engine's part is not cut out). Load is requests in flight; equals go to who got fewer so far.

use crate::arena::hashing::BlockMap;
use crate::arena::job::Job;
use crate::arena::scene::{Route, Router, Scene};

/// The three thresholds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Share of the prompt that must match.
    pub match_share: f64,
    /// The fleet is imbalanced when load differs by more than this many requests ...
    pub difference: u32,
    /// ... and the most is more than this times the least.
    pub ratio: f64,
}

impl Settings {
    /// The defaults of the command line (`router_args.py`).
    pub const COMMAND_LINE: Settings = Settings { match_share: 0.3, difference: 64, ratio: 1.5 };
    /// The defaults of the Rust library (`policies/mod.rs`).
    pub const LIBRARY: Settings = Settings { match_share: 0.5, difference: 32, ratio: 1.1 };
}

/// The policy's state.
#[derive(Debug)]
pub struct CacheAware {
    settings: Settings,
    /// Who was sent each block last.
    tenants: BlockMap<usize>,
    /// Requests each was sent so far.
    sent: Vec<u64>,
}

impl CacheAware {
    /// With nothing seen yet.
    pub fn new(engines: usize, settings: Settings) -> Self {
        Self { settings, tenants: BlockMap::default(), sent: vec![0; engines] }
    }

    fn least_loaded(&self, scene: &Scene) -> usize {
        let load = |at: &usize| (scene.in_flight[*at], self.sent[*at], *at);
        scene.live().into_iter().min_by_key(load).unwrap_or_default()
    }

    fn is_imbalanced(&self, scene: &Scene) -> bool {
        let loads = || scene.live().into_iter().map(|at| scene.in_flight[at]);
        let (most, least) = (loads().max().unwrap_or_default(), loads().min().unwrap_or_default());
        let Settings { difference, ratio, .. } = self.settings;
        most - least > difference && f64::from(most) > ratio * f64::from(least)
    }

    /// Who was sent the deepest block that matches, if enough does.
    fn matched(&self, job: &Job) -> Option<usize> {
        let matched: Vec<usize> =
            job.blocks.iter().map_while(|id| self.tenants.get(id).copied()).collect();
        let share = matched.len() as f64 / job.blocks.len().max(1) as f64;
        matched.last().copied().filter(|_| share > self.settings.match_share)
    }
}

impl Router for CacheAware {
    fn route(&mut self, scene: &mut Scene, _key: usize, job: &Job) -> Option<Route> {
        let matched = if self.is_imbalanced(scene) { None } else { self.matched(job) };
        let matched = matched.filter(|engine| scene.up[*engine]);
        let engine = matched.unwrap_or_else(|| self.least_loaded(scene));
        self.tenants.extend(job.blocks.iter().map(|id| (*id, engine)));
        self.sent[engine] += 1;
        Some(Route { engine, expected_tokens: job.prompt_tokens })
    }
}
