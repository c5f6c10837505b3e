//! What all tasks of one engine share: the model behind a lock that is never held across an await, faults, counters, and the
//! word that everything must end. One driver task moves the model; requests only wait for their progress.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};

use super::clock::{Clock, unix_ms};
use super::faults::{Cut, CutHow, Faults};
use super::info::histogram::Latencies;
use super::model::{
    Counters, Engine, Event, EventKind, Load, Micros, Params, Refusal, Request, RequestId, Slot,
};
use super::options::EngineOptions;
use super::persona::Persona;
use super::shapes::Done;

/// What an engine did and does, as `GET /sim/state` tells it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EngineState {
    /// Changes with every (simulated) process start.
    pub identity: String,
    /// Start of that process, milliseconds since 1970.
    pub started_ms: u64,
    /// HTTP requests of any kind.
    pub http_requests: u64,
    /// Connections accepted.
    pub connections: u64,
    /// Connections open now.
    pub connections_open: u64,
    /// Inference requests accepted by the model.
    pub requests: u64,
    /// Inference requests with a slot.
    pub running: u64,
    /// Inference requests waiting for one.
    pub waiting: u64,
    /// Requests answered to the end.
    pub finished: u64,
    /// Requests whose client left first, or that a fault cut.
    pub aborted: u64,
    /// Requests refused for lack of room.
    pub refused: u64,
    /// Requests that failed because the pool was exhausted.
    pub overflowed: u64,
    /// Prompt tokens of requests whose prefill is done.
    pub prompt_tokens: u64,
    /// Of these, reused.
    pub cached_tokens: u64,
    /// Of these, computed.
    pub computed_tokens: u64,
    /// Tokens produced.
    pub generated_tokens: u64,
    /// Prompt tokens waiting to be computed.
    pub pending_tokens: u64,
    /// KV blocks of running requests.
    pub kv_blocks_in_use: u64,
    /// KV blocks kept for reuse.
    pub kv_blocks_cached: u64,
    /// KV blocks there are.
    pub kv_blocks: u64,
    /// Blocks pushed out of the cache.
    pub evicted_blocks: u64,
}

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

/// How far a request is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) started: bool,
    pub(super) prefilled: bool,
    pub(super) ended: bool,
    pub(super) overflowed: bool,
    pub(super) done: Done,
}

#[derive(Debug)]
struct Watched {
    progress: watch::Sender<Progress>,
    submitted: Micros,
    first_token: Micros,
    last_token: Micros,
}

#[derive(Debug)]
pub(super) struct Core {
    pub(super) engine: Engine,
    watched: HashMap<RequestId, Watched>,
    events: Vec<Event>,
    pub(super) latencies: Latencies,
    pub(super) identity: u64,
    pub(super) started_ms: u64,
    pub(super) http_requests: u64,
    connections: u64,
    connections_open: u64,
    aborted: u64,
    /// SGLang: whether its last health probe failed.
    pub(super) unhealthy: bool,
    next_id: u64,
    /// Inference requests of any fate.
    inferences: u64,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: EngineOptions,
    pub(super) clock: Clock,
    core: Mutex<Core>,
    pub(super) wake: Notify,
    pub(super) faults: watch::Sender<Faults>,
    pub(super) life: watch::Sender<Life>,
}

impl Core {
    fn new(options: &EngineOptions, faults: &Faults, now: Micros) -> Self {
        let context_tokens_max = options.context_tokens();
        let params = Params { context_tokens_max, ..options.params.clone() };
        let mut core = Self {
            engine: Engine::new(params),
            watched: HashMap::new(),
            events: Vec::new(),
            latencies: Latencies::default(),
            identity: fastrand::u64(..),
            started_ms: unix_ms(),
            http_requests: 0,
            connections: 0,
            connections_open: 0,
            aborted: 0,
            unhealthy: false,
            next_id: 0,
            inferences: 0,
        };
        core.apply(options.persona, faults, now);
        core
    }

    /// Faults that are the model's business.
    fn apply(&mut self, persona: Persona, faults: &Faults, now: Micros) {
        self.engine.set_pace(now, faults.pace());
        // llama.cpp has no way to refuse: a full one lets requests wait without a word.
        self.engine.set_admitting(now, !(faults.full && persona == Persona::LlamaCpp));
    }

