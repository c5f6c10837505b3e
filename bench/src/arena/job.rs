//! A request on its way through a run. It holds what happened to it, and no opinion.

use std::sync::Arc;

/// Where a closed loop goes on after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which recorded session.
    pub session: usize,
    /// Which of its turns this request is.
    pub turn: usize,
}

/// How far a request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// At the router, or not there yet, or over.
    #[default]
    Away,
    /// In an engine's queue or prefill.
    Placed,
    /// Its answer is being written.
    Decoding,
}

/// A request on its way.
#[derive(Clone, Debug)]
pub struct Job {
    /// Blocks of its prompt.
    pub blocks: Arc<[u64]>,
    /// Tokens of its prompt.
    pub prompt_tokens: u64,
    /// Tokens of its answer.
    pub output_tokens: u64,
    /// Its conversation.
    pub session: u64,
    /// Where its session stands, in a closed loop.
    pub place: Option<Place>,
    /// When it came to the router, in seconds.
    pub arrived_s: f64,
    /// How far it is.
    pub stage: Stage,
    /// Which placement this is, of the whole run.
    pub attempt: u64,
    /// Which engine got it.
    pub engine: usize,
    /// Uncached tokens the router believes it brings.
    pub expected_tokens: u64,
    /// Leading blocks its engine held when its prefill began.
    pub cached_blocks: usize,
    /// How often it was ended in its prefill and sent again.
    pub interruptions: u32,
    /// Time from arrival to the end of its prefill, in seconds.
    pub ttft_s: f64,
}

impl Job {
    /// A request before it comes.
    pub fn new(blocks: Arc<[u64]>, prompt_tokens: u64, output_tokens: u64, session: u64) -> Self {
        Self {
            blocks,
            prompt_tokens,
            output_tokens,
            session,
            place: None,
            arrived_s: 0.0,
            stage: Stage::Away,
            attempt: 0,
            engine: 0,
            expected_tokens: 0,
            cached_blocks: 0,
            interruptions: 0,
            ttft_s: 0.0,
        }
    }

    /// Tokens left to prefill where so many leading blocks are held; at least one.
    pub fn uncached_tokens(&self, overlap_blocks: u32) -> u64 {
        let held = u64::from(overlap_blocks) * super::workload::BLOCK_TOKENS;
        self.prompt_tokens.saturating_sub(held).max(1)
    }
}
