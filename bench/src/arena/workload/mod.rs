//! What the arena replays: requests at their times, or sessions that wait for their answers. A workload is read or
//! generated whole before a run and never changed by one.
//!
//! A prompt is a list of block ids; equal ids mean equal whole prefixes, in every format read here.

mod access_log;
mod azure;
mod copies;
mod derive;
pub mod generator;
mod growth;
mod input;
mod mooncake;
mod spread;
mod stamp;

use std::path::Path;
use std::sync::Arc;

pub use copies::copies;
pub use growth::Sessions;
pub use input::stem;

use super::ArenaError;

/// Tokens in one block of every workload.
pub const BLOCK_TOKENS: u64 = 512;

/// One request of an open loop.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// When it comes, in seconds as recorded.
    pub at_s: f64,
    /// Tokens of its prompt.
    pub prompt_tokens: u64,
    /// Tokens of its answer, at least 1.
    pub output_tokens: u64,
    /// The blocks of its prompt, the last one perhaps partial.
    pub blocks: Arc<[u64]>,
    /// Which conversation it belongs to, as recorded or derived.
    pub session: u64,
}

/// What is replayed.
#[derive(Clone, Debug)]
pub enum Workload {
    /// Requests that come at their times, whatever became of the earlier ones.
    Open(Vec<Request>),
    /// Sessions whose next request follows the last one's answer.
    Closed(Sessions),
}

impl Workload {
    /// Reads a trace, by its name: `.csv` is Azure's, a name with `growth` the session format; by its
    /// first line the proxy's own access log; anything else is Mooncake's.
    /// A trailing `.gz` is unpacked. `generated` stands for the generator with its documented parameters.
    pub fn read(path: &Path, seed: u32) -> Result<Workload, ArenaError> {
        let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        if name == "generated" {
            let sessions = generator::sessions(&generator::Parameters::default(), seed);
            return Ok(Workload::Closed(sessions));
        }
        let lines = input::lines(path)?;
        if name.contains("growth") {
            return Ok(Workload::Closed(growth::read(path, &lines)?));
        }
        let requests = match name.contains(".csv") {
            true => azure::read(path, &lines)?,
            false if access_log::is_one(&lines) => access_log::read(path, &lines)?,
            false => mooncake::read(path, &lines)?,
        };
        match requests.len() {
            0 | 1 => Err(ArenaError::Empty(path.to_owned())),
            _ => Ok(Workload::Open(requests)),
        }
    }
}

/// Seconds between the first request and the last, and all their prompt tokens.
pub fn extent(requests: &[Request]) -> (f64, u64) {
    let times = requests.iter().map(|request| request.at_s);
    let last = times.clone().fold(f64::NEG_INFINITY, f64::max);
    let first = times.fold(f64::INFINITY, f64::min);
    (last - first, requests.iter().map(|request| request.prompt_tokens).sum())
}
