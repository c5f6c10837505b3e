//! The proxy's own access log, in JSON: when requests came, whose conversation they belong to, how long they were and how
//! much the engine had cached. The log holds no prompt and no block hash, so what prompts share is a reconstruction:
//!
//! - A request of a conversation continues the one before it: it shares as many leading blocks as the shorter of both has.
//! - What the engine had cached for a conversation's first request belongs to a template of that model, which all
//!   conversations of the model with as much cached share.
//! - A request without a conversation shares no more than its template.
//!
//! It shows load and turn-to-turn reuse truly, and templates as far as the engines reported cached tokens.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

use super::stamp::seconds;
use super::{BLOCK_TOKENS, Request};
use crate::arena::ArenaError;

#[derive(Deserialize)]
struct Line {
    time: String,
    end_ms: f64,
    model: Option<String>,
    conversation: Option<String>,
    prompt_tokens_estimated: u64,
    prompt_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cached_tokens: Option<u64>,
}

/// Whether these lines look like the log's.
pub(super) fn is_one(lines: &[String]) -> bool {
    lines.first().is_some_and(|line| {
        line.starts_with('{') && line.contains("\"request_id\"") && line.contains("\"end_ms\"")
    })
}

pub(super) fn read(path: &Path, lines: &[String]) -> Result<Vec<Request>, ArenaError> {
    let mut read = Vec::with_capacity(lines.len());
    for (index, text) in lines.iter().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
        let line: Line =
            serde_json::from_str(text).map_err(|error| ArenaError::line(path, index, error))?;
        let end_s = seconds(&line.time)
            .ok_or_else(|| ArenaError::line(path, index, "its time is no time stamp"))?;
        read.push((end_s - line.end_ms / 1000.0, line));
    }
    // Lines are written when requests end; conversations are followed in the order they began.
    read.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut known = Known::default();
    Ok(read.into_iter().map(|(at_s, line)| known.request(at_s, &line)).collect())
}

/// Ids given out so far. Each block's id is a number of its own; templates have one chain a model.
#[derive(Default)]
struct Known {
    templates: HashMap<String, Vec<u64>>,
    conversations: HashMap<String, (u64, Vec<u64>)>,
    blocks: u64,
    sessions: u64,
}

impl Known {
    fn request(&mut self, at_s: f64, line: &Line) -> Request {
        let prompt_tokens = line.prompt_tokens.unwrap_or(line.prompt_tokens_estimated).max(1);
        let wanted = prompt_tokens.div_ceil(BLOCK_TOKENS) as usize;
        let before = line.conversation.as_ref().and_then(|key| self.conversations.remove(key));
        let (session, mut chain) = before.unwrap_or_else(|| {
            let cached = line.cached_tokens.unwrap_or_default() / BLOCK_TOKENS;
            self.sessions += 1;
            (self.sessions - 1, self.template(line.model.as_deref(), cached as usize))
        });
        chain.truncate(wanted);
        self.grow(&mut chain, wanted);
        let blocks: Arc<[u64]> = chain.as_slice().into();
        if let Some(key) = &line.conversation {
            self.conversations.insert(key.clone(), (session, chain));
        }
        let output_tokens = line.output_tokens.unwrap_or_default().max(1);
        Request { at_s, prompt_tokens, output_tokens, blocks, session }
    }

    fn template(&mut self, model: Option<&str>, blocks: usize) -> Vec<u64> {
        let model = model.unwrap_or_default();
        let mut chain = self.templates.remove(model).unwrap_or_default();
        self.grow(&mut chain, blocks);
        let leading = chain[..blocks].to_vec();
        self.templates.insert(model.to_owned(), chain);
        leading
    }

    fn grow(&mut self, chain: &mut Vec<u64>, blocks: usize) {
        let missing = blocks.saturating_sub(chain.len()) as u64;
        chain.extend(self.blocks..self.blocks + missing);
        self.blocks += missing;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(second: u32, conversation: &str, prompt: u64, cached: u64) -> String {
        format!(
            "{{\"time\":\"2026-11-29T18:15:{second:02}.000Z\",\"request_id\":\"r\",\"end_ms\":500.0,\
             \"model\":\"m\",\"conversation\":\"{conversation}\",\"prompt_tokens_estimated\":1,\
             \"prompt_tokens\":{prompt},\"output_tokens\":7,\"cached_tokens\":{cached}}}"
        )
    }

    #[test]
    fn turns_extend_their_conversation_and_first_turns_share_a_template() {
        let lines = [line(3, "b", 2048, 1024), line(1, "a", 2048, 1536), line(9, "a", 4096, 0)];
        assert!(is_one(&lines));
        let requests = read(Path::new("access.log"), &lines).unwrap();
        let [a, b, again] = &requests[..] else { panic!("{requests:?}") };
        assert_eq!((a.session, again.session), (0, 0));
        assert_eq!(again.blocks[..4], a.blocks[..]);
        assert_eq!(b.blocks[..2], a.blocks[..2]);
        assert_ne!(b.blocks[2], a.blocks[2]);
        assert_eq!(again.at_s - a.at_s, 8.0);
    }
}
