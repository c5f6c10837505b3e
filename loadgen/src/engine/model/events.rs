//! What goes into a modelled engine and what comes out of it.

use super::params::Micros;

/// Names a request in one engine; never reused there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// One request. Block ids are chained: an id stands for its block and everything before it, so equal ids mean equal prefixes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Request {
    /// The prompt's blocks in order. The last, partly filled block may be among them (see `Params::cache_tail`).
    pub prompt_blocks: Vec<u64>,
    /// The prompt's length, tokens.
    pub prompt_tokens: u32,
    /// Blocks that become full while the reply is produced, in order; may be empty if nobody will ever continue it.
    pub reply_blocks: Vec<u64>,
    /// The reply's length, tokens; 0 computes the prompt only.
    pub reply_tokens: u32,
    /// The slot it asks for (llama.cpp's `id_slot`); numbers beyond the last begin again at 0.
    pub slot: Option<usize>,
}

/// Something that happened, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub at: Micros,
    /// To which request.
    pub id: RequestId,
    /// What.
    pub kind: EventKind,
}

/// What happened to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// It got a slot.
    Started {
        /// Which, from 0.
        slot: usize,
    },
    /// Its prompt is computed. The first token comes at the same instant.
    PrefillDone {
        /// Prompt tokens reused from the cache.
        cached: u32,
        /// Prompt tokens computed.
        computed: u32,
        /// When computing them began.
        began: Micros,
    },
    /// It has so many tokens of its reply.
    Token {
        /// Tokens so far.
        produced: u32,
    },
    /// It is done and gone.
    Finished,
    /// It failed with everything else that ran, because the pool was exhausted.
    Overflowed,
}

/// Why a request was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Prompt longer than the context.
    TooLong {
        /// The prompt, tokens.
        tokens: u32,
        /// The limit, tokens.
        limit: u32,
    },
    /// The queue or in-flight limit is reached.
    Busy,
}

/// The engine at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// Requests with a slot.
    pub running: usize,
    /// Requests without one.
    pub waiting: usize,
    /// Prompt tokens not yet computed, as if nothing of the waiting prompts were cached.
    pub pending_tokens: u64,
    /// Blocks of running requests.
    pub blocks_in_use: usize,
    /// Blocks kept only because they may be reused.
    pub blocks_cached: usize,
}

/// What the engine did since it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Requests taken.
    pub submitted: u64,
    /// Requests refused.
    pub refused: u64,
    /// Requests that ended as they should.
    pub finished: u64,
    /// Requests taken back by the caller.
    pub cancelled: u64,
    /// Requests that failed because the pool was exhausted.
    pub overflowed: u64,
    /// Prompt tokens of requests whose prefill is done.
    pub prompt_tokens: u64,
    /// Of these, reused.
    pub cached_tokens: u64,
    /// Of these, computed.
    pub computed_tokens: u64,
    /// Time spent computing prompts, microseconds.
    pub prefill_us: u64,
    /// Tokens produced.
    pub generated_tokens: u64,
    /// Requests that named a slot.
    pub named: u64,
    /// Of these, those whose slot was busy, which destroys its cache.
    pub named_busy: u64,
    /// Blocks pushed out of the cache.
    pub evicted_blocks: u64,
    /// Longest sequence seen, tokens.
    pub longest_tokens: u32,
}

/// A slot as a monitoring endpoint shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Slot {
    /// The request running in it.
    pub running: Option<RequestId>,
    /// Prompt tokens of the request that runs, or of the last that did.
    pub prompt_tokens: u32,
    /// Of these, computed so far.
    pub computed_tokens: u32,
    /// Of these, reused.
    pub cached_tokens: u32,
    /// Tokens produced.
    pub produced: u32,
    /// Requests it has run.
    pub tasks: u64,
}
