//! A baseline that looks at load in tokens alone. It knows nothing of caches.

use crate::arena::job::Job;
use crate::arena::scene::{Route, Router, Scene};

/// Fewest prompt tokens outstanding, ties by lot.
#[derive(Debug)]
pub struct LeastTokens;

impl Router for LeastTokens {
    fn route(&mut self, scene: &mut Scene, _key: usize, job: &Job) -> Option<Route> {
        let pending = |scene: &Scene, at: usize| scene.pending[at] as f64;
        let engine = scene.cheapest(0.0, pending, Scene::lot);
        Some(Route { engine, expected_tokens: job.prompt_tokens })
    }
}
