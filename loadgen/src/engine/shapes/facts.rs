//! What a reply's shape is filled with.

use super::super::ask::{Ask, Finish};
use super::super::persona::Persona;

/// Facts of a request known when it is accepted.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) persona: Persona,
    pub(crate) ask: Ask,
    /// The model as the reply names it.
    pub(crate) model: String,
    /// Sixteen characters that are this request's own.
    pub(crate) id: String,
    /// Seconds since 1970.
    pub(crate) created: u64,
    pub(crate) prompt_tokens: u32,
    /// Whether cached tokens are told where that is a setting.
    pub(crate) report_cached: bool,
    /// Prompt tokens in whole blocks: what vLLM counts as put into its cache.
    pub(crate) block_tokens: u32,
    /// How a complete reply ends.
    pub(crate) finish: Finish,
}

/// Facts known when its prompt is computed, and, complete, when it ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) cached: u32,
    pub(crate) computed: u32,
    pub(crate) prefill_us: u64,
    pub(crate) produced: u32,
    pub(crate) decode_us: u64,
    pub(crate) slot: usize,
}

impl Facts {
    pub(crate) fn chat_id(&self) -> String {
        match self.persona {
            Persona::Sglang => format!("{0}{0}", self.id),
            Persona::LlamaCpp => format!("chatcmpl-{0}{0}", self.id),
            Persona::Vllm | Persona::OpenAi => format!("chatcmpl-{}", self.id),
        }
    }

    pub(crate) fn prefixed_id(&self, prefix: &str) -> String {
        match self.persona {
            Persona::LlamaCpp | Persona::Sglang => format!("{prefix}{0}{0}", self.id),
            Persona::Vllm | Persona::OpenAi => format!("{prefix}{}", self.id),
        }
    }

    pub(crate) fn fingerprint(&self) -> &'static str {
        match self.persona {
            Persona::Vllm => "vllm-0.32.0-5dc7e901",
            Persona::LlamaCpp => "b0-unknown",
            Persona::Sglang | Persona::OpenAi => "fp_simulated",
        }
    }
}
