//! Where a run's requests come from: a trace at its times, or sessions that go on after their answers. The order of
//! sessions is drawn from a seed of its own, as the reference simulator does.

use super::job::{Job, Place};
use super::mersenne::Mersenne;
use super::workload::{Request, Sessions};

/// How a closed loop runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClosedOptions {
    /// Sessions at once, over all engines.
    pub sessions: usize,
    /// The first ones start spread over so many seconds.
    pub ramp_s: f64,
    /// Longer think times count as this, in seconds.
    pub think_s_max: f64,
    /// Seed of the sessions' order.
    pub order_seed: u32,
}

/// Pause between a session's end and the start of the one that takes its place, in seconds.
const REPLACED_AFTER_S: f64 = 1.0;

/// Where requests come from.
#[derive(Debug)]
pub enum Source<'w> {
    /// A trace, and how far it was read.
    Open {
        /// The requests.
        requests: &'w [Request],
        /// Recorded seconds a simulated one.
        compression: f64,
        /// The next one to come.
        next: usize,
    },
    /// Sessions.
    Closed(Box<Closed<'w>>),
}

/// Sessions being run.
#[derive(Debug)]
pub struct Closed<'w> {
    sessions: &'w Sessions,
    options: ClosedOptions,
    random: Mersenne,
    /// Sessions to start, the last one next.
    order: Vec<usize>,
    /// Sessions started.
    started: u64,
}

impl<'w> Source<'w> {
    /// The requests of a trace, so many times as fast as recorded.
    pub fn open(requests: &'w [Request], compression: f64) -> Self {
        Source::Open { requests, compression, next: 0 }
    }

    /// Sessions that run side by side.
    pub fn closed(sessions: &'w Sessions, options: ClosedOptions) -> Self {
        let random = Mersenne::new(options.order_seed);
        let order = Vec::new();
        Source::Closed(Box::new(Closed { sessions, options, random, order, started: 0 }))
    }

    /// The next request known before the run begins, with its time.
    pub fn first(&mut self) -> Option<(f64, Job)> {
        match self {
            Source::Open { requests, compression, next } => {
                let request = requests.get(*next)?;
                *next += 1;
                Some((request.at_s / *compression, job(request)))
            }
            Source::Closed(closed) => closed.first(),
        }
    }

    /// The request that follows this one's answer.
    pub fn after(&mut self, job: &Job, now_s: f64) -> Option<(f64, Job)> {
        match self {
            Source::Open { .. } => None,
            Source::Closed(closed) => closed.after(job, now_s),
        }
    }
}

impl Closed<'_> {
    fn first(&mut self) -> Option<(f64, Job)> {
        if self.started as usize >= self.options.sessions {
            return None;
        }
        let job = self.next_session();
        Some((self.random.unit() * self.options.ramp_s, job))
    }

    fn after(&mut self, job: &Job, now_s: f64) -> Option<(f64, Job)> {
        let Place { session, turn } = job.place?;
        match self.sessions.sessions[session].get(turn + 1) {
            Some(next) => {
                let at_s = now_s + next.think_s.min(self.options.think_s_max);
                Some((at_s, self.turn(job.session, Place { session, turn: turn + 1 })))
            }
            None => Some((now_s + REPLACED_AFTER_S, self.next_session())),
        }
    }

    fn next_session(&mut self) -> Job {
        if self.order.is_empty() {
            self.order.extend(0..self.sessions.sessions.len());
            self.random.shuffle(&mut self.order);
        }
        let session = self.order.pop().unwrap_or_default();
        self.started += 1;
        self.turn(self.started, Place { session, turn: 0 })
    }

    fn turn(&self, number: u64, place: Place) -> Job {
        let turn = &self.sessions.sessions[place.session][place.turn];
        let blocks = self.sessions.blocks(place.session, place.turn, number);
        let job = Job::new(blocks, turn.prompt_tokens, turn.output_tokens, number);
        Job { place: Some(place), ..job }
    }
}

fn job(request: &Request) -> Job {
    let Request { blocks, prompt_tokens, output_tokens, session, .. } = request;
    Job::new(blocks.clone(), *prompt_tokens, *output_tokens, *session)
}
