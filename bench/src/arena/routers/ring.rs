//! Consistent hashing of a prompt's first blocks over a ring with 160 points an engine, optionally with bounded load
//! (Mirrokni, Thorup and Zadimoghaddam 2018): whoever is full is passed over for the next on the ring.

use crate::arena::hashing::mixed;
use crate::arena::job::Job;
use crate::arena::scene::{Route, Router, Scene};

/// Points of one engine.
const POINTS: u64 = 160;

/// A ring.
#[derive(Debug)]
pub struct Ring {
    blocks: usize,
    bound: Option<f64>,
    points: Vec<(u64, usize)>,
}

impl Ring {
    /// Hashes the first `blocks` blocks; nobody gets more than `bound` times the mean load.
    pub fn new(engines: usize, blocks: usize, bound: Option<f64>) -> Self {
        let point = |engine: usize, point: u64| (mixed(mixed(engine as u64) ^ point), engine);
        let mut points: Vec<(u64, usize)> =
            (0..engines).flat_map(|at| (0..POINTS).map(move |n| point(at, n))).collect();
        points.sort_unstable();
        Self { blocks, bound, points }
    }

    fn at(&self, key: u64, scene: &mut Scene) -> usize {
        let start = self.points.partition_point(|(point, _)| *point < key);
        let mut around = self.points[start..].iter().chain(&self.points[..start]);
        let total: u32 = scene.in_flight.iter().sum();
        let most = self.bound.map(|bound| bound * f64::from(total + 1) / scene.len() as f64);
        let fits = |engine: usize| {
            let within = |most: f64| f64::from(scene.in_flight[engine] + 1) <= most.max(1.0);
            scene.up[engine] && most.is_none_or(within)
        };
        match around.find(|(_, engine)| fits(*engine)) {
            Some((_, engine)) => *engine,
            None => scene.least_busy(&scene.live()),
        }
    }
}

impl Router for Ring {
    fn route(&mut self, scene: &mut Scene, _key: usize, job: &Job) -> Option<Route> {
        let first = job.blocks.iter().take(self.blocks);
        let key = first.fold(0, |key, id| mixed(key ^ mixed(*id)));
        Some(Route { engine: self.at(key, scene), expected_tokens: job.prompt_tokens })
    }
}
