//! The pure model of an inference engine with continuous batching: a queue, slots, one prefill at a time, token clock, paged KV
//! memory with a prefix cache. It has no clock, no thread and no randomness of its own: time is an argument and the same calls
//! always give the same events, so whole fleets can be simulated from a seed. The model follows what vLLM does: a finished
//! chain is released tail first, a prompt reuses the longest leading run of its blocks present when its prefill begins.

mod blocks;
mod events;
mod job;
mod pace;
mod params;
mod slot_caches;
mod work;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

pub use events::{Counters, Event, EventKind, Load, Refusal, Request, RequestId, Slot};
pub use params::{Memory, Micros, Params, Prefill};

use blocks::Blocks;
use job::{Job, Stage};
use pace::Pace;
use slot_caches::SlotCaches;

/// One modelled engine.
#[derive(Debug)]
pub struct Engine {
    params: Params,
    pace: Pace,
    /// 1 = as configured, 0 = nothing moves.
    factor: f64,
    /// Whether waiting requests may get slots.
    admitting: bool,
    blocks: Blocks,
    jobs: HashMap<RequestId, Job>,
    next_id: u64,
    queue: VecDeque<RequestId>,
    /// Requests in slots whose prompts are not begun.
    prefills: VecDeque<RequestId>,
    prefilling: Option<RequestId>,
    /// Running requests by the reading of the token clock at which they have their next event. Entries of requests that left
    /// are dropped when they come to the top.
    decodes: BinaryHeap<Reverse<(u64, RequestId)>>,
    decoding: usize,
    slots: Vec<Slot>,
    slot_caches: SlotCaches,
    counters: Counters,
    outbox: Vec<Event>,
    jitter: fastrand::Rng,
}

impl Engine {
    /// An idle engine with an empty cache, at time 0.
    pub fn new(params: Params) -> Self {
        let mut engine = Self {
            pace: Pace::default(),
            factor: 1.0,
            admitting: true,
            blocks: Blocks::new(params.kv_blocks),
            jobs: HashMap::new(),
            next_id: 0,
            queue: VecDeque::new(),
            prefills: VecDeque::new(),
            prefilling: None,
            decodes: BinaryHeap::new(),
            decoding: 0,
            slots: vec![Slot::default(); params.slots.max(1)],
            slot_caches: SlotCaches::new(params.slots.max(1)),
            counters: Counters::default(),
            outbox: Vec::new(),
            jitter: fastrand::Rng::with_seed(params.seed),
            params,
        };
        engine.update_rates();
        engine
    }

    /// What it was made with.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Takes a request at `now`. Its events come out of [`Engine::advance`]. A reply that would outgrow the context is cut
    /// there.
    pub fn submit(&mut self, now: Micros, mut request: Request) -> Result<RequestId, Refusal> {
        self.run_to(now);
        if let Some(refusal) = self.refusal(&request) {
            self.counters.refused += 1;
            return Err(refusal);
        }
        let room = self.params.sequence_tokens_max - request.prompt_tokens;
        request.reply_tokens = request.reply_tokens.min(room);
        let id = RequestId(self.next_id);
        self.next_id += 1;
        self.counters.submitted += 1;
        self.note_named(&request);
        self.jobs.insert(id, Job::new(request));
        self.queue.push_back(id);
        self.schedule();
        Ok(id)
    }

    /// Takes a request back: whatever it held is free at `now`, what it computed stays as cache. False if it is not here.
    pub fn cancel(&mut self, now: Micros, id: RequestId) -> bool {
        self.run_to(now);
        let Some(job) = self.jobs.get(&id) else { return false };
        self.counters.cancelled += 1;
        match job.stage {
            Stage::Queued => {
                self.queue.retain(|other| *other != id);
                self.jobs.remove(&id);
            }
            Stage::Admitted | Stage::Prefilling | Stage::Decoding(_) => self.release(id),
        }
        self.schedule();
        true
    }

    /// Lets time pass until `now` and appends what happened, oldest first.
    pub fn advance(&mut self, now: Micros, events: &mut Vec<Event>) {
        self.run_to(now);
        events.append(&mut self.outbox);
    }

