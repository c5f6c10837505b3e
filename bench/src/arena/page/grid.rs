//! The grid of weights a page carries: the simulator's results for each, since a page cannot run it.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use index::PolicyKind;
use serde::Serialize;

use super::{QUANTILES, short};
use crate::arena::args::Args;
use crate::arena::cells::{self, Scale};
use crate::arena::results::{Row, quantile};
use crate::arena::routers::Kind;

/// `cost`: weight on recomputation under load.
const A_MAX: [f64; 7] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];
/// `cost`: tokens a request in flight.
const REQUEST_TOKENS: [f64; 5] = [0.0, 100.0, 300.0, 1000.0, 3000.0];
/// `prefix`: each of its weights.
const W_HIT: [f64; 4] = [0.2, 0.4, 0.7, 1.0];
const W_QUEUE: [f64; 4] = [0.0, 0.1, 0.3, 1.0];
const W_PRESSURE: [f64; 3] = [0.0, 0.3, 1.0];

/// A run at some weights.
#[derive(Debug, Serialize)]
pub(super) struct Point {
    policy: &'static str,
    /// Name and value of each weight.
    weights: Vec<(&'static str, f64)>,
    row: Row,
    /// Times to first token at evenly spaced shares, in seconds.
    ttft: Vec<f64>,
    terms: Vec<(&'static str, f64)>,
}

/// Runs the grid.
pub(super) fn points(args: &Args, scale: &Scale) -> Vec<Point> {
    if args.no_grid {
        return Vec::new();
    }
    let settings: Vec<(PolicyKind, Vec<(&str, f64)>)> = costs().chain(prefixes()).collect();
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(settings.len()));
    let take = || {
        loop {
            // Relaxed: the counter hands out numbers and publishes nothing.
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some((policy, weights)) = settings.get(place) else { return };
            let Some(point) = point(args, scale, *policy, weights) else { continue };
            done.lock().unwrap_or_else(PoisonError::into_inner).push((place, point));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..args.jobs.max(1) {
            scope.spawn(take);
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, point)| point).collect()
}

fn point(
    args: &Args,
    scale: &Scale,
    policy: PolicyKind,
    weights: &[(&'static str, f64)],
) -> Option<Point> {
    let outcome = cells::run(args, scale, Kind::Product(policy))?;
    let ttft = outcome.ttft_sorted();
    let shares = (0..=QUANTILES).map(|at| at as f64 / QUANTILES as f64);
    Some(Point {
        policy: policy.name(),
        weights: weights.to_vec(),
        row: outcome.row(&scale.trace, policy.name(), args.capacity, &scale.setting),
        ttft: shares.map(|share| short(quantile(&ttft, share))).collect(),
        terms: outcome.terms.iter().map(|(name, value)| (*name, short(*value))).collect(),
    })
}

fn costs() -> impl Iterator<Item = (PolicyKind, Vec<(&'static str, f64)>)> {
    A_MAX.into_iter().flat_map(|a| REQUEST_TOKENS.into_iter().map(move |tokens| cost(a, tokens)))
}

fn cost(a_max: f64, tokens: f64) -> (PolicyKind, Vec<(&'static str, f64)>) {
    let mut policy = PolicyKind::DEFAULT;
    if let PolicyKind::Cost { recompute_max, request_tokens, .. } = &mut policy {
        (*recompute_max, *request_tokens) = (a_max, tokens);
    }
    (policy, vec![("a_max", a_max), ("request_charge_tokens", tokens)])
}

fn prefixes() -> impl Iterator<Item = (PolicyKind, Vec<(&'static str, f64)>)> {
    let pressures = |w_hit, w_queue| {
        W_PRESSURE.into_iter().map(move |w_pressure| prefix(w_hit, w_queue, w_pressure))
    };
    W_HIT
        .into_iter()
        .flat_map(|w_hit| W_QUEUE.into_iter().map(move |w_queue| (w_hit, w_queue)))
        .flat_map(move |(w_hit, w_queue)| pressures(w_hit, w_queue))
}

fn prefix(w_hit: f64, w_queue: f64, w_pressure: f64) -> (PolicyKind, Vec<(&'static str, f64)>) {
    let weights =
        vec![("weight_hit", w_hit), ("weight_queue", w_queue), ("weight_pressure", w_pressure)];
    (PolicyKind::Prefix { w_hit, w_queue, w_pressure }, weights)
}
