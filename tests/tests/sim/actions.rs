//! What happens to the world, drawn at random by weight: clients come and leave, engines die and come back,
//! operators and the control thread turn their switches.

use index::{BackendId, Limits, Observation};
use loadgen::engine::model::Request as EngineRequest;

use crate::shadow::Checked;
use crate::traffic::BLOCK_TOKENS;
use crate::world::{MODELS, Plant, World};

#[derive(Debug, Clone, Copy)]
enum Action {
    Arrive,
    Burst,
    Siblings,
    Cancel,
    Kill,
    Restart,
    ColdRestart,
    Flush,
    BusyBurst,
    Refuse,
    Slow,
    Limits,
    Enable,
    Health,
    Breaker,
    Budget,
    Remove,
    Heal,
    Nothing,
}

/// What clients do, by weight.
const CLIENTS: [(u32, Action); 5] = [
    (30, Action::Arrive),
    (4, Action::Burst),
    (6, Action::Siblings),
    (12, Action::Cancel),
    (40, Action::Nothing),
];

/// What goes wrong or is changed, by weight.
const FAULTS: [(u32, Action); 14] = [
    (3, Action::Kill),
    (8, Action::Restart),
    (2, Action::ColdRestart),
    (4, Action::Flush),
    (5, Action::BusyBurst),
    (2, Action::Refuse),
    (2, Action::Slow),
    (6, Action::Limits),
    (4, Action::Enable),
    (4, Action::Health),
    (2, Action::Breaker),
    (3, Action::Budget),
    (2, Action::Remove),
    (12, Action::Heal),
];

