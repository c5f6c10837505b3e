//! No index at all: what the harness itself costs, and the most it can measure.

use super::Contender;
use crate::plan::{Plan, Request, Shape};

#[derive(Debug)]
pub(crate) struct Nothing;

impl Contender for Nothing {
    const NAME: &'static str = "nothing";
    const CALLS: &'static str =
        "the harness alone: reads each prompt's last key, drops the updates";
    type Key = u64;
    type Reader = ();
    type Update = Vec<u64>;
    type Found = u64;

    fn start(_: Shape) -> Self {
        Self
    }

    fn reader(&self) {}

    fn key(_: u64, chain: u64) -> u64 {
        chain
    }

    fn update(plan: &Plan, request: &Request) -> Vec<u64> {
        plan.prompt(request).chain.to_vec()
    }

    fn lookup(&self, (): &mut (), keys: &[u64]) -> u64 {
        keys.last().copied().unwrap_or(0)
    }

    fn hand_over(&self, update: Vec<u64>) {
        drop(update);
    }

    fn settle(&self) {}

    fn depths((): &(), _: &u64, _: &mut [u32]) {}
}
