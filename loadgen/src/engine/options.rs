//! What a simulated engine is started with. Defaults are those of a demo fleet: 8,000 prompt tokens/s, 40 tokens/s a request,
//! 64 slots. Nothing here changes after the start; faults do, see `faults`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use super::faults::Faults;
use super::model::{Memory, Params};
use super::persona::Persona;

/// How many tokens a reply has when the request's own limit does not cut it short. The number follows from the prompt, so
/// the same prompt always gets the same reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyLength {
    /// Shortest reply, tokens.
    pub min: u32,
    /// Longest reply, tokens.
    pub max: u32,
}

impl ReplyLength {
    /// Replies of exactly `tokens` tokens.
    pub fn fixed(tokens: u32) -> Self {
        Self { min: tokens, max: tokens }
    }

    /// The length for a prompt with this hash.
    pub fn pick(self, prompt_hash: u64) -> u32 {
        let span = u64::from(self.max.saturating_sub(self.min)) + 1;
        // The low bits seed the words; take others, so that length and text do not move together.
        self.min + u32::try_from(prompt_hash.rotate_left(32) % span).unwrap_or(0)
    }
}

/// Everything a simulated engine is started with.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// The engine it speaks as.
    pub persona: Persona,
    /// Where it listens; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// The model's name in `/v1/models` and in replies.
    pub model: String,
    /// Speed, slots and memory.
    pub params: Params,
    /// Length of replies.
    pub reply: ReplyLength,
    /// Whether vLLM (`--enable-prompt-tokens-details`) and SGLang (`--enable-cache-report`) tell cached tokens.
    pub report_cached: bool,
    /// vLLM only: a refused stream gets HTTP 200 and one error event (its race under bursts) instead of a 503.
    pub late_refusal: bool,
    /// vLLM only: system messages after the first are merged into it, as it does for templates that demand it.
    pub merge_later_system: bool,
    /// llama.cpp only: every slot shares one pool (the default there). Off, each slot owns `pool / slots` tokens.
    pub kv_unified: bool,
    /// llama.cpp only: a whole (not streamed) reply is worked out to its end though its client has left, as by builds whose
    /// server does not look (measured: 37 s on). Off, it is noticed within a second, as by `llama-server` b11434.
    pub works_for_nobody: bool,
    /// Whether `/v1/embeddings` is served; llama.cpp does so only with `--embeddings`.
    pub embeddings: bool,
    /// SGLang only: step in which its `/health` polls for a sign of life, milliseconds (1,000 in the real one).
    pub health_step_ms: u64,
    /// Whether each event of a stream carries the time it was written, as a comment line (see [`STAMP`](super::shapes::events::STAMP)).
    pub stamp_events: bool,
    /// Connections idle after a reply are closed after this long, milliseconds; llama.cpp's also before the first request.
    pub idle_close_ms: u64,
    /// Largest request body accepted, bytes.
    pub body_bytes_max: usize,
    /// File to which each prompt that is taken appends a line, its hash in hexadecimal; it outlives the engine.
    pub ledger: Option<PathBuf>,
    /// Faults from the start.
    pub faults: Faults,
}

impl EngineOptions {
    /// Defaults of this persona, on a free port of the loopback interface.
    pub fn new(persona: Persona) -> Self {
        Self {
            persona,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            model: "sim".to_owned(),
            params: default_params(persona),
            reply: ReplyLength { min: 32, max: 256 },
            report_cached: true,
            late_refusal: false,
            merge_later_system: false,
            kv_unified: true,
            works_for_nobody: false,
            embeddings: persona != Persona::LlamaCpp,
            health_step_ms: 1_000,
            stamp_events: false,
            idle_close_ms: 5_000,
            body_bytes_max: 100 << 20,
            ledger: None,
            faults: Faults::default(),
        }
    }

    /// The same, `factor` times as fast at everything.
    pub fn speed(mut self, factor: f64) -> Self {
        self.params.prefill_tps *= factor;
        self.params.decode_tps *= factor;
        self
    }

    /// Tokens one request may hold here, prompt and reply together: never more than the pool, or than a slot's share of it.
    pub fn sequence_tokens_max(&self) -> u32 {
        let pool = self.params.kv_tokens();
        let split = self.persona == Persona::LlamaCpp && !self.kv_unified;
        let own = if split { pool / self.params.slots.max(1) as u64 } else { pool };
        self.params.sequence_tokens_max.min(u32::try_from(own).unwrap_or(u32::MAX))
    }
}

/// Block sizes are those the engines use (llama.cpp has no blocks: 8 tokens keep its token-exact reuse close).
fn default_params(persona: Persona) -> Params {
    let (block_tokens, memory, cache_tail) = match persona {
        Persona::LlamaCpp => (8, Memory::OnDemand, true),
        Persona::Sglang => (16, Memory::Reserve, false),
        Persona::Vllm | Persona::OpenAi => (32, Memory::Reserve, false),
    };
    Params { block_tokens, memory, cache_tail, ..Params::default() }.with_kv_tokens(512_000)
}
