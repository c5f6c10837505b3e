//! The simulated world: clients, shards, engines and the index under one virtual clock, driven by one seed.
//!
//! The decision core, the engines' model and the waiting room are the product's own; what stands between them
//! in a running proxy is played here, step by step, and checked against the shadow after every event.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hasher};
use std::rc::Rc;

use fastrand::Rng;
use index::{
    BackendId, BackendSet, Fleet, FleetConfig, IndexConfig, IndexReader, IndexWriter, Limits,
    Millis, Observation, Picker, PolicyKind, Reservation, index,
};
use loadgen::engine::model::{Engine, Event, RequestId};
use proxy::limits::WAIT_PULSE_MS;
use proxy::wait::{Ticket, WaitRoom};

use crate::engines::Machine;
use crate::placing::TURN_WAIT_MS;
use crate::shadow::{Checked, Shadow, hold};
use crate::traffic::{Conversation, Request, template};

/// Models: the first half of the fleet serves the first, the rest the second, and one in the middle both.
pub(crate) const MODELS: usize = 2;
/// Templates of each model.
pub(crate) const TEMPLATES: u64 = 2;
/// Virtual time in which a fleet that is whole again must have served everybody.
const RECOVERY_US: u64 = 300_000_000;
/// Virtual time for which a request may wait although there is room: what it may wait for its home, and some pulses.
const PASSED_OVER_US: u64 = 3_000_000;

/// What is simulated.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    pub(crate) policy: PolicyKind,
    pub(crate) backends: u16,
    pub(crate) shards: usize,
    /// Conversations under way at once; beyond them nobody new comes.
    pub(crate) conversations_max: usize,
    pub(crate) steps: u32,
    /// Whether anything goes wrong, beside being busy.
    pub(crate) faults: bool,
    /// A violation to commit.
    pub(crate) plant: Option<Plant>,
}

/// Violations to plant, each of which the simulation must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plant {
    /// A cancelled request keeps its place.
    LeakedReservation,
    /// A first token does not end the prefill.
    EndlessPrefill,
    /// A restarted engine's evidence stays.
    ForgottenClear,
    /// A backend is switched off and the fleet is not told.
    IgnoredSwitch,
    /// Some who wait are never called.
    LostWaiter,
    /// The index is not told what a cache can hold.
    IgnoredBudget,
    /// A request for one model is offered the other's backends.
    ForeignPool,
    /// The fleet is told larger limits than there are.
    LooseLimits,
    /// What was routed is not learned, and yet believed to be.
    LostNotes,
}

/// One request in flight.
#[derive(Debug)]
pub(crate) struct Live<'f> {
    pub(crate) request: Request,
    pub(crate) reservation: Reservation<'f>,
    pub(crate) backend: BackendId,
    /// Which engine process it runs on: another one knows nothing of it.
    pub(crate) generation: u64,
    pub(crate) engine_id: RequestId,
    /// When it was placed.
    pub(crate) placed_at: Millis,
    /// Blocks it was predicted to reuse.
    pub(crate) predicted: u32,
    /// Tokens it reused, once its first token came.
    pub(crate) cached: Option<u32>,
    /// How often it was ended and sent again to the same engine.
    pub(crate) gave_way: u32,
}

/// One request waiting for room.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) request: Request,
    pub(crate) ticket: Ticket,
    pub(crate) since_us: u64,
    /// When it looks again without being called.
    pub(crate) alarm_us: u64,
    /// Since when there has been room for it.
    pub(crate) room_since_us: Option<u64>,
    /// It has room, and waits for its turn.
    pub(crate) for_turn: bool,
}

/// One shard's own things.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) picker: Picker,
    pub(crate) reader: IndexReader,
    pub(crate) room: Rc<WaitRoom>,
}

/// What happened, in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) routed: u64,
    pub(crate) finished: u64,
    pub(crate) cancelled: u64,
    pub(crate) failed: u64,
    pub(crate) retried: u64,
    pub(crate) waited: u64,
    /// How often one was told that it is not its turn.
    pub(crate) turns: u64,
    /// How often one was ended in its prefill and sent again.
    pub(crate) ways: u64,
    pub(crate) busy: u64,
    pub(crate) kills: u64,
    pub(crate) corrections: u64,
    pub(crate) published: u64,
    pub(crate) prompt_tokens: u64,
    pub(crate) cached_tokens: u64,
}

/// Everything.
#[derive(Debug)]
pub(crate) struct World<'f> {
    pub(crate) scenario: Scenario,
    pub(crate) rng: Rng,
    pub(crate) now_us: u64,
    pub(crate) fleet: &'f Fleet,
    pub(crate) pools: Vec<BackendSet>,
    pub(crate) shards: Vec<Shard>,
    pub(crate) writer: IndexWriter,
    pub(crate) notes: VecDeque<Observation>,
    pub(crate) learn_us: u64,
    pub(crate) pulse_us: u64,
    pub(crate) machines: Vec<Machine>,
    pub(crate) conversations: Vec<Conversation>,
    pub(crate) live: BTreeMap<u64, Live<'f>>,
    pub(crate) waiting: BTreeMap<u64, Waiting>,
    pub(crate) next_number: u64,
    pub(crate) shadow: Shadow,
    pub(crate) trace: Trace,
    pub(crate) counts: Counts,
    pub(crate) events: Vec<Event>,
}

