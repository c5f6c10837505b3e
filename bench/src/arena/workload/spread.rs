//! Spreads ticks. The Mooncake files stamp by ticks of about three seconds with some ten requests each; replayed as they
//! stand every router would see bursts that never were.

use std::collections::HashMap;

use super::Request;
use crate::arena::mersenne::Mersenne;

/// Length of the last tick, whose end is not recorded, in seconds.
const LAST_TICK_S: f64 = 3.05;
/// The reference simulator's seed.
const SEED: u32 = 11;

/// Spreads each tick's requests, in order, up to the next tick, if the stamps are ticks.
pub(super) fn ticks(requests: &mut [Request]) {
    let mut times: Vec<f64> = requests.iter().map(|request| request.at_s).collect();
    times.sort_by(f64::total_cmp);
    times.dedup();
    if requests.len() < 2 * times.len() {
        return;
    }
    let ends = times.iter().skip(1).copied();
    let ends = ends.chain(times.last().map(|last| last + LAST_TICK_S));
    let end: HashMap<u64, f64> = times.iter().map(|at| at.to_bits()).zip(ends).collect();
    let mut random = Mersenne::new(SEED);
    for tick in groups(requests) {
        let mut draws: Vec<f64> = tick.iter().map(|_| random.unit()).collect();
        draws.sort_by(f64::total_cmp);
        for (at, draw) in tick.into_iter().zip(draws) {
            let start = requests[at].at_s;
            requests[at].at_s = start + draw * (end[&start.to_bits()] - start);
        }
    }
}

/// Places of the requests of each tick, ticks in the order they come up.
fn groups(requests: &[Request]) -> Vec<Vec<usize>> {
    let mut places: HashMap<u64, usize> = HashMap::new();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (at, request) in requests.iter().enumerate() {
        let group = *places.entry(request.at_s.to_bits()).or_insert(groups.len());
        if group == groups.len() {
            groups.push(Vec::new());
        }
        groups[group].push(at);
    }
    groups
}
