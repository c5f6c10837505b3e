//! The model of a running engine with everything that is counted around it. Whoever holds it may change it; nobody waits in it.

use std::collections::HashMap;

use tokio::sync::watch;

use super::clock::unix_ms;
use super::faults::Faults;
use super::info::histogram::Latencies;
use super::model::{Engine, Event, EventKind, Micros, Params, Refusal, Request, RequestId};
use super::options::EngineOptions;
use super::persona::Persona;
use super::shapes::Done;

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
    pub(super) connections: u64,
    pub(super) connections_open: u64,
    pub(super) aborted: u64,
    /// Requests refused because a fault said so.
    pub(super) refused: u64,
    /// SGLang: whether its last health probe failed.
    pub(super) unhealthy: bool,
    pub(super) next_id: u64,
    /// Inference requests of any fate.
    pub(super) inferences: u64,
}

impl Core {
    pub(super) fn new(options: &EngineOptions, faults: &Faults, now: Micros) -> Self {
        let sequence_tokens_max = options.sequence_tokens_max();
        let params = Params { sequence_tokens_max, ..options.params.clone() };
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
            refused: 0,
            unhealthy: false,
            next_id: 0,
            inferences: 0,
        };
        core.apply(options.persona, faults, now);
        core
    }

    /// Faults that are the model's business.
    pub(super) fn apply(&mut self, persona: Persona, faults: &Faults, now: Micros) {
        self.engine.set_pace(now, faults.pace());
        // llama.cpp has no way to refuse: a full one lets requests wait without a word.
        self.engine.set_admitting(now, !(faults.full && persona == Persona::LlamaCpp));
    }

    /// Moves the model to `now` and tells every request what happened to it.
    pub(super) fn tick(&mut self, now: Micros) {
        let mut events = std::mem::take(&mut self.events);
        self.engine.advance(now, &mut events);
        for event in events.drain(..) {
            self.dispatch(event);
        }
        self.events = events;
    }

    /// Hands a request to the model.
    pub(super) fn submit(
        &mut self,
        now: Micros,
        request: Request,
    ) -> Result<(RequestId, watch::Receiver<Progress>), Refusal> {
        let id = self.engine.submit(now, request)?;
        let progress = watch::Sender::new(Progress::default());
        let receiver = progress.subscribe();
        let watched = Watched { progress, submitted: now, first_token: now, last_token: now };
        self.watched.insert(id, watched);
        self.tick(now);
        Ok((id, receiver))
    }

    /// Takes a request back if it is still here.
    pub(super) fn abort(&mut self, now: Micros, id: RequestId) {
        if self.watched.remove(&id).is_some() {
            self.engine.cancel(now, id);
            self.aborted += 1;
        }
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
