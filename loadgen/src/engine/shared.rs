//! What all tasks of one engine share: the core behind a lock that is never held across an await, faults, and the word that
//! everything must end. One driver task moves the model; requests only wait for their progress.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

use super::clock::Clock;
use super::core::{Core, Progress};
use super::faults::{Cut, CutHow, Faults};
use super::ledger::Ledger;
use super::model::{Micros, Refusal, Request, RequestId};
use super::options::EngineOptions;

/// Whether the engine goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Life {
    pub(super) phase: Phase,
    /// Rises with every restart; connections of an older one are reset.
    pub(super) generation: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Running,
    /// No new requests; those here are answered.
    Stopping,
    /// Everything ends at once.
    Killed,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: EngineOptions,
    pub(super) clock: Clock,
    pub(super) ledger: Ledger,
    core: Mutex<Core>,
    pub(super) wake: Notify,
    pub(super) faults: watch::Sender<Faults>,
    pub(super) life: watch::Sender<Life>,
}

impl Shared {
    pub(super) fn new(options: EngineOptions, ledger: Ledger) -> Arc<Self> {
        let clock = Clock::new();
        let core = Core::new(&options, &options.faults, clock.now());
        Arc::new(Self {
            clock,
            ledger,
            core: Mutex::new(core),
            wake: Notify::new(),
            faults: watch::Sender::new(options.faults.clone()),
            life: watch::Sender::new(Life { phase: Phase::Running, generation: 0 }),
            options,
        })
    }

    /// The core. A panic of another holder leaves plain data behind that is still the best there is.
    pub(super) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves the model to now; tells when to do it again.
    pub(super) fn tick(&self) -> Option<Micros> {
        let now = self.clock.now();
        let mut core = self.core();
        core.tick(now);
        core.engine.next_event_at()
    }

    /// Hands a request to the model.
    pub(super) fn submit(self: &Arc<Self>, request: Request) -> Result<Ticket, Refusal> {
        let now = self.clock.now();
        let mut core = self.core();
        let (id, progress) = core.submit(now, request)?;
        let identity = core.identity;
        drop(core);
        self.wake.notify_one();
        Ok(Ticket { shared: Arc::clone(self), id, identity, progress })
    }

    /// Changes whenever the model did anything for anyone.
    pub(super) fn signs_of_life(&self) -> (u64, u64) {
        self.tick();
        let counters = self.core().engine.counters();
        (counters.prompt_tokens, counters.generated_tokens)
    }

    /// Whether a token could be computed at once.
    pub(super) fn idle_and_able(&self) -> bool {
        let load = self.core().engine.load();
        load.running + load.waiting == 0 && self.faults.borrow().pace() > 0.0
    }

    /// Whether a stream that has sent so many events is cut now.
    pub(super) fn take_cut(&self, sent: u32) -> Option<CutHow> {
        let due = |faults: &Faults| faults.cut.filter(|cut| sent >= cut.after_events);
        due(&self.faults.borrow())?;
        let mut taken = None;
        self.faults.send_if_modified(|faults| {
            // Looked at again: another stream may have taken the last one.
            let Some(cut) = due(faults) else { return false };
            taken = Some(cut.how);
            let times = cut.times.map(|times| times.saturating_sub(1));
            faults.cut = (times != Some(0)).then_some(Cut { times, ..cut });
            cut.times.is_some()
        });
        taken
    }

    /// Counts an inference request; true if it is one of those that are dropped.
    pub(super) fn due_to_drop(&self) -> bool {
        let every = self.faults.borrow().drop_every;
        let mut core = self.core();
        core.inferences += 1;
        every.is_some_and(|every| core.inferences.is_multiple_of(u64::from(every.max(1))))
    }

    pub(super) fn patch_faults(&self, change: impl FnOnce(&mut Faults)) {
        self.faults.send_modify(change);
        let faults = self.faults.borrow().clone();
        let now = self.clock.now();
        let mut core = self.core();
        core.apply(self.options.persona, &faults, now);
        core.tick(now);
        drop(core);
        self.wake.notify_one();
    }

    /// The process dies and comes back: cache, counters and identity are new, connections are reset.
    pub(super) fn restart(&self) {
        let faults = self.faults.borrow().clone();
        *self.core() = Core::new(&self.options, &faults, self.clock.now());
        self.life.send_modify(|life| life.generation += 1);
        self.wake.notify_one();
    }

    pub(super) fn forget_cache(&self) {
        self.core().engine.forget_cache();
    }

    /// A fault refuses a request.
    pub(super) fn count_refusal(&self) {
        self.core().refused += 1;
    }

    pub(super) fn count_request(&self) {
        self.core().http_requests += 1;
    }

    /// A connection begins; it ends when the guard does.
    pub(super) fn open_connection(self: &Arc<Self>) -> OpenConnection {
        let mut core = self.core();
        core.connections += 1;
        core.connections_open += 1;
        OpenConnection { shared: Arc::clone(self), identity: core.identity }
    }

    /// Sixteen characters no other request of any engine has.
    pub(super) fn fresh_id(&self) -> String {
        let mut core = self.core();
        core.next_id += 1;
        let mixed = (core.identity ^ core.next_id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        format!("{mixed:016x}")
    }
}

/// A request in the model. Dropping it takes the request back, which is how generation stops when a client leaves.
#[derive(Debug)]
pub(super) struct Ticket {
    shared: Arc<Shared>,
    id: RequestId,
    identity: u64,
    pub(super) progress: watch::Receiver<Progress>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let now = self.shared.clock.now();
        let mut core = self.shared.core();
        // After a restart the number may belong to another request.
        if core.identity == self.identity {
            core.abort(now, self.id);
            drop(core);
            self.shared.wake.notify_one();
        }
    }
}

#[derive(Debug)]
pub(super) struct OpenConnection {
    shared: Arc<Shared>,
    identity: u64,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let mut core = self.shared.core();
        if core.identity == self.identity {
            core.connections_open = core.connections_open.saturating_sub(1);
        }
    }
}
