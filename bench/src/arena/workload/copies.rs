//! Several copies of a trace at once: a fleet so many times larger at the recorded pace. Templates stay shared between
//! copies, as a product's system prompts would; everything else gets blocks of its own.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::Request;
use crate::arena::mersenne::Mersenne;

/// Sessions that make a block a template.
const TEMPLATE_SESSIONS: usize = 4;
/// Furthest a copy is shifted, in seconds.
const SHIFT_S_MAX: f64 = 60.0;
/// The reference simulator's seed.
const SEED: u32 = 3;

/// `count` copies of the requests, in order of time.
pub fn copies(requests: &[Request], count: usize) -> Vec<Request> {
    if count <= 1 {
        return requests.to_vec();
    }
    let templates = templates(requests);
    let mut random = Mersenne::new(SEED);
    let mut all = Vec::with_capacity(requests.len() * count);
    for copy in 0..count as u64 {
        let (shift, offset) = (random.unit() * SHIFT_S_MAX, copy << 32);
        let own = |id: &u64| if templates.contains(id) { *id } else { offset + id };
        all.extend(requests.iter().map(|request| Request {
            at_s: request.at_s + shift,
            blocks: request.blocks.iter().map(own).collect::<Arc<[u64]>>(),
            session: offset + request.session,
            ..request.clone()
        }));
    }
    all.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    all
}

fn templates(requests: &[Request]) -> HashSet<u64> {
    let mut sessions: HashMap<u64, Vec<u64>> = HashMap::new();
    for request in requests {
        for id in request.blocks.iter() {
            let users = sessions.entry(*id).or_default();
            if users.len() < TEMPLATE_SESSIONS && !users.contains(&request.session) {
                users.push(request.session);
            }
        }
    }
    let shared = sessions.into_iter().filter(|(_, users)| users.len() >= TEMPLATE_SESSIONS);
    shared.map(|(id, _)| id).collect()
}
