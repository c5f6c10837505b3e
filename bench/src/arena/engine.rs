//! One engine: a prefill at a time at a fixed rate on tokens not cached, slots for running requests, and a prefix cache
//! of so many blocks where those of running requests are pinned and the rest is forgotten least recently used, a chain's
//! tail first. A request that does not fit waits. No engine knows of another.

use std::collections::VecDeque;

use super::holders::Holders;
use super::job::Job;
use super::memory::Memory;
use super::workload::BLOCK_TOKENS;

/// How an engine works.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EngineOptions {
    /// Blocks its cache holds.
    pub capacity: usize,
    /// Uncached tokens prefilled a second.
    pub prefill_rate: f64,
    /// Tokens a second of one running request.
    pub decode_rate: f64,
    /// Requests running at once.
    pub slots: usize,
    /// 0: first come, first served. Otherwise the least uncached work first, a second of waiting counting as so many
    /// tokens less.
    pub ageing_tokens: f64,
    /// 0: decoding is not disturbed by prefill. Otherwise prefill runs in chunks of so many tokens, each a step in which
    /// every running request gets one token.
    pub chunk_tokens: f64,
    /// How much a further request in the batch slows decoding: the rate is divided by 1 + this * (batch - 1).
    pub batch_slowdown: f64,
    /// Prompt tokens computed in one step. Of a prompt that is ended, whole steps stay in the cache; 0: nothing does.
    pub step_tokens: u64,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            capacity: 4000,
            prefill_rate: 8000.0,
            decode_rate: 40.0,
            slots: 64,
            ageing_tokens: 0.0,
            chunk_tokens: 0.0,
            batch_slowdown: 0.0,
            step_tokens: 2048,
        }
    }
}

impl EngineOptions {
    /// Whether decoding always goes at one rate.
    pub fn is_steady(&self) -> bool {
        self.chunk_tokens <= 0.0 && self.batch_slowdown <= 0.0
    }

    /// Tokens a second of each of `batch` requests decoding, beside a prefill or not.
    pub fn decode_rate(&self, batch: usize, prefilling: bool) -> f64 {
        let alone = self.decode_rate / (1.0 + self.batch_slowdown * (batch.max(1) - 1) as f64);
        match prefilling && self.chunk_tokens > 0.0 {
            true => alone.min(self.prefill_rate / self.chunk_tokens),
            false => alone,
        }
    }
}

/// Requests of a queue that are looked at when the least work goes first.
const QUEUE_LOOK: usize = 32;

/// A prefill that began.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Started {
    /// Whose.
    pub job: usize,
    /// How long it takes, in seconds.
    pub takes_s: f64,
    /// Tokens it computes.
    pub uncached_tokens: u64,
}

/// A prefill under way.
#[derive(Clone, Copy, Debug)]
struct Prefill {
    began_s: f64,
    started: Started,
}

/// What came of a prefill that was ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interrupted {
    /// Tokens it did not come to.
    pub undone_tokens: u64,
    /// Tokens it computed, and has to compute again.
    pub lost_tokens: u64,
}

/// One engine's state.
#[derive(Debug)]
pub struct Engine {
    at: usize,
    options: EngineOptions,
    memory: Memory,
    /// Blocks set aside for answers being written.
    answer_blocks: usize,
    queue: VecDeque<usize>,
    prefilling: Option<Prefill>,
    running: usize,
    worked_s: f64,
}

impl Engine {
    /// An idle engine, cold. `at` is its place in the fleet.
    pub fn new(at: usize, options: EngineOptions) -> Self {
        Self {
            at,
            options,
            memory: Memory::default(),
            answer_blocks: 0,
            queue: VecDeque::new(),
            prefilling: None,
            running: 0,
            worked_s: 0.0,
        }
    }

    /// Requests waiting in it.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Share of its memory in use by running requests, 0 to 1.
    pub fn pressure(&self) -> f64 {
        let used = self.memory.pinned() + self.answer_blocks;
        (used as f64 / self.options.capacity as f64).min(1.0)
    }

    /// Seconds of prefill it has begun.
    pub fn worked_s(&self) -> f64 {
        self.worked_s
    }

    /// Whether a prefill runs.
    pub fn is_prefilling(&self) -> bool {
        self.prefilling.is_some()
    }

    /// How it works.
    pub fn options(&self) -> &EngineOptions {
        &self.options
    }

    /// Loses everything but the account of its work.
    pub fn restart(&mut self, exact: Option<&mut Holders>) {
        if let Some(exact) = exact {
            self.memory.ids().for_each(|id| exact.remove(id, self.at));
        }
        let cold = Engine::new(self.at, self.options);
        *self = Engine { worked_s: self.worked_s, ..cold };
    }

    /// Takes a request into its queue.
    pub fn enqueue(&mut self, job: usize) {
        self.queue.push_back(job);
    }

