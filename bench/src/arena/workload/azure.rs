//! Azure's LLM inference traces (Patel et al., ISCA 2024): `TIMESTAMP,ContextTokens,GeneratedTokens`. They tell lengths
//! only, so nothing is ever reused: a workload for judging load balance, not placement.

use std::path::Path;

use super::stamp::seconds;
use super::{BLOCK_TOKENS, Request};
use crate::arena::ArenaError;

pub(super) fn read(path: &Path, lines: &[String]) -> Result<Vec<Request>, ArenaError> {
    let mut requests = Vec::with_capacity(lines.len());
    let mut fresh = 0;
    let rows = lines.iter().enumerate().skip(1).filter(|(_, text)| !text.trim().is_empty());
    for (index, text) in rows {
        let (at_s, prompt_tokens, output_tokens) = row(text).ok_or_else(|| {
            ArenaError::line(path, index, "not TIMESTAMP,ContextTokens,GeneratedTokens")
        })?;
        let blocks = prompt_tokens.div_ceil(BLOCK_TOKENS);
        requests.push(Request {
            at_s,
            prompt_tokens: prompt_tokens.max(1),
            output_tokens: output_tokens.max(1),
            blocks: (fresh..fresh + blocks).collect(),
            session: index as u64,
        });
        fresh += blocks;
    }
    Ok(requests)
}

fn row(text: &str) -> Option<(f64, u64, u64)> {
    let mut fields = text.trim().split(',');
    let at_s = seconds(fields.next()?)?;
    Some((at_s, fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}
