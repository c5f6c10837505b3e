//! Mooncake's trace format (Qin et al., FAST 2025): one JSON object a line with `timestamp` (ms), `input_length`,
//! `output_length` and `hash_ids`, the prefix-chained ids of blocks of 512 tokens. The files name no session and stamp
//! by ticks, so sessions are derived and ticks spread.

use std::path::Path;

use serde::Deserialize;

use super::{Request, derive, spread};
use crate::arena::ArenaError;

#[derive(Deserialize)]
struct Line {
    timestamp: f64,
    input_length: u64,
    output_length: u64,
    hash_ids: Vec<u64>,
}

pub(super) fn read(path: &Path, lines: &[String]) -> Result<Vec<Request>, ArenaError> {
    let mut requests = Vec::with_capacity(lines.len());
    for (index, text) in lines.iter().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
        let line: Line =
            serde_json::from_str(text).map_err(|error| ArenaError::line(path, index, error))?;
        requests.push(Request {
            at_s: line.timestamp / 1000.0,
            prompt_tokens: line.input_length.max(1),
            output_tokens: line.output_length.max(1),
            blocks: line.hash_ids.into(),
            session: 0,
        });
    }
    derive::sessions(&mut requests);
    spread::ticks(&mut requests);
    Ok(requests)
}
