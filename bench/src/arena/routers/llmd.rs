//! llm-d's scorers with the chart's weights: the highest `2 * queue + 2 * (1 - KV in use) + 3 * prefix`. The prefix is
//! the share of the prompt's blocks in a guess of each engine's cache of its real size; by default only the first 256
//! blocks of 16 tokens of a prompt are hashed at all. Gauges are read fresh here, and scraped in reality.

use crate::arena::holders::Mirror;
use crate::arena::job::Job;
use crate::arena::scene::{Route, Router, Scene};
use crate::arena::workload::BLOCK_TOKENS;

/// Weights, and how much of a prompt is looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Of the queue, of KV in use, of the prefix.
    pub weights: [f64; 3],
    /// Leading blocks hashed, of the arena's size; `None` is all.
    pub blocks_max: Option<usize>,
}

impl Settings {
    /// The chart's defaults (`config/charts/epplib`): 256 blocks of 16 tokens are 4,096 tokens.
    pub const CHART: Settings =
        Settings { weights: [2.0, 2.0, 3.0], blocks_max: Some(256 * 16 / BLOCK_TOKENS as usize) };
}

/// Scores this close are equal.
const EQUAL: f64 = 1e-9;

/// The scorers' state.
#[derive(Debug)]
pub struct Scorers {
    settings: Settings,
    mirror: Mirror,
    overlaps: Vec<u32>,
}

impl Scorers {
    /// With nothing seen yet.
    pub fn new(capacities: &[usize], settings: Settings) -> Self {
        Self { settings, mirror: Mirror::new(capacities), overlaps: Vec::new() }
    }
}

impl Router for Scorers {
    fn route(&mut self, scene: &mut Scene, _key: usize, job: &Job) -> Option<Route> {
        let looked = self.settings.blocks_max.unwrap_or(usize::MAX).min(job.blocks.len());
        let blocks = &job.blocks[..looked];
        self.mirror.overlaps(blocks, &mut self.overlaps);
        let queued = |scene: &Scene| -> Vec<usize> {
            scene.engines.iter().map(|engine| engine.queued()).collect()
        };
        let queued = queued(scene);
        let most = queued.iter().copied().max().unwrap_or_default();
        let least = queued.iter().copied().min().unwrap_or_default();
        let [queue, memory, prefix] = self.settings.weights;
        let score = |scene: &Scene, at: usize| {
            let free = match most > least {
                true => (most - queued[at]) as f64 / (most - least) as f64,
                false => 1.0,
            };
            let held = f64::from(self.overlaps[at]) / blocks.len().max(1) as f64;
            queue * free + memory * (1.0 - scene.engines[at].pressure()) + prefix * held
        };
        let engine = scene.cheapest(EQUAL, |scene, at| -score(scene, at), Scene::lot);
        self.mirror.touch(engine, blocks);
        Some(Route { engine, expected_tokens: job.uncached_tokens(self.overlaps[engine]) })
    }

    fn down(&mut self, _scene: &Scene, engine: usize) {
        self.mirror.clear(engine);
    }
}
