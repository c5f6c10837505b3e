//! Sessions that grow turn by turn, and the format recorded ones come in: one request a line, `s` its session, `a` its
//! agent within that, `th` ms of thinking before it, `in` and `out` tokens, `ref` the request of the session it extends
//! (-1: none), `keep` blocks of 64 tokens shared with that one, `new` blocks added, `tool` and `sys` tokens of tool
//! definitions and system prompt.
//!
//! That sessions with equal tool (or tool and system) sizes share those blocks is an assumption: ids are per session.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

use super::BLOCK_TOKENS;
use crate::arena::ArenaError;

/// Tokens in a recorded block.
const RECORDED_TOKENS: usize = 64;
/// Marks an id that all sessions share.
pub(super) const SHARED: u64 = 1 << 63;
/// Bits of a block's id within its session.
const SESSION_SHIFT: u32 = 24;

/// One request of a session.
#[derive(Clone, Debug)]
pub struct Turn {
    /// Tokens of its prompt.
    pub prompt_tokens: u64,
    /// Tokens of its answer, at least 1.
    pub output_tokens: u64,
    /// Blocks of its prompt, by ids of the session.
    pub blocks: Vec<u64>,
    /// Time between the answer before it and this request, in seconds.
    pub think_s: f64,
}

/// Sessions, each a list of turns.
#[derive(Clone, Debug, Default)]
pub struct Sessions {
    /// The sessions in the order of the file.
    pub sessions: Vec<Vec<Turn>>,
}

impl Sessions {
    /// A turn's blocks as the running session `number` has them: sessions run again get blocks of their own.
    pub fn blocks(&self, session: usize, turn: usize, number: u64) -> Arc<[u64]> {
        let own = |id: &u64| if id & SHARED != 0 { *id } else { (number << SESSION_SHIFT) + id };
        self.sessions[session][turn].blocks.iter().map(own).collect()
    }
}

#[derive(Deserialize)]
struct Line {
    s: u64,
    a: u64,
    th: Option<f64>,
    #[serde(rename = "in")]
    input: u64,
    out: u64,
    #[serde(rename = "ref")]
    extends: i64,
    keep: usize,
    new: u64,
    tool: usize,
    sys: usize,
}

pub(super) fn read(path: &Path, lines: &[String]) -> Result<Sessions, ArenaError> {
    let mut recorded: BTreeMap<u64, Vec<(usize, Line)>> = BTreeMap::new();
    for (index, text) in lines.iter().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
        let line: Line =
            serde_json::from_str(text).map_err(|error| ArenaError::line(path, index, error))?;
        recorded.entry(line.s).or_default().push((index, line));
    }
    if recorded.is_empty() {
        return Err(ArenaError::Empty(path.to_owned()));
    }
    let mut shared = HashMap::new();
    let session = |(_, lines): (u64, Vec<(usize, Line)>)| session(path, &lines, &mut shared);
    Ok(Sessions { sessions: recorded.into_iter().map(session).collect::<Result<_, _>>()? })
}

/// What two sessions share: the block at a place of equal tool definitions, or of equal tool and system prompts.
type SharedKey = (usize, Option<usize>, usize);

fn session(
    path: &Path,
    lines: &[(usize, Line)],
    shared: &mut HashMap<SharedKey, u64>,
) -> Result<Vec<Turn>, ArenaError> {
    let group = BLOCK_TOKENS as usize / RECORDED_TOKENS;
    let mut chains: Vec<Vec<u64>> = Vec::with_capacity(lines.len());
    let mut turns = Vec::with_capacity(lines.len());
    let (mut fresh, mut rooted) = (0, HashSet::new());
    for (index, line) in lines {
        let mut chain = kept(&chains, line)
            .ok_or_else(|| ArenaError::line(path, *index, "it extends a request not seen yet"))?;
        chain.extend(fresh..fresh + line.new);
        fresh += line.new;
        if line.extends < 0 && rooted.insert(line.a) {
            share(&mut chain, line, shared);
        }
        turns.push(Turn {
            prompt_tokens: line.input.max(1),
            output_tokens: line.out.max(1),
            blocks: chain.iter().skip(group - 1).step_by(group).copied().collect(),
            think_s: line.th.unwrap_or_default() / 1000.0,
        });
        chains.push(chain);
    }
    Ok(turns)
}

/// The blocks a request shares with the one it extends.
fn kept(chains: &[Vec<u64>], line: &Line) -> Option<Vec<u64>> {
    if line.extends < 0 {
        return Some(Vec::new());
    }
    let chain = chains.get(usize::try_from(line.extends).ok()?)?;
    Some(chain[..line.keep.min(chain.len())].to_vec())
}

/// Gives the leading tool and system blocks ids that all sessions with equal ones have.
fn share(chain: &mut [u64], line: &Line, shared: &mut HashMap<SharedKey, u64>) {
    let (tools, all) = (line.tool / RECORDED_TOKENS, (line.tool + line.sys) / RECORDED_TOKENS);
    for (place, id) in chain.iter_mut().enumerate().take(all) {
        let system = (place >= tools).then_some(line.sys);
        let next = shared.len() as u64;
        *id = SHARED | *shared.entry((line.tool, system, place)).or_insert(next);
    }
}
