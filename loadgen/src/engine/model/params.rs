//! Speed, slots and memory of a modelled engine, and the rates that follow from them. Plain values: nothing here keeps state.

/// Time, microseconds since whatever the caller counts from.
pub type Micros = u64;

/// How computing prompts and producing tokens share the engine. Prompts are always computed in the order of admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Prefill {
    /// They do not disturb each other: the model of the recorded-trace simulations.
    #[default]
    Apart,
    /// Running requests get no token while a prompt is computed.
    Pausing,
    /// A prompt is computed in chunks; between two chunks every running request gets one token.
    Chunked {
        /// Prompt tokens a chunk.
        tokens: u32,
    },
}

/// When KV memory is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Memory {
    /// Prompt and whole reply at admission; a request that does not fit waits. A request alone always runs.
    #[default]
    Reserve,
    /// As it is used. When the pool is exhausted every running request fails and loses its KV (llama.cpp's unified pool).
    OnDemand,
}

/// What a modelled engine can do.
#[derive(Debug, Clone, PartialEq)]
pub struct Params {
    /// Prompt tokens computed a second.
    pub prefill_tps: f64,
    /// Tokens a second of one request running alone.
    pub decode_tps: f64,
    /// Extra running requests at which the rate of each has halved; 0 = no slowing.
    pub batch_half: f64,
    /// Requests that run at once.
    pub slots: usize,
    /// KV memory, blocks.
    pub kv_blocks: usize,
    /// Tokens a block.
    pub block_tokens: u32,
    /// Sharing between prompts and running requests.
    pub prefill: Prefill,
    /// Whether all running requests get their tokens at the same moment, as an engine that steps its whole batch does. Without,
    /// each counts from its own first token.
    pub lockstep: bool,
    /// When memory is taken.
    pub memory: Memory,
    /// Tokens one request may hold, prompt and reply together.
    pub sequence_tokens_max: u32,
    /// Requests that may wait; none = any number (SGLang's `--max-queued-requests`).
    pub queue_max: Option<usize>,
    /// Requests that may be here, running or waiting (vLLM's `--max-num-queued-reqs`).
    pub in_flight_max: Option<usize>,
    /// Prompt tokens that may be waiting for prefill, compared before adding a request (vLLM's `--max-num-queued-tokens`).
    pub pending_tokens_max: Option<u64>,
    /// Whether the last, partly filled block of a prompt can be reused by the same prompt again. With it a repeated prompt
    /// reuses all but its last token (llama.cpp); without, whole blocks only (vLLM, SGLang).
    pub cache_tail: bool,
    /// Whether every slot keeps its own cache and shares nothing, as llama.cpp's do. Without, blocks are shared by all.
    pub slot_caches: bool,
    /// Spread of prefill times: each is multiplied by a random factor in `1 ± jitter`.
    pub jitter: f64,
    /// Seed of that randomness.
    pub seed: u64,
    /// Whether every token is an event. Without, a running request costs one event in all; memory must be `Reserve`.
    pub token_events: bool,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            prefill_tps: 8_000.0,
            decode_tps: 40.0,
            batch_half: 0.0,
            slots: 64,
            kv_blocks: 1_000,
            block_tokens: 512,
            prefill: Prefill::Apart,
            lockstep: false,
            memory: Memory::Reserve,
            sequence_tokens_max: 1 << 20,
            queue_max: None,
            in_flight_max: None,
            pending_tokens_max: None,
            cache_tail: false,
            slot_caches: false,
            jitter: 0.0,
            seed: 1,
            token_events: true,
        }
    }
}

impl Params {
    /// The same with a pool of `tokens` tokens (rounded down to whole blocks, at least one).
    pub fn with_kv_tokens(mut self, tokens: u64) -> Self {
        let blocks = tokens / u64::from(self.block_tokens.max(1));
        self.kv_blocks = usize::try_from(blocks).unwrap_or(usize::MAX).max(1);
        self
    }

    /// The pool in tokens.
    pub fn kv_tokens(&self) -> u64 {
        self.kv_blocks as u64 * u64::from(self.block_tokens)
    }

    /// Blocks that hold `tokens` tokens.
    pub(super) fn blocks_of(&self, tokens: u32) -> usize {
        tokens.div_ceil(self.block_tokens.max(1)) as usize
    }

    /// Prompt tokens that `blocks` leading blocks spare. The last token is always computed: it yields the first of the reply.
    pub(super) fn reusable(&self, blocks: usize, prompt_tokens: u32) -> u32 {
        let block = self.block_tokens.max(1);
        let before_last = prompt_tokens.saturating_sub(1);
        let most = if self.cache_tail { before_last } else { before_last / block * block };
        u32::try_from(blocks).unwrap_or(u32::MAX).saturating_mul(block).min(most)
    }

    /// Tokens a second, of the prompt being computed and of each of `running` requests.
    pub(super) fn rates(&self, prefilling: bool, running: usize) -> (f64, f64) {
        let slowing = if self.batch_half > 0.0 {
            1.0 + running.saturating_sub(1) as f64 / self.batch_half
        } else {
            1.0
        };
        let decode = self.decode_tps / slowing;
        match self.prefill {
            Prefill::Apart => (self.prefill_tps, decode),
            Prefill::Pausing if prefilling => (self.prefill_tps, 0.0),
            Prefill::Chunked { tokens } if prefilling && running > 0 => {
                let chunk = f64::from(tokens.max(1));
                let step_s = chunk / self.prefill_tps + 1.0 / decode;
                (chunk / step_s, 1.0 / step_s)
            }
            Prefill::Pausing | Prefill::Chunked { .. } => (self.prefill_tps, decode),
        }
    }
}
