//! The control thread: it watches the backends, publishes what it learns, serves the admin address and
//! takes the process from starting to stopping.
//!
//! It runs tokio on one thread of its own and is never on the path of a request: shards read what it
//! published. Nothing here is fast, and nothing here may make a shard wait.

mod detect;
mod giving;
pub mod http_client;
mod lifecycle;
mod llamacpp;
mod metrics_text;
pub mod models;
mod pace;
mod probe;
mod progress;
pub mod reading;
mod resolve;
mod scrape;
mod sglang;
mod vllm;
mod watch;
mod watchdog;

#[cfg(test)]
mod tests;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use index::BackendId;
use tokio::sync::{Mutex, watch as stages};

use crate::admin::{Admin, Explain};
use crate::clock;
use crate::insight::{Insight, Report};
use crate::learn;
use crate::limits::{AFFINITY_SWEEP_MS, PATROL_MS};
use crate::notify::Notify;
use crate::operator;
use crate::published::{Phase, Published, Sockets};
use giving::Giving;
pub(crate) use giving::Stock;
use lifecycle::Stage;
pub(crate) use progress::Progress;
use watch::Watch;

/// What a process wants of its control thread.
#[derive(Default)]
pub struct Options {
    /// Act on SIGTERM, SIGINT and SIGHUP. Tests that start several proxies in one process do without.
    pub signals: bool,
    /// Answers dry runs; without it they are answered 501.
    pub explain: Option<Box<dyn Explain>>,
    /// Who is told how the process is.
    pub(crate) notify: Arc<Notify>,
    /// What a successor may ask for.
    pub(crate) stock: Option<Stock>,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("signals", &self.signals).finish_non_exhaustive()
    }
}

/// The running control thread. Dropping it stops the thread too, without waiting for its end.
#[derive(Debug)]
pub struct Handle {
    stage: stages::Sender<Stage>,
    thread: Option<JoinHandle<()>>,
    admin: SocketAddr,
}

impl Handle {
    /// Where the admin address really is; tests ask for port 0.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin
    }

    /// Does what a stop signal does: not ready any more, then draining, then stopping. Saying it again
    /// cuts what is left at once.
    pub fn leave(&self) {
        self.stage.send_modify(|stage| *stage = stage.after_signal());
    }

    /// Does the same without the moment for balancers to notice: draining begins at once.
    pub fn drain_now(&self) {
        self.advance(Stage::Drain);
    }

    /// Ends the thread: phase `Stopping`, the admin address closed. Call it when the shards have ended.
    pub fn join(mut self) {
        self.advance(Stage::End);
        if let Some(thread) = self.thread.take() {
            // A panic there was its own; stopping goes on.
            let _ = thread.join();
        }
    }

    fn advance(&self, to: Stage) {
        self.stage.send_modify(|stage| *stage = to.max(*stage));
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.advance(Stage::End);
    }
}

/// Starts the control thread. `admin` listens already, so that an address in use is an error at start.
///
/// # Errors
/// When the runtime or the thread cannot be set up.
pub fn start(
    shared: &'static Published,
    learn: &learn::Handle,
    admin: TcpListener,
    options: Options,
) -> io::Result<Handle> {
    let insight = learn.insight();
    admin.set_nonblocking(true)?;
    let address = admin.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (sender, receiver) = stages::channel(Stage::Serve);
    let signals = options.signals.then(|| sender.clone());
    let progress = Arc::new(Progress::new(shared.upstreams.len(), shared.visits_at_once));
    let admin =
        Admin::new(shared, Arc::clone(&insight), Arc::clone(&progress), options.explain, admin);
    let Options { notify, stock, .. } = options;
    let giving = stock.map(|stock| (stock, sender.clone()));
    let control = Control { shared, insight, progress, receiver, signals, notify, giving };
    let thread = std::thread::Builder::new().name("control".to_owned()).spawn(move || {
        runtime.block_on(control.run(admin));
        // A resolver that hangs on its helper thread must not keep the process.
        runtime.shutdown_timeout(Duration::from_millis(100));
    })?;
    Ok(Handle { stage: sender, thread: Some(thread), admin: address })
}

struct Control {
    shared: &'static Published,
    insight: Arc<Insight>,
    progress: Arc<Progress>,
    receiver: stages::Receiver<Stage>,
    signals: Option<stages::Sender<Stage>>,
    notify: Arc<Notify>,
    giving: Option<(Stock, stages::Sender<Stage>)>,
}