/// A hash of everything that happened, in order.
#[derive(Debug, Default)]
pub(crate) struct Trace(DefaultHasher);

impl Trace {
    pub(crate) fn note(&mut self, what: &str, numbers: &[u64]) {
        self.0.write(what.as_bytes());
        numbers.iter().for_each(|number| self.0.write_u64(*number));
    }

    pub(crate) fn hash(&self) -> u64 {
        self.0.finish()
    }
}

/// The fleet a scenario needs; it must outlive the world.
pub(crate) fn fleet(scenario: &Scenario) -> Fleet {
    Fleet::new(FleetConfig::with_capacity(usize::from(scenario.backends)))
}

impl<'f> World<'f> {
    pub(crate) fn new(scenario: Scenario, fleet: &'f Fleet) -> Self {
        let mut rng = Rng::with_seed(scenario.seed);
        // Some fleets are never short of room for evidence, some always are.
        let fleet_blocks_max = [1 << 20, 6_000][usize::from(scenario.faults && rng.bool())];
        let config =
            IndexConfig { fleet_blocks_max, backend_blocks_max: 4_000, ..IndexConfig::default() };
        let (writer, handle) = index(config);
        let shard = |_| Shard {
            picker: Picker::new(scenario.policy),
            reader: handle.reader(),
            room: Rc::default(),
        };
        let count = scenario.backends;
        let both = count / 2;
        let pool = |first, last| (first..last).map(BackendId).collect();
        let mut world = Self {
            rng,
            now_us: 1_000_000,
            fleet,
            pools: vec![pool(0, both + 1), pool(both, count)],
            shards: (0..scenario.shards).map(shard).collect(),
            writer,
            notes: VecDeque::new(),
            learn_us: 0,
            pulse_us: 0,
            machines: Vec::new(),
            conversations: Vec::new(),
            live: BTreeMap::new(),
            waiting: BTreeMap::new(),
            next_number: 0,
            shadow: Shadow::new(count, config.backend_blocks_max, fleet_blocks_max),
            trace: Trace::default(),
            counts: Counts::default(),
            events: Vec::new(),
            scenario,
        };
        (0..count).for_each(|id| world.add_machine(BackendId(id)));
        world
    }

    fn add_machine(&mut self, id: BackendId) {
        let machine = Machine::new(&mut self.rng, id);
        let (slots, tokens) = (machine.params.slots as u32, machine.params.kv_tokens());
        let blocks = tokens / u64::from(crate::traffic::BLOCK_TOKENS);
        self.fleet.backend(id).set_prefills_in_turn(id.0.is_multiple_of(2));
        self.fleet.backend(id).set_stops_at_once(true);
        self.machines.push(machine);
        self.set_limits(id, Limits { requests_max: slots, tokens_max: tokens });
        self.notes.push_back(Observation::Budget { backend: id, blocks_max: blocks });
    }

    pub(crate) fn now(&self) -> Millis {
        Millis(self.now_us / 1_000)
    }

    /// Runs the scenario to its end, and then until everything is at rest.
    pub(crate) fn run(&mut self) -> Checked {
        for step in 0..self.scenario.steps {
            self.act()?;
            let pause_us = self.rng.u64(0..80_000);
            self.pass(self.now_us + pause_us)?;
            if step % 16 == 0 {
                self.check_now_and_then()?;
            }
        }
        self.recover()
    }

    /// The fleet is made whole, nobody new comes: everybody must be served, and nothing may be left behind.
    fn recover(&mut self) -> Checked {
        self.conversations.iter_mut().for_each(|chat| chat.turns_left = 0);
        let ids: Vec<BackendId> = self.fleet_ids().collect();
        ids.into_iter().for_each(|id| self.heal(id));
        let give_up = self.now_us + RECOVERY_US;
        while (!self.live.is_empty() || !self.waiting.is_empty()) && self.now_us < give_up {
            self.pass(self.now_us + 200_000)?;
        }
        let (live, waiting) = (self.live.len(), self.waiting.len());
        hold!("starvation", waiting == 0, "{waiting} are waiting for ever, {live} are running");
        hold!("starvation", live == 0, "{live} never end");
        let held = self.shadow.in_flight();
        hold!("reservations", held == 0, "{held} are held by nobody");
        self.pass(self.now_us + 100_000)?;
        self.check_now_and_then()
    }

