//! The modelled engines and what they tell: first tokens, ends, overflows, deaths.

use std::collections::BTreeMap;

use fastrand::Rng;
use index::{BackendId, Limits, Millis, Observation};
use loadgen::engine::model::{Engine, Event, EventKind, Memory, Params};

use crate::placing::{GIVE_WAY_MAX, engine_request};
use crate::shadow::{Checked, hold};
use crate::traffic::BLOCK_TOKENS;
use crate::world::{Live, Plant, World};

/// One backend's engine.
#[derive(Debug)]
pub(crate) struct Machine {
    /// `None` while its process is dead.
    pub(crate) engine: Option<Engine>,
    pub(crate) params: Params,
    /// Rises with every process, and when the backend's id is given to another.
    pub(crate) generation: u64,
    /// Our requests by the engine's own numbers.
    pub(crate) running: BTreeMap<u64, u64>,
    /// Failures in a row.
    pub(crate) failures: u32,
    /// Whether it is out of the fleet.
    pub(crate) removed: bool,
}

impl Machine {
    pub(crate) fn new(rng: &mut Rng, id: BackendId) -> Self {
        // One in four shares its memory as llama.cpp does, and loses everything when that runs out.
        let on_demand = rng.u32(0..4) == 0;
        let params = Params {
            prefill_tps: 8_000.0,
            decode_tps: rng.u32(100..400).into(),
            slots: rng.usize(2..10),
            block_tokens: if rng.bool() { BLOCK_TOKENS } else { BLOCK_TOKENS / 2 },
            memory: if on_demand { Memory::OnDemand } else { Memory::Reserve },
            token_events: on_demand,
            queue_max: rng.bool().then_some(1),
            seed: u64::from(id.0),
            ..Params::default()
        };
        let params = params.with_kv_tokens(rng.u64(20_000..120_000));
        let engine = Some(Engine::new(params.clone()));
        let running = BTreeMap::new();
        Self { engine, params, generation: 0, running, failures: 0, removed: false }
    }

    /// Alive and part of the fleet.
    pub(crate) fn is_up(&self) -> bool {
        self.engine.is_some() && !self.removed
    }
}

impl<'f> World<'f> {
    /// Takes in everything the engines have to tell by now.
    pub(crate) fn hear_engines(&mut self) -> Checked {
        for id in self.fleet_ids() {
            let mut events = std::mem::take(&mut self.events);
            if let Some(engine) = &mut self.machines[id.index()].engine {
                engine.advance(self.now_us, &mut events);
            }
            let heard = events.drain(..).try_for_each(|event| self.heard(id, event));
            self.events = events;
            heard?;
        }
        Ok(())
    }

    fn heard(&mut self, id: BackendId, event: Event) -> Checked {
        // Others use the engine too.
        let Some(&number) = self.machines[id.index()].running.get(&event.id.0) else {
            return Ok(());
        };
        match event.kind {
            EventKind::Started { .. } | EventKind::Token { .. } => Ok(()),
            EventKind::PrefillDone { cached, .. } => self.first_token(number, cached),
            EventKind::Finished => self.finished(number),
            EventKind::Overflowed => self.broke(number),
        }
    }

    fn first_token(&mut self, number: u64, cached: u32) -> Checked {
        let endless = self.planted(Plant::EndlessPrefill) && number.is_multiple_of(5);
        let Some(live) = self.live.get_mut(&number) else { return Ok(()) };
        live.cached = Some(cached);
        self.trace.note("first token", &[number, u64::from(cached), self.now_us]);
        if !endless {
            live.reservation.prefill_done_at(Millis(self.now_us / 1_000));
        }
        self.shadow.prefilled(number);
        Ok(())
    }

    fn finished(&mut self, number: u64) -> Checked {
        let Some(live) = self.take(number) else { return Ok(()) };
        self.counts.finished += 1;
        self.trace.note("finished", &[number, self.now_us]);
        self.teach(&live);
        self.end_turn(&live.request, true);
        self.leave(number, live)
    }

    /// What a whole reply says of the cache.
    fn teach(&mut self, live: &Live<'_>) {
        let Live { request, backend, predicted, .. } = live;
        let cached = live.cached.unwrap_or(0);
        self.counts.prompt_tokens += request.prompt_tokens();
        self.counts.cached_tokens += u64::from(cached);
        let expected = u64::from(*predicted) * u64::from(BLOCK_TOKENS);
        live.reservation.note_cached(expected, u64::from(cached));
        // What was found of one that gave way is in part its own.
        if live.generation != self.machines[backend.index()].generation || live.gave_way > 0 {
            return;
        }
        let (backend, blocks, at) = (*backend, request.blocks.clone(), self.now());
        let cached_blocks = cached / BLOCK_TOKENS;
        let (least, most, routed_at) = (cached_blocks, cached_blocks + 1, live.placed_at);
        let told = blocks.clone();
        self.notes.push_back(Observation::Cached { backend, blocks: told, least, most, routed_at });
        if *predicted > cached_blocks + 1 {
            self.counts.corrections += 1;
            let (blocks, predicted_blocks) = (blocks.clone(), *predicted);
            let short =
                Observation::Reported { backend, blocks, predicted_blocks, cached_blocks, at };
            self.notes.push_back(short);
        }
        self.notes.push_back(Observation::Stored { backend, blocks, at });
    }

