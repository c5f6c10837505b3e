//! The floor: one infinite cache shared by all engines behind one queue, without slots or memory limits. Nothing can
//! reach it, so that what is left to win is known.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::arena::engine::EngineOptions;
use crate::arena::hashing::BlockSet;
use crate::arena::results::{Computed, Outcome, Sample};
use crate::arena::time::Seconds;
use crate::arena::workload::{BLOCK_TOKENS, Request};

/// Runs a trace, so many times as fast as recorded, against the floor.
pub fn floor(requests: &[Request], compression: f64, options: &[EngineOptions]) -> Outcome {
    let engines = options.len();
    let mut sorted: Vec<&Request> = requests.iter().collect();
    sorted.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    let mut seen = BlockSet::default();
    let mut free: BinaryHeap<Reverse<(Seconds, usize)>> =
        (0..engines).map(|engine| Reverse((Seconds(0.0), engine))).collect();
    let mut outcome = Outcome { worked_s: vec![0.0; engines], ..Outcome::default() };
    for request in sorted {
        let cached = request.blocks.iter().take_while(|id| seen.contains(id)).count() as u64;
        seen.extend(request.blocks.iter().copied());
        let most = request.prompt_tokens.saturating_sub(1);
        let uncached_tokens = request.prompt_tokens - (cached * BLOCK_TOKENS).min(most);
        let Some(Reverse((idle, engine))) = free.pop() else { break };
        let arrived_s = request.at_s / compression;
        let takes_s = uncached_tokens as f64 / options[engine].prefill_rate;
        let end = idle.0.max(arrived_s) + takes_s;
        free.push(Reverse((Seconds(end), engine)));
        outcome.worked_s[engine] += takes_s;
        outcome.hit_blocks += cached;
        outcome.blocks += request.blocks.len() as u64;
        let ttft_s = end - arrived_s;
        outcome.samples.push(Sample {
            arrived_s,
            ttft_s,
            engine,
            computed: Computed { tokens: uncached_tokens, ..Computed::default() },
        });
    }
    outcome
}
