//! One replay against one index. Every operation has an intended time; whoever is late starts at once and catches up, and
//! what it is late by is counted. The clock stops when the last update is done.
//!
//! A lookup's time is in three parts. *Wait*: it was due, and the thread was still busy with what came before. *Lag*: the
//! thread was free and the harness, or the scheduler, let it start late. *Service*: the index's own call.

use std::sync::Barrier;

use crate::clock::Clock;
use crate::contenders::{Contender, filled, keys};
use crate::cores::Cores;
use crate::plan::{Plan, Request};
use crate::spread::Spread;

/// How long a trial should take, seconds: long against a scheduler's turns.
const TRIAL_S: f64 = 0.4;
/// Fewest requests of a trial.
const REQUESTS_MIN: usize = 10_000;

/// Requests that take long enough at so many a second.
pub(crate) fn enough(rate: f64) -> usize {
    ((rate * TRIAL_S) as usize).max(REQUESTS_MIN)
}

/// An index keeps up with a rate if it does this part of it, the last update included.
const KEPT_UP: f64 = 0.99;

/// What is asked of an index.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    /// Updates alone, so many requests', as fast as they can be handed over.
    Updates(usize),
    /// Lookups alone, so many, as fast as they go.
    Lookups(usize),
    /// Lookups and updates of so many requests, as fast as they go.
    FlatOut(usize),
    /// Lookups and updates at the trace's times, compressed to so many requests a second.
    Rate(f64),
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) requests: usize,
    /// Blocks stored and evicted.
    pub(crate) block_updates: usize,
    /// From the first intended time to the last update done, in seconds.
    pub(crate) seconds: f64,
    /// Requests a second that were to be done; 0 without deadlines.
    pub(crate) offered: f64,
    pub(crate) times: Times,
}

impl Outcome {
    /// Requests a second that were done.
    pub(crate) fn achieved(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    pub(crate) fn kept_up(&self) -> bool {
        self.achieved() >= self.offered * KEPT_UP
    }
}

/// Times of all operations, in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Times {
    /// When the first thread began.
    start_ns: u64,
    pub(crate) service: Spread,
    pub(crate) wait: Spread,
    pub(crate) lag: Spread,
    /// Handing the request's updates over.
    pub(crate) hand_over: Spread,
    /// How often somebody else was given a looking thread's core.
    pub(crate) preempted: u64,
}

impl Times {
    fn new(start_ns: u64, count: usize) -> Self {
        let spread = || Spread::with_capacity(count);
        let (service, wait, lag, hand_over) = (spread(), spread(), spread(), spread());
        Self { start_ns, service, wait, lag, hand_over, preempted: 0 }
    }

    fn add(&mut self, other: Self) {
        self.start_ns = self.start_ns.min(other.start_ns);
        self.service.add(other.service);
        self.wait.add(other.wait);
        self.lag.add(other.lag);
        self.hand_over.add(other.hand_over);
        self.preempted += other.preempted;
    }
}

/// One request, ready to be played.
struct Operation<C: Contender> {
    due_ns: u64,
    keys: Vec<C::Key>,
    update: C::Update,
}

/// Plays a part of the plan against a new, filled index. A backend's requests are all played by the same one of `fronts`
/// threads, so that its updates stay in order.
pub(crate) fn run<C: Contender>(plan: &Plan, cores: &Cores, fronts: usize, load: Load) -> Outcome {
    let requests = part(plan, load);
    let (scale, offered) = deadlines(requests, load);
    cores.enter_updates();
    let index = filled::<C>(plan);
    cores.enter_lookups(0);
    let mut played: Vec<Vec<Operation<C>>> = (0..fronts).map(|_| Vec::new()).collect();
    for request in requests {
        played[usize::from(request.backend) % fronts].push(Operation {
            due_ns: ((request.at - requests[0].at) * scale) as u64,
            keys: keys::<C>(plan.prompt(request)),
            update: C::update(plan, request),
        });
    }
    let clock = Clock::start();
    let barrier = Barrier::new(fronts);
    let mut times = Times { start_ns: u64::MAX, ..Times::default() };
    std::thread::scope(|scope| {
        let front = |(at, operations): (usize, Vec<Operation<C>>)| {
            let (index, barrier) = (&index, &barrier);
            scope.spawn(move || {
                cores.enter_lookups(at);
                barrier.wait();
                play(index, clock, operations, load)
            })
        };
        let threads: Vec<_> = played.into_iter().enumerate().map(front).collect();
        threads.into_iter().filter_map(|t| t.join().ok()).for_each(|t| times.add(t));
    });
    index.settle();
    let seconds = (clock.ns() - times.start_ns) as f64 / 1e9;
    let block_updates = Plan::block_updates(requests);
    Outcome { requests: requests.len(), block_updates, seconds, offered, times }
}

/// As much of the plan as takes long enough at that rate.
fn part(plan: &Plan, load: Load) -> &[Request] {
    let measured = plan.measured();
    let wanted = match load {
        Load::Rate(rate) => enough(rate),
        Load::Updates(count) | Load::Lookups(count) | Load::FlatOut(count) => count,
    };
    &measured[..wanted.min(measured.len())]
}

/// Nanoseconds for each second of the trace, and requests a second offered.
fn deadlines(requests: &[Request], load: Load) -> (f64, f64) {
    match (load, requests) {
        (Load::Rate(rate), [first, .., last]) => {
            (requests.len() as f64 / rate * 1e9 / (last.at - first.at), rate)
        }
        _ => (0.0, 0.0),
    }
}

fn play<C: Contender>(index: &C, clock: Clock, operations: Vec<Operation<C>>, load: Load) -> Times {
    let mut reader = index.reader();
    let mut prompt = Vec::new();
    let preempted = preemptions();
    let start = clock.ns();
    let mut times = Times::new(start, operations.len());
    let mut free = start;
    for operation in operations {
        if !matches!(load, Load::Updates(_)) {
            let due = start + operation.due_ns;
            // In a router the prompt has just been hashed, so its keys are in cache.
            prompt.clear();
            prompt.extend_from_slice(&operation.keys);
            let begin = clock.wait_until(due);
            let found = index.lookup(&mut reader, std::hint::black_box(&prompt));
            let end = clock.ns();
            drop(std::hint::black_box(found));
            times.service.take(end - begin);
            times.wait.take(free.saturating_sub(due));
            times.lag.take(begin - free.max(due));
            free = end;
        }
        if !matches!(load, Load::Lookups(_)) {
            index.hand_over(operation.update);
        }
        let end = clock.ns();
        times.hand_over.take(end - free);
        free = end;
    }
    times.preempted = preemptions().saturating_sub(preempted);
    times
}

/// How often the calling thread lost its core although it wanted to go on.
fn preemptions() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}
