//! Sessions for traces that name none: a request continues an earlier one when it contains all of that one's blocks but
//! at most the last, partial one, and that prefix has at most two continuations; with more it is a template.

use std::collections::HashMap;

use super::Request;

/// What is known of a block: who ended on it last, and how it goes on.
#[derive(Default)]
struct Seen {
    owner: Option<usize>,
    /// Up to three distinct blocks that follow; a third makes it a template.
    next: Vec<u64>,
}

/// Shortest prefix that tells a session, in blocks.
const SHARED_BLOCKS_MIN: usize = 2;
/// Most continuations of a prefix that is a session's.
const CONTINUATIONS_MAX: usize = 2;

/// Fills in each request's session.
pub(super) fn sessions(requests: &mut [Request]) {
    let mut seen: HashMap<u64, Seen> = HashMap::new();
    let mut sessions = 0;
    for at in 0..requests.len() {
        let blocks = requests[at].blocks.clone();
        let known = |id: &&u64| seen.get(id).is_some_and(|seen| seen.owner.is_some());
        let shared = blocks.iter().take_while(known).count();
        let continued = continued(requests, &seen, &blocks[..shared]);
        requests[at].session = continued.unwrap_or_else(|| {
            sessions += 1;
            sessions - 1
        });
        note(&mut seen, &blocks, shared, at);
    }
}

fn continued(requests: &[Request], seen: &HashMap<u64, Seen>, shared: &[u64]) -> Option<u64> {
    let last = seen.get(shared.last().filter(|_| shared.len() >= SHARED_BLOCKS_MIN)?)?;
    let owner = &requests[last.owner?];
    let whole = shared.len() + 1 >= owner.blocks.len();
    (whole && last.next.len() <= CONTINUATIONS_MAX).then_some(owner.session)
}

fn note(seen: &mut HashMap<u64, Seen>, blocks: &[u64], shared: usize, at: usize) {
    for (place, id) in blocks.iter().enumerate() {
        let seen = seen.entry(*id).or_default();
        if let Some(next) = blocks.get(place + 1)
            && seen.next.len() <= CONTINUATIONS_MAX
            && !seen.next.contains(next)
        {
            seen.next.push(*next);
        }
        if place >= shared || place + 2 == blocks.len() || seen.owner.is_none() {
            seen.owner = Some(at);
        }
    }
}
