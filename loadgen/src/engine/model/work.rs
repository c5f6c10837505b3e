//! How requests move through the engine: queue, slot, prefill, tokens, end. Every step leaves the rates, the slots and the
//! memory consistent, so that the next one may start from any of them.

use std::cmp::Reverse;

use super::Engine;
use super::events::{EventKind, RequestId, Slot};
use super::job::{Job, Stage};
use super::pace::TOKEN;
use super::params::{Memory, Micros};

impl Engine {
    /// Handles everything that happens until `now`, in order.
    pub(super) fn run_to(&mut self, now: Micros) {
        while let Some(at) = self.next_change_at().filter(|at| *at <= now) {
            self.pace.move_to(at);
            if self.prefilling.is_some() && self.pace.prefill_left() == 0 {
                self.finish_prefill();
            } else {
                self.next_token();
            }
        }
        self.pace.move_to(now);
    }

    pub(super) fn next_change_at(&self) -> Option<Micros> {
        let prefill = self.prefilling.and_then(|_| self.pace.prefill_done_at());
        let token = self.decodes.peek().and_then(|Reverse((key, _))| self.pace.decoded_at(*key));
        match (prefill, token) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Starts whatever can start now. Called at the end of every step, never from inside one.
    pub(super) fn schedule(&mut self) {
        self.fill_slots();
        while !self.begin_prefill() {
            self.overflow();
            self.fill_slots();
        }
        self.update_rates();
    }

    /// Gives slots to waiting requests, first come first served: one that does not fit holds up those behind it, one that
    /// waits for the slot it named does not.
    fn fill_slots(&mut self) {
        let mut passed = 0;
        while self.admitting
            && self.free_slot().is_some()
            && let Some(&id) = self.queue.get(passed)
        {
            let Some(slot) = self.slot_for(id) else {
                passed += 1;
                continue;
            };
            if !self.take_memory(id) {
                return;
            }
            self.queue.remove(passed);
            self.occupy(id, slot);
            self.prefills.push_back(id);
        }
    }

    /// The idle slot of a waiting request; none if the one it named is busy.
    fn slot_for(&self, id: RequestId) -> Option<usize> {
        let request = &self.jobs.get(&id)?.request;
        match self.named_slot(request) {
            Some(slot) => Some(slot).filter(|slot| self.slots[*slot].running.is_none()),
            None if self.params.slot_caches => {
                self.slot_caches.choose(&self.slots, &request.prompt_blocks)
            }
            None => self.free_slot(),
        }
    }

    /// Reserves what a request will need. A request alone goes in any case, or it would wait for ever.
    fn take_memory(&mut self, id: RequestId) -> bool {
        let alone = self.slots.iter().all(|slot| slot.running.is_none());
        let Some(job) = self.jobs.get_mut(&id) else { return true };
        if self.params.memory == Memory::OnDemand {
            return true;
        }
        let reply = job.reply_blocks(&self.params, job.request.reply_tokens);
        if !alone && !self.blocks.fit(&job.request.prompt_blocks, reply) {
            return false;
        }
        job.pinned = true;
        job.nameless = reply;
        self.blocks.pin(&job.request.prompt_blocks);
        self.blocks.take_nameless(reply);
        true
    }

    fn occupy(&mut self, id: RequestId, slot: usize) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.stage = Stage::Admitted;
        job.slot = slot;
        self.slots[slot] = Slot {
            running: Some(id),
            prompt_tokens: job.request.prompt_tokens,
            tasks: self.slots[slot].tasks + 1,
            ..Slot::default()
        };
        self.emit(id, EventKind::Started { slot });
    }

    /// Starts computing the next prompt unless one is being computed; false if there is no room for it.
    fn begin_prefill(&mut self) -> bool {
        if self.prefilling.is_some() {
            return true;
        }
        let Some(id) = self.prefills.pop_front() else { return true };
        if !self.take_prompt_memory(id) {
            return false;
        }
        self.compute(id);
        true
    }

    /// With memory on demand the prompt's blocks are taken now; false if there is no room.
    fn take_prompt_memory(&mut self, id: RequestId) -> bool {
        let Some(job) = self.jobs.get_mut(&id) else { return true };
        if job.pinned {
            return true;
        }
        if !self.blocks.fit(&job.request.prompt_blocks, 0) {
            return false;
        }
        job.pinned = true;
        self.blocks.pin(&job.request.prompt_blocks);
        true
    }

    fn compute(&mut self, id: RequestId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let ready = if self.params.slot_caches {
            self.slot_caches.ready_prefix(job.slot, &job.request.prompt_blocks)
        } else {
            self.blocks.ready_prefix(&job.request.prompt_blocks)
        };
        job.cached = self.params.reusable(ready, job.request.prompt_tokens);
        job.stage = Stage::Prefilling;
        job.prefill_began = self.pace.now();
        self.slots[job.slot].cached_tokens = job.cached;
        let spread = 1.0 + self.params.jitter * (2.0 * self.jitter.f64() - 1.0);
        self.pace.begin_prefill(f64::from(job.to_compute()) * spread.max(0.0));
        self.prefilling = Some(id);
    }

    fn finish_prefill(&mut self) {
        let Some(id) = self.prefilling.take() else { return };
        let Some(job) = self.jobs.get_mut(&id) else { return };
        self.blocks.mark_ready(&job.request.prompt_blocks);
        let (cached, computed, began) = (job.cached, job.to_compute(), job.prefill_began);
        let reply_tokens = job.request.reply_tokens;
        self.slots[job.slot].computed_tokens = computed;
        self.counters.prompt_tokens += u64::from(cached) + u64::from(computed);
        self.counters.cached_tokens += u64::from(cached);
        self.counters.computed_tokens += u64::from(computed);
        self.counters.prefill_us += self.pace.now() - began;
        self.emit(id, EventKind::PrefillDone { cached, computed, began });
        if reply_tokens == 0 {
            self.finish(id);
        } else {
            self.decoding += 1;
            self.produce(id, 1);
        }
        self.schedule();
    }