impl Control {
    async fn run(self, admin: Admin) {
        let Control { shared, insight, progress, receiver, signals, notify, giving } = self;
        for id in (0..=u16::MAX).map(BackendId).take(shared.upstreams.len()) {
            match Watch::new(id, shared, &insight, &progress) {
                Some(watch) => drop(tokio::spawn(watch.run())),
                None => progress.first_round_done(),
            }
        }
        let publishing =
            publish(shared, Arc::clone(&insight), Arc::clone(&progress), Arc::clone(&notify));
        tokio::spawn(publishing);
        tokio::spawn(patrol(shared, Arc::clone(&insight), progress));
        tokio::spawn(forget_idle(shared));
        if let Some(sender) = signals {
            tokio::spawn(lifecycle::signals(sender, Arc::clone(&insight)));
        }
        tokio::spawn(watchdog::run(shared, Arc::clone(&notify)));
        let admin = tokio::spawn(serve_admin(shared, admin)).abort_handle();
        if let Some((Stock { door, offer }, stage)) = giving {
            let (insight, notify) = (Arc::clone(&insight), Arc::clone(&notify));
            let turn = Mutex::default();
            let giving = Giving { shared, insight, notify, stage, admin, offer, turn };
            tokio::spawn(giving.serve(door));
        }
        lifecycle::run(shared, &insight, &notify, receiver).await;
    }
}

/// A successor leaves the admin address to the running process until it can say more than "starting".
async fn serve_admin(shared: &'static Published, admin: Admin) {
    while shared.phase() == Phase::Starting && shared.sockets() == Sockets::Shared {
        tokio::time::sleep(Duration::from_millis(PATROL_MS)).await;
    }
    admin.serve().await;
}

/// Publishes routes when they changed, and readiness when the first round is over and somebody answered.
async fn publish(
    shared: &'static Published,
    insight: Arc<Insight>,
    progress: Arc<Progress>,
    notify: Arc<Notify>,
) {
    let mut catalog = models::Catalog::continuing(&shared.routes.load());
    loop {
        progress.wait().await;
        let began = clock::now();
        let routes = catalog.routes(&offers(&insight));
        if !models::same(&routes, &shared.routes.load()) {
            shared.routes.store(Arc::new(routes));
        }
        let answered = || insight.backends.iter().any(|backend| backend.report(|r| r.answered));
        if shared.phase() == Phase::Starting && progress.all_asked() && answered() {
            insight.set_admissible(admissible(shared));
            shared.set_phase(Phase::Ready);
            insight.journal.note(config::Level::Info, None, "ready");
            // A successor says so itself, once it has taken over.
            if shared.sockets() == Sockets::Own {
                notify.ready();
            }
        }
        // Changes meanwhile count as one: each visit to a fleet that comes up is one.
        let pause_us = pace::publishing_pause_us(clock::now().since(began));
        tokio::time::sleep(Duration::from_micros(pause_us)).await;
    }
}

fn offers(insight: &Insight) -> Vec<models::Offer> {
    let offer = |report: &mut Report| models::Offer {
        models: report.models.clone(),
        up: report.up && report.switch.admits(),
        told: report.told,
    };
    insight.backends.iter().map(|backend| backend.report(offer)).collect()
}

/// Wakes the tasks of backends whose breaker has opened or closed, tells of those that are drained, and keeps readiness' count.
async fn patrol(shared: &'static Published, insight: Arc<Insight>, progress: Arc<Progress>) {
    let mut ticks = tokio::time::interval(Duration::from_millis(PATROL_MS));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        insight.set_admissible(admissible(shared));
        for ((id, upstream), backend) in
            (0..=u16::MAX).map(BackendId).zip(&shared.upstreams).zip(&insight.backends)
        {
            if operator::note_drained(shared, id, backend, clock::now().millis()) {
                let message = "it is drained: nothing is in flight";
                insight.journal.note(config::Level::Info, Some(&upstream.name), message);
            }
            if upstream.breaker.look().epoch != backend.report(|report| report.breaker_epoch)
                && let Some(wake) = progress.wake(id)
            {
                wake.notify_one();
            }
        }
    }
}

/// Lets go of conversations that have been idle for too long, so that they no longer count as held.
async fn forget_idle(shared: &'static Published) {
    let mut ticks = tokio::time::interval(Duration::from_millis(AFFINITY_SWEEP_MS));
    loop {
        ticks.tick().await;
        shared.fleet.affinity().sweep(&shared.fleet, clock::now().millis());
    }
}

fn admissible(shared: &Published) -> usize {
    let ids = (0..=u16::MAX).map(BackendId).take(shared.upstreams.len());
    ids.filter(|id| shared.fleet.backend(*id).admits().is_ok()).count()
}
