//! A running workload: started, watched, stopped.
//!
//! It runs on threads and a runtime of its own, so that a program may start one from anywhere
//! without lending it an executor. It never ends the process and never prints.

use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::runtime::{Handle as RuntimeHandle, Runtime};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::budget::Budget;
use super::closed::{self, Places};
use super::exchange::Client;
use super::live::LiveStats;
use super::open::{self, Arrival, Population, Replay};
use super::options::{Load, Options};
use super::stop::Stop;
use super::{Error, arrival, seed, trace};
use crate::report::Report;

/// A workload to be started.
#[derive(Debug)]
pub struct Workload;

/// A workload that was started. Dropping it stops the load.
#[derive(Debug)]
pub struct Handle {
    shared: Arc<Shared>,
    ended: watch::Receiver<bool>,
    thread: Option<JoinHandle<()>>,
}

/// What the parts of a running workload have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) budget: Budget,
    pub(crate) stop: Stop,
    pub(crate) started: Instant,
    /// When no further request begins.
    pub(crate) deadline: Option<Instant>,
}

/// Held by whatever may still send or receive; the workload is over when all are gone.
pub(crate) type Alive = mpsc::Sender<()>;

impl Workload {
    /// Checks the options, resolves the addresses, reads the trace, and begins to send.
    pub fn start(options: Options) -> Result<Handle, Error> {
        options.check()?;
        let plan = Plan::new(&options)?;
        let runtime = runtime(options.threads)?;
        let until = options.until;
        let client = Client::new(options)?;
        let started = Instant::now();
        let shared = Arc::new(Shared {
            client,
            budget: Budget::new(until.requests),
            stop: Stop::new(),
            started,
            deadline: until.duration.map(|duration| started + duration),
        });
        let (alive, all_gone) = mpsc::channel(1);
        let issued = plan.begin(&shared, runtime.handle(), alive)?;
        let (told, ended) = watch::channel(false);
        let running = shared.clone();
        let thread = std::thread::Builder::new()
            .name("loadgen".to_owned())
            .spawn(move || {
                runtime.block_on(run(&running, issued, all_gone));
                // Whatever is still in flight is hung up on here, and counted as unfinished.
                drop(runtime);
                told.send_replace(true);
            })
            .map_err(Error::Start)?;
        Ok(Handle { shared, ended, thread: Some(thread) })
    }
}

impl Handle {
    /// The figures so far.
    pub fn snapshot(&self) -> LiveStats {
        self.shared.client.recorder.snapshot()
    }

    /// The whole report; complete once the workload has ended.
    pub fn report(&self) -> Report {
        self.shared.client.recorder.report()
    }

    /// Ends the load now: nothing further is sent, and replies in flight are hung up on.
    /// Returns at once; [`Handle::wait`] or [`Handle::ended`] tell when all is closed.
    pub fn stop(&self) {
        self.shared.stop.set();
    }

    /// Whether the workload has ended, by itself or by [`Handle::stop`].
    pub fn is_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// Waits until the workload has ended, on any executor.
    pub async fn ended(&self) {
        // An error means that its thread is gone, which is an end as well.
        let _ = self.ended.clone().wait_for(|ended| *ended).await;
    }

    /// Blocks until the workload has ended.
    pub fn wait(mut self) -> Report {
        self.join();
        self.report()
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic of its thread was already printed; what was measured is still worth telling.
            let _ = thread.join();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What is sent when, decided before the start.
#[derive(Debug)]
enum Plan {
    Open { schedule: arrival::Schedule, population: Population },
    Replay(Replay),
    Closed(Places),
}

impl Plan {
    fn new(options: &Options) -> Result<Plan, Error> {
        Ok(match &options.load {
            Load::Open { rate_per_s, arrivals, conversations, turns } => Plan::Open {
                schedule: arrival::Schedule::new(
                    *rate_per_s,
                    *arrivals,
                    seed::rng(options.seed, seed::Stream::Arrivals, 0),
                ),
                population: Population::new(options.seed, *conversations, *turns),
            },
            Load::Closed { conversations, turns, think, ramp } => Plan::Closed(Places {
                count: *conversations,
                turns: *turns,
                think: *think,
                ramp: *ramp,
            }),
            Load::Trace(trace) => {
                Plan::Replay(Replay::new(trace::load(trace, options.seed)?, trace.clone()))
            }
        })
    }
}

impl Plan {
    /// Begins to send. What is returned tells when nothing further will be sent; a closed loop
    /// without a time limit tells it by being over.
    fn begin(
        self,
        shared: &Arc<Shared>,
        runtime: &RuntimeHandle,
        alive: Alive,
    ) -> Result<Issued, Error> {
        match self {
            Plan::Open { schedule, population } => {
                let population = Arc::new(population);
                let arrivals = schedule.map(move |at| (at, Arrival::Next(population.clone())));
                open::start(shared, arrivals, runtime, alive).map(Issued::Told)
            }
            Plan::Replay(replay) => {
                open::start(shared, replay.arrivals(), runtime, alive).map(Issued::Told)
            }
            Plan::Closed(places) => {
                closed::start(shared, places, runtime, alive);
                Ok(shared.deadline.map_or(Issued::WhenOver, Issued::At))
            }
        }
    }
}

/// When the last request has been sent.
#[derive(Debug)]
enum Issued {
    Told(oneshot::Receiver<()>),
    At(Instant),
    WhenOver,
}

impl Issued {
    async fn wait(self) {
        match self {
            // The sender says so by going away.
            Issued::Told(issued) => drop(issued.await),
            Issued::At(deadline) => sleep_until(deadline).await,
            Issued::WhenOver => std::future::pending().await,
        }
    }
}

/// Runs until all replies are in, or late ones have been waited for long enough, or stopped.
async fn run(shared: &Shared, issued: Issued, mut all_gone: mpsc::Receiver<()>) {
    let too_late = async {
        issued.wait().await;
        sleep(shared.client.options.drain).await;
    };
    tokio::select! {
        _ = all_gone.recv() => {}
        () = too_late => {}
        () = shared.stop.stopped() => {}
    }
}

fn runtime(threads: usize) -> Result<Runtime, Error> {
    let mut builder = match threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    builder.worker_threads(threads).thread_name("loadgen-io").enable_all();
    builder.build().map_err(Error::Start)
}