    /// Moves the model to `now` and tells every request what happened to it.
    fn tick(&mut self, now: Micros) {
        let mut events = std::mem::take(&mut self.events);
        self.engine.advance(now, &mut events);
        for event in events.drain(..) {
            self.dispatch(event);
        }
        self.events = events;
    }

    fn dispatch(&mut self, event: Event) {
        let Some(watched) = self.watched.get_mut(&event.id) else { return };
        self.latencies.observe(&event, watched.submitted, watched.last_token);
        if let EventKind::Token { produced } = event.kind {
            if produced == 1 {
                watched.first_token = event.at;
            }
            watched.last_token = event.at;
        }
        let decode_us = event.at.saturating_sub(watched.first_token);
        watched.progress.send_modify(|progress| progress.apply(event, decode_us));
        if matches!(event.kind, EventKind::Finished | EventKind::Overflowed) {
            self.watched.remove(&event.id);
        }
    }
}

impl Progress {
    fn apply(&mut self, event: Event, decode_us: Micros) {
        match event.kind {
            EventKind::Started { slot } => {
                self.started = true;
                self.done.slot = slot;
            }
            EventKind::PrefillDone { cached, computed, began } => {
                self.prefilled = true;
                self.done.cached = cached;
                self.done.computed = computed;
                self.done.prefill_us = event.at - began;
            }
            EventKind::Token { produced } => {
                self.done.produced = produced;
                self.done.decode_us = decode_us;
            }
            EventKind::Finished => self.ended = true,
            EventKind::Overflowed => {
                self.ended = true;
                self.overflowed = true;
            }
        }
    }
}

impl Shared {
    pub(super) fn new(options: EngineOptions) -> Arc<Self> {
        let clock = Clock::new();
        let core = Core::new(&options, &options.faults, clock.now());
        Arc::new(Self {
            clock,
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
        let id = core.engine.submit(now, request)?;
        let sender = watch::Sender::new(Progress::default());
        let progress = sender.subscribe();
        let watched =
            Watched { progress: sender, submitted: now, first_token: now, last_token: now };
        core.watched.insert(id, watched);
        core.tick(now);
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

    pub(super) fn state(&self) -> EngineState {
        let core = self.core();
        let (load, counters) = (core.engine.load(), core.engine.counters());
        EngineState {
            identity: format!("{:016x}", core.identity),
            started_ms: core.started_ms,
            http_requests: core.http_requests,
            connections: core.connections,
            connections_open: core.connections_open,
            aborted: core.aborted,
            kv_blocks: core.engine.params().kv_blocks as u64,
            ..state_of(load, counters)
        }
    }
}

fn state_of(load: Load, counters: Counters) -> EngineState {
    EngineState {
        requests: counters.submitted,
        running: load.running as u64,
        waiting: load.waiting as u64,
        finished: counters.finished,
        refused: counters.refused,
        overflowed: counters.overflowed,
        prompt_tokens: counters.prompt_tokens,
        cached_tokens: counters.cached_tokens,
        computed_tokens: counters.computed_tokens,
        generated_tokens: counters.generated_tokens,
        pending_tokens: load.pending_tokens,
        kv_blocks_in_use: load.blocks_in_use as u64,
        kv_blocks_cached: load.blocks_cached as u64,
        evicted_blocks: counters.evicted_blocks,
        ..EngineState::default()
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
        if core.identity == self.identity && core.watched.remove(&self.id).is_some() {
            core.engine.cancel(now, self.id);
            core.aborted += 1;
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

/// The slots and what the monitoring endpoints need of the rest, at one moment.
#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    pub(super) load: Load,
    pub(super) counters: Counters,
    pub(super) slots: Vec<Slot>,
    pub(super) latencies: Latencies,
    pub(super) identity: u64,
    pub(super) started_ms: u64,
    pub(super) aborted: u64,
}

impl Shared {
    pub(super) fn snapshot(&self) -> Snapshot {
        self.tick();
        let core = self.core();
        Snapshot {
            load: core.engine.load(),
            counters: core.engine.counters(),
            slots: core.engine.slots().to_vec(),
            latencies: core.latencies.clone(),
            identity: core.identity,
            started_ms: core.started_ms,
            aborted: core.aborted,
        }
    }
}
