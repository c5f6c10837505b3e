//! Simulated inference engines: a pure model of continuous batching behind a server that speaks as llama.cpp, vLLM, SGLang or
//! a plain OpenAI server does on the wire, with faults on demand. It stands in for a GPU fleet in tests, demos and benchmarks.
//! It never computes with a model: replies are pseudo-words that follow from the prompt.

mod ask;
pub mod cli;
pub(crate) mod clock;
mod core;
mod errors;
mod faults;
mod http;
mod info;
mod ledger;
pub mod model;
mod options;
mod persona;
mod serve;
pub(crate) mod shapes;
mod shared;
mod sim;
mod state;
pub mod text;

pub use ask::Api;
pub use faults::{Cut, CutHow, Faults, FaultsError, RateLimit};
pub use options::{EngineOptions, ReplyLength};
pub use persona::Persona;
pub use sim::{SimEngine, StartError};
pub use state::EngineState;
pub use text::words::{expected_text, text_hash};