    /// Whoever was asked to give way at an engine is ended there and sent again. Some do not hear of it in time.
    pub(crate) fn make_way(&mut self, id: BackendId) -> Checked {
        self.look_after(id)?;
        let asked = self.machines[id.index()].running.values().copied().find(|number| {
            let live = self.live.get(number).filter(|live| live.cached.is_none());
            live.is_some_and(|live| live.reservation.is_asked_to_give_way())
        });
        let Some(number) = asked.filter(|_| self.rng.u8(0..8) > 0) else { return Ok(()) };
        let Some(live) = self.live.get_mut(&number) else { return Ok(()) };
        let machine = &mut self.machines[id.index()];
        let Some(engine) = &mut machine.engine else { return Ok(()) };
        let there = engine.cancel(self.now_us, live.engine_id);
        hold!("engine", there, "{number} is not where it runs");
        machine.running.remove(&live.engine_id.0);
        live.reservation.gave_way(Millis(self.now_us / 1_000));
        live.gave_way += 1;
        hold!("way", live.gave_way <= GIVE_WAY_MAX, "{number} gave way {} times", live.gave_way);
        self.counts.ways += 1;
        self.trace.note("gave way", &[number, self.now_us]);
        self.shadow.gave_way(number, live.reservation.uncached_tokens())?;
        let ask = engine_request(&live.request, machine.params.block_tokens);
        match engine.submit(self.now_us, ask) {
            Ok(engine_id) => {
                live.engine_id = engine_id;
                machine.running.insert(engine_id.0, number);
                self.shadow.check_load(self.fleet)
            }
            Err(_) => self.broke(number),
        }
    }

    /// Whoever waits for its first token looks whether it is late.
    fn look_after(&mut self, id: BackendId) -> Checked {
        let now = self.now();
        for number in self.machines[id.index()].running.values() {
            let live = self.live.get(number).filter(|live| live.cached.is_none());
            if let Some(live) = live {
                live.reservation.look_after(now);
                self.shadow.looked_after(*number, live.reservation.uncached_tokens())?;
            }
        }
        Ok(())
    }

    /// The engine failed the request: before the first token it is tried elsewhere, after it the turn is lost.
    fn broke(&mut self, number: u64) -> Checked {
        let Some(mut live) = self.take(number) else { return Ok(()) };
        self.trace.note("broke", &[number, self.now_us]);
        let (shown, current) =
            (live.cached.is_some(), self.machines[live.backend.index()].generation);
        if !shown && live.generation == current {
            self.notes.push_back(Observation::Reported {
                backend: live.backend,
                blocks: live.request.blocks.clone(),
                predicted_blocks: live.request.blocks.len() as u32,
                cached_blocks: live.predicted,
                at: self.now(),
            });
        }
        live.request.broken.insert(live.backend);
        let request = live.request.clone();
        self.leave(number, live)?;
        if shown {
            self.counts.failed += 1;
            self.end_turn(&request, false);
            return Ok(());
        }
        self.counts.retried += 1;
        self.route(request, None)
    }

    /// The client left.
    pub(crate) fn cancel(&mut self, number: u64) -> Checked {
        if let Some(waiting) = self.waiting.remove(&number) {
            self.counts.cancelled += 1;
            self.end_turn(&waiting.request, false);
            return Ok(());
        }
        let Some(live) = self.take(number) else { return Ok(()) };
        if let Some(engine) = &mut self.machines[live.backend.index()].engine {
            let there = engine.cancel(self.now_us, live.engine_id);
            hold!("engine", there, "{number} is not where it runs");
        }
        self.counts.cancelled += 1;
        self.trace.note("cancelled", &[number, self.now_us]);
        self.end_turn(&live.request, false);
        if self.planted(Plant::LeakedReservation) {
            self.shadow.left(number);
            std::mem::forget(live);
            return Ok(());
        }
        self.leave(number, live)
    }

    fn take(&mut self, number: u64) -> Option<Live<'f>> {
        let live = self.live.remove(&number)?;
        self.machines[live.backend.index()].running.remove(&live.engine_id.0);
        Some(live)
    }

    /// Gives the place back, and calls whoever waits on the same shard.
    fn leave(&mut self, number: u64, live: Live<'f>) -> Checked {
        let shard = live.request.shard;
        drop(live);
        self.shadow.left(number);
        self.shadow.check_load(self.fleet)?;
        self.shards[shard].room.call(self.now(), 1);
        self.answer_calls()
    }

    /// The engine's process dies with everything in it.
    pub(crate) fn kill(&mut self, id: BackendId) -> Checked {
        self.counts.kills += 1;
        self.trace.note("killed", &[u64::from(id.0), self.now_us]);
        let machine = &mut self.machines[id.index()];
        machine.engine = None;
        machine.generation += 1;
        let running: Vec<u64> = machine.running.values().copied().collect();
        running.into_iter().try_for_each(|number| self.broke(number))
    }

    /// A new process takes the place of a dead one: cold, and noticed by the control thread.
    pub(crate) fn start(&mut self, id: BackendId) {
        self.trace.note("started", &[u64::from(id.0), self.now_us]);
        let machine = &mut self.machines[id.index()];
        machine.engine = Some(Engine::new(machine.params.clone()));
        machine.generation += 1;
        machine.failures = 0;
        self.notes.push_back(Observation::Cleared { backend: id });
        self.set_healthy(id, true);
        self.set_breaker(id, false);
    }

    /// What the engine would tell of itself.
    pub(crate) fn told_limits(&self, id: BackendId) -> Limits {
        let params = &self.machines[id.index()].params;
        Limits { requests_max: params.slots as u32, tokens_max: params.kv_tokens() }
    }
}