impl World<'_> {
    /// One action, perhaps none.
    pub(crate) fn act(&mut self) -> Checked {
        let faults: &[_] = if self.scenario.faults { &FAULTS } else { &[] };
        let all = || CLIENTS.iter().chain(faults);
        let mut draw = self.rng.u32(0..all().map(|(weight, _)| weight).sum());
        let drawn = all().find(|(weight, _)| match draw.checked_sub(*weight) {
            Some(left) => {
                draw = left;
                false
            }
            None => true,
        });
        let action = drawn.map_or(Action::Nothing, |(_, action)| *action);
        self.trace.note("act", &[action as u64, self.now_us]);
        let id = BackendId(self.rng.u16(0..self.scenario.backends));
        self.client(action)?;
        self.engine(action, id)?;
        self.operator(action, id);
        self.shadow.check_load(self.fleet)
    }

    fn client(&mut self, action: Action) -> Checked {
        let going = self.conversations.iter().filter(|chat| !chat.is_over()).count();
        let welcome = going < self.scenario.conversations_max;
        let model = self.rng.usize(0..MODELS);
        match action {
            Action::Cancel => self.cancel_any(),
            Action::Arrive if welcome => self.begin_conversation(model, None),
            Action::Burst if welcome => {
                (0..self.rng.u32(3..12)).try_for_each(|_| self.begin_conversation(model, None))
            }
            Action::Siblings if welcome && !self.conversations.is_empty() => {
                let of = self.rng.usize(0..self.conversations.len());
                let model = self.conversations[of].model;
                (0..self.rng.u32(2..5)).try_for_each(|_| self.begin_conversation(model, Some(of)))
            }
            _ => Ok(()),
        }
    }

    fn cancel_any(&mut self) -> Checked {
        let all: Vec<u64> = self.live.keys().chain(self.waiting.keys()).copied().collect();
        if all.is_empty() {
            return Ok(());
        }
        let any = self.rng.usize(0..all.len());
        self.cancel(all[any])
    }

    fn engine(&mut self, action: Action, id: BackendId) -> Checked {
        let now_us = self.now_us;
        let up = self.machines[id.index()].is_up();
        match action {
            Action::Kill if up => self.kill(id)?,
            Action::ColdRestart if up => {
                self.kill(id)?;
                self.start(id);
            }
            Action::Restart => {
                let dead = |id: &BackendId| self.machines[id.index()].engine.is_none();
                if let Some(dead) = self.fleet_ids().find(dead) {
                    self.start(dead);
                }
            }
            Action::BusyBurst => self.others_come(id),
            _ => {}
        }
        let pace = if self.rng.bool() { 0.1 } else { 1.0 };
        let admits = self.rng.bool();
        let Some(engine) = &mut self.machines[id.index()].engine else { return Ok(()) };
        match action {
            Action::Flush => engine.forget_cache(),
            Action::Refuse => engine.set_admitting(now_us, admits),
            Action::Slow => engine.set_pace(now_us, pace),
            _ => {}
        }
        Ok(())
    }

    /// Somebody uses the engine beside us: slots and memory go, and we are not told.
    fn others_come(&mut self, id: BackendId) {
        for _ in 0..self.rng.u32(1..8) {
            let blocks = self.rng.u32(1..60);
            let request = EngineRequest {
                prompt_blocks: (0..blocks).map(|_| self.rng.u64(..)).collect(),
                prompt_tokens: blocks * BLOCK_TOKENS,
                reply_blocks: Vec::new(),
                reply_tokens: self.rng.u32(1..200),
                slot: None,
            };
            if let Some(engine) = &mut self.machines[id.index()].engine {
                // Whoever is refused there is nobody of ours.
                _ = engine.submit(self.now_us, request);
            }
        }
    }

    fn operator(&mut self, action: Action, id: BackendId) {
        if self.machines[id.index()].removed {
            if matches!(action, Action::Remove | Action::Heal) {
                self.add_again(id);
            }
            return;
        }
        match action {
            Action::Limits => {
                let told = self.told_limits(id);
                let requests_max = self.rng.u32(0..=told.requests_max + 2);
                let share = self.rng.u64(0..=10);
                self.set_limits(
                    id,
                    Limits { requests_max, tokens_max: told.tokens_max * share / 10 },
                );
            }
            Action::Enable => self.set_enabled(id, self.scenario.seed.is_multiple_of(2)),
            Action::Health => self.set_healthy(id, false),
            Action::Breaker => self.set_breaker(id, true),
            Action::Budget => {
                let blocks_max = self.rng.u64(0..3_000);
                self.notes.push_back(Observation::Budget { backend: id, blocks_max });
            }
            Action::Remove => self.remove(id),
            Action::Heal => self.heal(id),
            _ => {}
        }
    }

    fn remove(&mut self, id: BackendId) {
        self.pools.iter_mut().for_each(|pool| _ = pool.remove(id));
        self.fleet.backend(id).reset();
        self.fleet.affinity().forget_backend(self.fleet, id, self.now());
        self.shadow.forget(id);
        let machine = &mut self.machines[id.index()];
        machine.removed = true;
        machine.generation += 1;
        self.notes.push_back(Observation::Removed { backend: id });
    }

    /// The id is given to another engine, once nobody of the old one's is left.
    fn add_again(&mut self, id: BackendId) {
        if !self.machines[id.index()].running.is_empty() {
            return;
        }
        self.machines[id.index()].removed = false;
        let both = self.scenario.backends / 2;
        let serves = [id.0 <= both, id.0 >= both];
        for (pool, serves) in self.pools.iter_mut().zip(serves) {
            if serves {
                pool.insert(id);
            }
        }
        self.heal(id);
    }

    /// Everything about a backend is as it should be.
    pub(crate) fn heal(&mut self, id: BackendId) {
        let now_us = self.now_us;
        if let Some(engine) = &mut self.machines[id.index()].engine {
            engine.set_pace(now_us, 1.0);
            engine.set_admitting(now_us, true);
        }
        if self.machines[id.index()].removed {
            return self.add_again(id);
        }
        if self.machines[id.index()].engine.is_none() {
            self.start(id);
        }
        self.set_limits(id, self.told_limits(id));
        self.set_enabled(id, true);
        self.set_healthy(id, true);
        self.set_breaker(id, false);
    }

    pub(crate) fn set_limits(&mut self, id: BackendId, limits: Limits) {
        self.shadow.of(id).limits = limits;
        let loose = u32::from(self.planted(Plant::LooseLimits)) * 2;
        let requests_max = limits.requests_max + loose;
        self.fleet.backend(id).set_limits(Limits { requests_max, ..limits });
    }

    fn set_enabled(&mut self, id: BackendId, enabled: bool) {
        self.shadow.of(id).enabled = enabled;
        if !self.planted(Plant::IgnoredSwitch) {
            self.fleet.backend(id).set_enabled(enabled);
        }
    }

    pub(crate) fn set_healthy(&mut self, id: BackendId, healthy: bool) {
        self.shadow.of(id).healthy = healthy;
        self.fleet.backend(id).set_healthy(healthy);
    }

    pub(crate) fn set_breaker(&mut self, id: BackendId, open: bool) {
        self.shadow.of(id).breaker_open = open;
        self.fleet.backend(id).set_breaker_open(open);
    }
}
