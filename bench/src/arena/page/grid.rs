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
    /// These are what the policy is run with beside the others: the configured ones, or its own.
    set: bool,
    row: Row,
    /// Times to first token at evenly spaced shares, in seconds.
    ttft: Vec<f64>,
    terms: Vec<(&'static str, f64)>,
}

/// Runs the grid, around the weights of the policies with which the page begins.
pub(super) fn points(args: &Args, scale: &Scale, configured: Option<PolicyKind>) -> Vec<Point> {
    if args.no_grid {
        return Vec::new();
    }
    let settings: Vec<Setting> = TUNED
        .iter()
        .filter_map(|name| {
            configured.filter(|kind| kind.name() == *name).or(PolicyKind::parse(name))
        })
        .flat_map(around)
        .collect();
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(settings.len()));
    let take = || {
        loop {
            // Relaxed: the counter hands out numbers and publishes nothing.
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(setting) = settings.get(place) else { return };
            let Some(point) = point(args, scale, setting) else { continue };
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

/// Policies with weights to move.
const TUNED: [&str; 2] = ["cost", "prefix"];

/// A policy at some weights, and whether they are those it is run with.
struct Setting {
    policy: PolicyKind,
    weights: Vec<(&'static str, f64)>,
    set: bool,
}

fn point(args: &Args, scale: &Scale, setting: &Setting) -> Option<Point> {
    let Setting { policy, weights, set } = setting;
    let outcome = cells::run(args, scale, Kind::Product(*policy))?;
    let ttft = outcome.ttft_sorted();
    let shares = (0..=QUANTILES).map(|at| at as f64 / QUANTILES as f64);
    Some(Point {
        policy: policy.name(),
        weights: weights.clone(),
        set: *set,
        row: outcome.row(&scale.trace, policy.name(), args.capacity, &scale.setting),
        ttft: shares.map(|share| short(quantile(&ttft, share))).collect(),
        terms: outcome.terms.iter().map(|(name, value)| (*name, short(*value))).collect(),
    })
}

/// The grid of a policy's weights, its own among them.
fn around(policy: PolicyKind) -> Vec<Setting> {
    let axes = weights(policy);
    let own: Vec<f64> = axes.iter().map(|axis| axis.own).collect();
    let mut points = vec![Vec::new()];
    for axis in &axes {
        let values = axis.values();
        let longer = |point: &Vec<f64>| {
            values.iter().map(|value| [&point[..], &[*value]].concat()).collect::<Vec<_>>()
        };
        points = points.iter().flat_map(longer).collect();
    }
    let setting = |values: Vec<f64>| {
        let names = axes.iter().map(|axis| axis.name);
        let weights = names.zip(values.iter().copied()).collect();
        Setting { policy: with(policy, &values), weights, set: values == own }
    };
    points.into_iter().map(setting).collect()
}

/// A weight: the name it is configured by, what the policy has, and what the grid has.
struct Weight {
    name: &'static str,
    own: f64,
    grid: &'static [f64],
}

impl Weight {
    /// The grid's values and the policy's own, in order.
    fn values(&self) -> Vec<f64> {
        let mut values = [self.grid, &[self.own]].concat();
        values.sort_by(f64::total_cmp);
        values.dedup();
        values
    }
}

/// A policy's weights.
fn weights(policy: PolicyKind) -> Vec<Weight> {
    let weight = |name, own, grid| Weight { name, own, grid };
    match policy {
        PolicyKind::Cost { recompute_max, request_tokens, .. } => vec![
            weight("a_max", recompute_max, &A_MAX),
            weight("request_charge_tokens", request_tokens, &REQUEST_TOKENS),
        ],
        PolicyKind::Prefix { w_hit, w_queue, w_pressure } => vec![
            weight("weight_hit", w_hit, &W_HIT),
            weight("weight_queue", w_queue, &W_QUEUE),
            weight("weight_pressure", w_pressure, &W_PRESSURE),
        ],
        _ => Vec::new(),
    }
}

/// The same policy with other weights, in the order [`weights`] gives them.
fn with(mut policy: PolicyKind, values: &[f64]) -> PolicyKind {
    match (&mut policy, values) {
        (PolicyKind::Cost { recompute_max, request_tokens, .. }, [a_max, tokens]) => {
            (*recompute_max, *request_tokens) = (*a_max, *tokens);
        }
        (PolicyKind::Prefix { w_hit, w_queue, w_pressure }, [hit, queue, pressure]) => {
            (*w_hit, *w_queue, *w_pressure) = (*hit, *queue, *pressure);
        }
        _ => {}
    }
    policy
}