    /// Lets time pass, handling what is due in the order in which it is due.
    pub(crate) fn pass(&mut self, until_us: u64) -> Checked {
        loop {
            let at = self.next_due_us().clamp(self.now_us, until_us);
            self.now_us = at;
            self.hear_engines()?;
            self.begin_due_turns()?;
            self.ring_alarms()?;
            self.pulse()?;
            self.learn()?;
            self.shadow.check_load(self.fleet)?;
            self.check_nobody_is_passed_over()?;
            if at >= until_us {
                return Ok(());
            }
        }
    }

    fn next_due_us(&self) -> u64 {
        let engines = self.machines.iter().filter_map(|machine| machine.engine.as_ref());
        let engines = engines.filter_map(Engine::next_event_at);
        let turns = self.conversations.iter().filter(|chat| !chat.out && !chat.is_over());
        let turns = turns.map(|chat| chat.due_us);
        let alarms = self.waiting.values().map(|waiting| waiting.alarm_us);
        let pulse = (!self.waiting.is_empty()).then_some(self.pulse_us);
        let all = engines.chain(turns).chain(alarms).chain(pulse).chain([self.learn_us]);
        all.min().unwrap_or(self.now_us)
    }

    fn begin_due_turns(&mut self) -> Checked {
        for at in 0..self.conversations.len() {
            if self.conversations[at].is_due(self.now_us) {
                self.begin_turn(at)?;
            }
        }
        Ok(())
    }

    /// A client says something.
    pub(crate) fn begin_turn(&mut self, at: usize) -> Checked {
        let shard = self.rng.usize(0..self.scenario.shards);
        let chat = &mut self.conversations[at];
        chat.out = true;
        let request = Request::next(&mut self.rng, at, chat, shard);
        self.route(request, None)
    }

    /// A new conversation on top of a template, or of a `chain` that somebody has already said.
    pub(crate) fn begin_conversation(&mut self, model: usize, chain: Option<usize>) -> Checked {
        let turns = self.rng.u32(1..12);
        let said = match chain {
            Some(at) => self.conversations[at].chain.clone(),
            None => {
                let number = self.rng.u64(0..TEMPLATES);
                template(model, number, 20 + 30 * number as usize)
            }
        };
        let number = self.conversations.len() as u64;
        self.conversations.push(Conversation::new(number, model, said, turns));
        self.begin_turn(self.conversations.len() - 1)
    }

    /// A turn is over: `said` is what the conversation says from now on.
    pub(crate) fn end_turn(&mut self, request: &Request, answered: bool) {
        let think_us = self.rng.u64(50_000..4_000_000);
        let chat = &mut self.conversations[request.conversation];
        chat.out = false;
        chat.due_us = self.now_us + think_us;
        if answered {
            chat.chain = [&request.blocks[..], &request.reply[..]].concat();
            chat.turns_left = chat.turns_left.saturating_sub(1);
        }
    }

    fn pulse(&mut self) -> Checked {
        if self.waiting.is_empty() || self.now_us < self.pulse_us {
            return Ok(());
        }
        let soonest_ms = self.shards.iter().map(|shard| shard.room.pulse_ms()).min();
        self.pulse_us = self.now_us + soonest_ms.unwrap_or(WAIT_PULSE_MS) * 1_000;
        for shard in 0..self.shards.len() {
            self.shards[shard].room.pulse(self.now());
        }
        self.answer_calls()
    }

    /// Whoever waits although there has been room for it all the time was passed over.
    fn check_nobody_is_passed_over(&mut self) -> Checked {
        for (number, waiting) in &mut self.waiting {
            let pool = &self.pools[waiting.request.model];
            let patient_us = (TURN_WAIT_MS - waiting.request.waited_ms.min(TURN_WAIT_MS)) * 1_000;
            let waits_on = waiting.for_turn && self.now_us - waiting.since_us <= patient_us;
            let room = !waits_on && self.shadow.has_room(&waiting.request, pool);
            waiting.room_since_us = room.then(|| waiting.room_since_us.unwrap_or(self.now_us));
            let passed_us = waiting.room_since_us.map_or(0, |since| self.now_us - since);
            let fine = passed_us <= PASSED_OVER_US;
            hold!(
                "starvation",
                fine,
                "{number} waits {passed_us} us beside room that it could have"
            );
        }
        Ok(())
    }

    /// What costs too much to be checked after every event.
    fn check_now_and_then(&mut self) -> Checked {
        let now = self.now();
        self.shadow.check_conversations(self.fleet, &self.conversations, now)?;
        self.shadow.check_bounds(&self.writer)?;
        if let Err(what) = self.writer.check_invariants() {
            hold!("index", false, "{what}");
        }
        Ok(())
    }

    pub(crate) fn fleet_ids(&self) -> impl Iterator<Item = BackendId> + use<> {
        (0..self.scenario.backends).map(BackendId)
    }

    pub(crate) fn planted(&self, plant: Plant) -> bool {
        self.scenario.plant == Some(plant)
    }
}