    /// Handles the topmost entry of the token clock.
    fn next_token(&mut self) {
        let Some(Reverse((key, id))) = self.decodes.pop() else { return };
        let mut left = false;
        if let Some(job) = self.jobs.get(&id)
            && job.stage == Stage::Decoding(key)
        {
            let all = job.request.reply_tokens;
            let produced = if self.params.token_events { job.produced + 1 } else { all };
            left = self.produce(id, produced);
        }
        self.drop_stale_decodes();
        // Nothing can start unless something left: most tokens change nothing for anyone else.
        if left {
            self.schedule();
        }
    }

    /// A running request has `produced` tokens now. True if it, or all of them, left their slots by it.
    fn produce(&mut self, id: RequestId, produced: u32) -> bool {
        let now = self.pace.decoded();
        let Some(job) = self.jobs.get_mut(&id) else { return false };
        let before = job.produced;
        // From the entry handled, not from now: a token that came a microsecond late must not delay the ones after it.
        let from = match job.stage {
            Stage::Decoding(key) => key,
            // The batch's step it joins: its tokens come with everybody's from here on.
            _ if self.params.lockstep => now - now % TOKEN,
            _ => now,
        };
        job.produced = produced;
        let left = job.request.reply_tokens.saturating_sub(produced);
        let step = if self.params.token_events { 1 } else { left };
        let key = from + u64::from(step) * TOKEN;
        job.stage = Stage::Decoding(key);
        self.slots[job.slot].produced = produced;
        self.counters.generated_tokens += u64::from(produced - before);
        if !self.grow(id) {
            self.overflow();
            return true;
        }
        self.emit(id, EventKind::Token { produced });
        if left == 0 {
            self.finish(id);
        } else {
            self.decodes.push(Reverse((key, id)));
        }
        left == 0
    }

    /// With memory on demand a reply takes a block when it needs one; false if there is none.
    fn grow(&mut self, id: RequestId) -> bool {
        let Some(job) = self.jobs.get_mut(&id) else { return true };
        if self.params.memory == Memory::Reserve {
            return true;
        }
        let more = job.reply_blocks(&self.params, job.produced).saturating_sub(job.nameless);
        if more > 0 && !self.blocks.fit(&[], more) {
            return false;
        }
        job.nameless += more;
        self.blocks.take_nameless(more);
        true
    }

    fn finish(&mut self, id: RequestId) {
        self.emit(id, EventKind::Finished);
        self.counters.finished += 1;
        if let Some(job) = self.jobs.get(&id) {
            let tokens = job.request.prompt_tokens.saturating_add(job.produced);
            self.counters.longest_tokens = self.counters.longest_tokens.max(tokens);
        }
        self.release(id);
    }

    /// Ends a request that has a slot, keeping what it computed as cache.
    pub(super) fn release(&mut self, id: RequestId) {
        let Some(job) = self.leave(id) else { return };
        self.blocks.give_nameless(job.nameless);
        self.blocks.keep(job.full_reply_blocks(&self.params));
        if job.pinned {
            self.blocks.unpin(&job.request.prompt_blocks);
        }
    }

    /// Every request with a slot fails, and the memory of all of them is cleared.
    fn overflow(&mut self) {
        let running: Vec<RequestId> = self.slots.iter().filter_map(|slot| slot.running).collect();
        for id in running {
            let Some(job) = self.leave(id) else { continue };
            self.blocks.give_nameless(job.nameless);
            if job.pinned {
                self.blocks.unpin_and_forget(&job.request.prompt_blocks);
            }
            self.slot_caches.forget(job.slot);
            self.counters.overflowed += 1;
            self.emit(id, EventKind::Overflowed);
        }
    }

    /// Takes a request out of its slot and of whatever it was doing.
    fn leave(&mut self, id: RequestId) -> Option<Job> {
        let job = self.jobs.remove(&id)?;
        match job.stage {
            Stage::Prefilling if self.prefilling == Some(id) => {
                let computed = job.to_compute().saturating_sub(self.pace.drop_prefill());
                let blocks = (job.cached + computed) / self.params.block_tokens.max(1);
                let done = job.request.prompt_blocks.len().min(blocks as usize);
                self.blocks.mark_ready(&job.request.prompt_blocks[..done]);
                self.keep_in_slot(&job, done);
                self.prefilling = None;
            }
            Stage::Decoding(_) => {
                self.keep_in_slot(&job, job.request.prompt_blocks.len());
                self.decoding -= 1;
            }
            Stage::Admitted => self.prefills.retain(|other| *other != id),
            Stage::Queued | Stage::Prefilling => {}
        }
        self.slots[job.slot].running = None;
        self.drop_stale_decodes();
        Some(job)
    }

    /// The slot holds what was computed of the prompt, and what was said.
    fn keep_in_slot(&mut self, job: &Job, prompt_blocks: usize) {
        if self.params.slot_caches {
            let prompt = job.request.prompt_blocks.iter().take(prompt_blocks);
            let reply = job.full_reply_blocks(&self.params);
            self.slot_caches.hold(job.slot, prompt.chain(reply).copied());
        }
    }

    fn drop_stale_decodes(&mut self) {
        while let Some(Reverse((key, id))) = self.decodes.peek()
            && self.jobs.get(id).is_none_or(|job| job.stage != Stage::Decoding(*key))
        {
            self.decodes.pop();
        }
    }
}
