//! Tokens and blocks of a text. A token is four bytes; a block is a run of tokens; a block's id is a hash chained over all
//! blocks before it, as paged engines name theirs.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::words::TOKEN_BYTES;

/// Tokens of a text of so many bytes.
pub fn token_count(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(TOKEN_BYTES)).unwrap_or(u32::MAX)
}

/// The block ids of a prompt and of the reply that follows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chain {
    /// Whole blocks of the prompt, then its partly filled one if asked for.
    pub prompt: Vec<u64>,
    /// Blocks that become whole with the reply.
    pub reply: Vec<u64>,
}

/// Cuts `prompt` and `reply` into blocks of `block_tokens` tokens. `root` goes into every id: what must not share, differs in
/// it. With `tail` the prompt's partly filled last block gets an id of its own.
pub fn chain(root: u64, prompt: &str, reply: &str, block_tokens: u32, tail: bool) -> Chain {
    let block = block_tokens.max(1) as usize * TOKEN_BYTES;
    let mut last = root;
    let mut ids = |bytes: &[u8]| -> Vec<u64> {
        let mut found = Vec::with_capacity(bytes.len() / block);
        for one in bytes.chunks_exact(block) {
            last = xxh3_64_with_seed(one, last);
            found.push(last);
        }
        found
    };
    let mut prompt_ids = ids(prompt.as_bytes());
    let whole = prompt.len() / block * block;
    let rest = &prompt.as_bytes()[whole..];
    let parent = prompt_ids.last().copied().unwrap_or(root);
    let mut onward = Vec::with_capacity(rest.len() + reply.len());
    onward.extend_from_slice(rest);
    onward.extend_from_slice(reply.as_bytes());
    let reply_ids = ids(&onward);
    if tail && !rest.is_empty() {
        prompt_ids.push(xxh3_64_with_seed(rest, !parent));
    }
    Chain { prompt: prompt_ids, reply: reply_ids }
}
