//! Which engine is being played, and the facts of its connections and defaults that differ. Bodies are in `shapes`, `info` and
//! `errors`. Source: measurements of llama.cpp b11434, vLLM 0.32.0 and SGLang 0.5.23.

use std::fmt;
use std::str::FromStr;

/// The engine a simulated backend speaks as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Persona {
    /// llama.cpp's `llama-server`.
    #[value(name = "llamacpp")]
    LlamaCpp,
    /// vLLM's OpenAI-compatible server.
    #[value(name = "vllm")]
    Vllm,
    /// SGLang's server.
    #[value(name = "sglang")]
    Sglang,
    /// A server that knows the OpenAI API and nothing else: no metrics, no `/v1/messages`.
    #[value(name = "openai")]
    OpenAi,
}

/// When a streamed reply's head leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadTiming {
    /// As soon as the request is accepted, even while it is queued.
    AtOnce,
    /// When the request gets its slot, before its prefill.
    WithSlot,
    /// With the first event.
    WithFirstEvent,
}

impl Persona {
    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Persona::LlamaCpp => "llamacpp",
            Persona::Vllm => "vllm",
            Persona::Sglang => "sglang",
            Persona::OpenAi => "openai",
        }
    }

    pub(crate) fn head_timing(self) -> HeadTiming {
        match self {
            Persona::LlamaCpp => HeadTiming::WithSlot,
            Persona::Vllm => HeadTiming::AtOnce,
            Persona::Sglang | Persona::OpenAi => HeadTiming::WithFirstEvent,
        }
    }

    /// llama.cpp closes 0.5 to 4 ms after each streamed reply, although its head promised keep-alive.
    pub(crate) fn closes_after_stream(self) -> bool {
        self == Persona::LlamaCpp
    }

    /// Requests served on one connection before the reply says `Connection: close`.
    pub(crate) fn requests_per_connection_max(self) -> u64 {
        if self == Persona::LlamaCpp { 100 } else { u64::MAX }
    }

    /// How long a whole (not streamed) reply is still computed after the client closed its side. llama.cpp polls: 0.6 s was
    /// measured, and a client that only half-closed gets a reply that is done by then.
    pub(crate) fn half_closed_grace_ms(self) -> u64 {
        if self == Persona::LlamaCpp { 600 } else { 0 }
    }
}

impl fmt::Display for Persona {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Persona {
    type Err = UnknownPersona;

    fn from_str(name: &str) -> Result<Self, UnknownPersona> {
        [Persona::LlamaCpp, Persona::Vllm, Persona::Sglang, Persona::OpenAi]
            .into_iter()
            .find(|persona| persona.name() == name)
            .ok_or_else(|| UnknownPersona(name.to_owned()))
    }
}

/// A name that is none of the personas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownPersona(String);

impl fmt::Display for UnknownPersona {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no engine persona is called {:?}: llamacpp, vllm, sglang, openai", self.0)
    }
}

impl std::error::Error for UnknownPersona {}
