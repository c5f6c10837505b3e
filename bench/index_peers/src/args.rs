//! The command line.

use std::path::PathBuf;

use clap::Parser;

use crate::plan::Shape;

/// The trace looked for in the folder `TRACES`.
const TRACE: &str = "mooncake_conversation.jsonl.gz";

/// Replays a trace against our index and those of other routers.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Args {
    /// A Mooncake trace, packed or not; by default the conversation trace in the folder TRACES.
    #[arg(long)]
    pub(crate) trace: Option<PathBuf>,
    /// Sizes of the fleet, each measured on its own.
    #[arg(long, value_delimiter = ',', default_value = "8,32,128")]
    pub(crate) backends: Vec<usize>,
    /// Blocks of 512 tokens that each backend holds.
    #[arg(long, default_value_t = 2000)]
    pub(crate) capacity: usize,
    /// Blocks each of those is cut into: 1 for 512 tokens, 32 for the 16 of a vLLM block.
    #[arg(long, default_value_t = 1)]
    pub(crate) split: usize,
    /// Requests replayed at most in one trial, after the caches were filled.
    #[arg(long, default_value_t = 200_000)]
    pub(crate) requests: usize,
    /// Threads that look up; updates have one of their own.
    #[arg(long, default_value_t = 1)]
    pub(crate) fronts: usize,
    /// How often everything is measured, the indexes taking turns.
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: usize,
    /// Only the indexes whose names contain this.
    #[arg(long)]
    pub(crate) only: Option<String>,
    /// Where the results go; cells measured before, of other sizes, stay in it.
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
    /// Measures one index's memory and nothing else: what the program starts itself with.
    #[arg(long, hide = true)]
    pub(crate) memory_of: Option<String>,
}

impl Args {
    /// Where the trace is, if anybody said.
    pub(crate) fn trace_path(&self) -> Option<PathBuf> {
        let folder = || std::env::var_os("TRACES").map(|folder| PathBuf::from(folder).join(TRACE));
        self.trace.clone().or_else(folder)
    }

    pub(crate) fn shape(&self, backends: usize) -> Shape {
        let Self { capacity, split, requests, .. } = *self;
        Shape { backends, capacity, split, measured: requests }
    }
}