    /// When [`Engine::advance`] will have something to tell; none = not before the next call that changes something.
    pub fn next_event_at(&self) -> Option<Micros> {
        if self.outbox.is_empty() { self.next_change_at() } else { Some(self.pace.now()) }
    }

    /// Makes everything `factor` times as fast as configured from `now` on; 0 stops it.
    pub fn set_pace(&mut self, now: Micros, factor: f64) {
        self.run_to(now);
        self.factor = factor.max(0.0);
        self.update_rates();
    }

    /// Whether waiting requests may get slots from `now` on.
    pub fn set_admitting(&mut self, now: Micros, admitting: bool) {
        self.run_to(now);
        self.admitting = admitting;
        self.schedule();
    }

    /// Forgets every block that no running request holds.
    pub fn forget_cache(&mut self) {
        self.blocks.forget_cached();
        for (number, slot) in self.slots.iter().enumerate() {
            if slot.running.is_none() {
                self.slot_caches.forget(number);
            }
        }
    }

    /// The engine as of the last call.
    pub fn load(&self) -> Load {
        let uncomputed = |ids: &VecDeque<RequestId>| -> u64 {
            let tokens = |id| self.jobs.get(id).map_or(0, |job| job.request.prompt_tokens);
            ids.iter().map(|id| u64::from(tokens(id))).sum()
        };
        let current = self.pace.prefill_left().div_ceil(pace::TOKEN);
        Load {
            running: self.slots.iter().filter(|slot| slot.running.is_some()).count(),
            waiting: self.queue.len(),
            pending_tokens: current + uncomputed(&self.queue) + uncomputed(&self.prefills),
            blocks_in_use: self.blocks.in_use(),
            blocks_cached: self.blocks.cached(),
        }
    }

    /// What it did so far.
    pub fn counters(&self) -> Counters {
        Counters { evicted_blocks: self.blocks.evicted(), ..self.counters }
    }

    /// Its slots, in order.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Leading tokens of a prompt that a request arriving now would reuse.
    pub fn would_reuse(&self, prompt_blocks: &[u64], prompt_tokens: u32) -> u32 {
        self.params.reusable(self.blocks.ready_prefix(prompt_blocks), prompt_tokens)
    }

    fn refusal(&self, request: &Request) -> Option<Refusal> {
        let limit = self.params.sequence_tokens_max;
        if request.prompt_tokens >= limit {
            return Some(Refusal::TooLong { tokens: request.prompt_tokens, limit });
        }
        let over = |count: usize, max: Option<usize>| max.is_some_and(|max| count >= max);
        let waits = !self.queue.is_empty() || !self.admitting || self.free_slot().is_none();
        let pending = self.params.pending_tokens_max;
        let busy = (waits && over(self.queue.len(), self.params.queue_max))
            || over(self.jobs.len(), self.params.in_flight_max)
            || pending.is_some_and(|max| self.load().pending_tokens >= max);
        busy.then_some(Refusal::Busy)
    }

    /// A busy slot that is named loses what it holds, although the request only begins later.
    fn note_named(&mut self, request: &Request) {
        let Some(slot) = self.named_slot(request) else { return };
        self.counters.named += 1;
        if self.slots[slot].running.is_some() {
            self.counters.named_busy += 1;
            self.slot_caches.forget(slot);
        }
    }

    fn named_slot(&self, request: &Request) -> Option<usize> {
        request.slot.map(|slot| slot % self.slots.len())
    }

    fn free_slot(&self) -> Option<usize> {
        self.slots.iter().position(|slot| slot.running.is_none())
    }

    fn emit(&mut self, id: RequestId, kind: EventKind) {
        self.outbox.push(Event { at: self.pace.now(), id, kind });
    }

    fn update_rates(&mut self) {
        let (prefill, decode) = self.params.rates(self.prefilling.is_some(), self.decoding);
        // Nobody reads the token clock while nothing runs: it stands still.
        let decode = if self.decoding == 0 { 0.0 } else { decode };
        self.pace.set_rates(prefill * self.factor, decode * self.factor);
    }
}