    /// Begins the next prefill if it is free and the request fits. `exact` is told of blocks that come and go.
    pub fn start(
        &mut self,
        jobs: &mut [Job],
        exact: Option<&mut Holders>,
        now_s: f64,
    ) -> Option<Started> {
        if self.is_prefilling() || self.running >= self.options.slots {
            return None;
        }
        let place = self.next_in_queue(jobs, now_s)?;
        let job = *self.queue.get(place)?;
        let cached = self.memory.overlap(&jobs[job].blocks);
        if !self.fits(&jobs[job], cached) {
            return None;
        }
        self.queue.remove(place);
        self.occupy(&jobs[job], exact);
        let job_state = &mut jobs[job];
        job_state.cached_blocks = cached;
        let uncached_tokens = job_state.prompt_tokens - cached_tokens(job_state, cached);
        let takes_s = uncached_tokens as f64 / self.options.prefill_rate;
        self.worked_s += takes_s;
        let started = Started { job, takes_s, uncached_tokens };
        self.running += 1;
        self.prefilling = Some(Prefill { began_s: now_s, started });
        Some(started)
    }

    /// Ends a request whose prefill has not ended and puts it last in the queue. Of what it computed whole steps stay.
    /// `None` if its prefill had not begun.
    pub fn interrupt(
        &mut self,
        key: usize,
        job: &Job,
        exact: Option<&mut Holders>,
        now_s: f64,
    ) -> Option<Interrupted> {
        self.queue.retain(|queued| *queued != key);
        self.queue.push_back(key);
        let Prefill { began_s, started } = self.prefilling.take_if(|it| it.started.job == key)?;
        self.worked_s -= started.takes_s - (now_s - began_s);
        self.running -= 1;
        self.answer_blocks -= answer_blocks(job);
        let done = ((now_s - began_s) * self.options.prefill_rate) as u64;
        let done_tokens = done.min(started.uncached_tokens);
        let steps = done_tokens.checked_div(self.options.step_tokens).unwrap_or(0);
        let kept_tokens = steps * self.options.step_tokens;
        let kept_blocks = job.cached_blocks + (kept_tokens / BLOCK_TOKENS) as usize;
        self.forget(job, kept_blocks, exact);
        Some(Interrupted {
            undone_tokens: started.uncached_tokens - done_tokens,
            lost_tokens: done_tokens - kept_tokens,
        })
    }

    /// Lets a request's blocks go that it no longer uses, and forgets those beyond the first so many.
    fn forget(&mut self, job: &Job, kept_blocks: usize, mut exact: Option<&mut Holders>) {
        for (at, id) in job.blocks.iter().enumerate().rev() {
            self.memory.unpin(*id);
            if at >= kept_blocks
                && self.memory.drop_idle(*id)
                && let Some(exact) = exact.as_deref_mut()
            {
                exact.remove(*id, self.at);
            }
        }
    }

    /// The running prefill ended.
    pub fn prefilled(&mut self) {
        self.prefilling = None;
    }

    /// A request's answer ended: its blocks stay, idle, its tail the first to go.
    pub fn finish(&mut self, job: &Job) {
        self.running -= 1;
        self.answer_blocks -= answer_blocks(job);
        for id in job.blocks.iter().rev() {
            self.memory.unpin(*id);
        }
    }

    /// Which place of the queue is next.
    fn next_in_queue(&self, jobs: &[Job], now_s: f64) -> Option<usize> {
        if self.options.ageing_tokens <= 0.0 || self.queue.len() < 2 {
            return (!self.queue.is_empty()).then_some(0);
        }
        let cost = |job: &Job| {
            let cached = self.memory.overlap(&job.blocks) as u64 * BLOCK_TOKENS;
            let aged = self.options.ageing_tokens * (now_s - job.arrived_s);
            job.prompt_tokens as f64 - cached as f64 - aged
        };
        let looked = self.queue.iter().take(QUEUE_LOOK).map(|job| cost(&jobs[*job]));
        looked.enumerate().min_by(|a, b| a.1.total_cmp(&b.1)).map(|(place, _)| place)
    }

    /// Whether a request fits beside those running; one alone always does.
    fn fits(&self, job: &Job, cached: usize) -> bool {
        let rest = job.blocks[cached..].iter().filter(|id| !self.memory.holds(**id)).count();
        let pinned_by_it = job.blocks.iter().filter(|id| self.memory.holds_idle(**id)).count();
        let used = self.memory.pinned() + pinned_by_it + self.answer_blocks;
        self.running == 0 || used + rest + answer_blocks(job) <= self.options.capacity
    }

    /// Pins a request's blocks and forgets what has no room beside them.
    fn occupy(&mut self, job: &Job, mut exact: Option<&mut Holders>) {
        for id in job.blocks.iter() {
            if self.memory.pin(*id)
                && let Some(exact) = exact.as_deref_mut()
            {
                exact.add(*id, self.at);
            }
        }
        self.answer_blocks += answer_blocks(job);
        while self.memory.len() + self.answer_blocks > self.options.capacity {
            let Some(id) = self.memory.evict() else { return };
            if let Some(exact) = exact.as_deref_mut() {
                exact.remove(id, self.at);
            }
        }
    }
}

/// Tokens of `cached` blocks of a prompt; the last token is always computed.
fn cached_tokens(job: &Job, cached: usize) -> u64 {
    (cached as u64 * BLOCK_TOKENS).min(job.prompt_tokens.saturating_sub(1))
}

/// Blocks an answer takes.
fn answer_blocks(job: &Job) -> usize {
    job.output_tokens.div_ceil(BLOCK_TOKENS) as usize
}
