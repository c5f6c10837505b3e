//! Dynamo's KV router at temperature 0: least `weight * max(0, (prefill tokens active there + prompt) / block - overlap)
//! + decode blocks`, where the overlap is exact (engines' events) and decode blocks are the distinct blocks of requests
//! active there with this one added (`scheduling/selector/default.rs`).

use crate::arena::hashing::BlockMap;
use crate::arena::holders::Holders;
use crate::arena::job::Job;
use crate::arena::scene::{Route, Router, Scene};
use crate::arena::workload::BLOCK_TOKENS;

/// Costs this close are equal.
const EQUAL: f64 = 1e-9;

/// The router's state.
#[derive(Debug)]
pub struct Dynamo {
    weight: f64,
    /// Blocks of active requests, by engine, with how many use them.
    active: Vec<BlockMap<u32>>,
    holders: Holders,
    cached: Vec<u32>,
    shared: Vec<u32>,
}

impl Dynamo {
    /// With this weight on prefill.
    pub fn new(engines: usize, weight: f64) -> Self {
        Self {
            weight,
            active: (0..engines).map(|_| BlockMap::default()).collect(),
            holders: Holders::new(engines),
            cached: Vec::new(),
            shared: Vec::new(),
        }
    }

    fn begin(&mut self, engine: usize, job: &Job) {
        for id in job.blocks.iter() {
            let users = self.active[engine].entry(*id).or_default();
            *users += 1;
            if *users == 1 {
                self.holders.add(*id, engine);
            }
        }
    }
}

impl Router for Dynamo {
    fn reads_exact(&self) -> bool {
        true
    }

    fn route(&mut self, scene: &mut Scene, _key: usize, job: &Job) -> Option<Route> {
        let Self { weight, active, holders, cached, shared } = self;
        if let Some(exact) = &mut scene.exact {
            exact.overlaps(&job.blocks, cached);
        }
        holders.overlaps(&job.blocks, shared);
        let cost = |scene: &Scene, at: usize| {
            let tokens = (scene.pending[at] + job.prompt_tokens) as f64;
            let prefill = (tokens / BLOCK_TOKENS as f64 - f64::from(cached[at])).max(0.0);
            let decode = active[at].len() + job.blocks.len() - shared[at] as usize;
            *weight * prefill + decode as f64
        };
        let engine = scene.cheapest(EQUAL, cost, Scene::lot);
        let expected_tokens = job.uncached_tokens(cached[engine]);
        self.begin(engine, job);
        Some(Route { engine, expected_tokens })
    }

    fn finished(&mut self, _scene: &Scene, _key: usize, job: &Job) {
        let active = &mut self.active[job.engine];
        for id in job.blocks.iter() {
            let Some(users) = active.get_mut(id) else { continue };
            *users -= 1;
            if *users == 0 {
                active.remove(id);
                self.holders.remove(*id, job.engine);
            }
        }
    }
}
