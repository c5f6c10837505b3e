//! A request while it is in the engine.

use super::events::Request;
use super::params::{Micros, Params};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// In the queue, without a slot.
    Queued,
    /// In a slot, its prompt not yet begun.
    Admitted,
    /// Its prompt is being computed.
    Prefilling,
    /// Producing; its next event is when the token clock reads this.
    Decoding(u64),
}

#[derive(Debug)]
pub(super) struct Job {
    pub(super) request: Request,
    pub(super) stage: Stage,
    pub(super) slot: usize,
    pub(super) cached: u32,
    pub(super) prefill_began: Micros,
    pub(super) produced: u32,
    /// Whether the prompt's blocks are pinned.
    pub(super) pinned: bool,
    /// Nameless blocks held for the reply.
    pub(super) nameless: usize,
}

impl Job {
    pub(super) fn new(request: Request) -> Self {
        Self {
            request,
            stage: Stage::Queued,
            slot: 0,
            cached: 0,
            prefill_began: 0,
            produced: 0,
            pinned: false,
            nameless: 0,
        }
    }

    pub(super) fn to_compute(&self) -> u32 {
        self.request.prompt_tokens - self.cached.min(self.request.prompt_tokens)
    }

    /// Blocks a reply of `tokens` tokens needs beyond the prompt's own.
    pub(super) fn reply_blocks(&self, params: &Params, tokens: u32) -> usize {
        let all = params.blocks_of(self.request.prompt_tokens.saturating_add(tokens));
        all.saturating_sub(self.request.prompt_blocks.len())
    }

    /// Reply blocks that are full after the tokens produced so far.
    pub(super) fn full_reply_blocks(&self, params: &Params) -> &[u64] {
        let block = params.block_tokens.max(1);
        let full = self.request.prompt_tokens.saturating_add(self.produced) / block;
        let count = (full - self.request.prompt_tokens / block) as usize;
        &self.request.reply_blocks[..count.min(self.request.reply_blocks.len())]
    }
}
