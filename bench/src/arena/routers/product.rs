//! The product itself: the `index` crate's fleet, picker, writer and reader, fed as the proxy feeds them. Routes are noted
//! when they are made, ends are noted with what the engine says it had cached, and the writer publishes at once or late.
//!
//! It knows what the proxy would know: its own decisions, conversation keys, the engine's reports. Never the engines'
//! contents.

use std::collections::VecDeque;

use index::{
    Ask, BackendId, BackendSet, ConversationKey, Decision, Fleet, IndexConfig, IndexReader,
    IndexWriter, Limits, Millis, Observation, Picker, Placed, PolicyKind, Reservation,
    SequenceHash, Verdict,
};

use crate::arena::hashing::mixed;
use crate::arena::job::Job;
use crate::arena::scene::{Route, Router, Scene};
use crate::arena::workload::BLOCK_TOKENS;

/// How long a long prompt waits for its turn unless told otherwise, in ms: what the proxy's default is.
pub const TURN_WAIT_MS: u64 = 60_000;

/// How often a long prompt gives way unless told otherwise: what the proxy's default is.
pub const GIVE_WAY_MAX: u32 = 4;

/// How the proxy around the policy works.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProductOptions {
    /// Shards; a request comes to any of them. They share fleet and index.
    pub shards: usize,
    /// Time until an observation is published, in seconds.
    pub publish_s: f64,
    /// The capacity the index assumes, as a multiple of the real one.
    pub assumed_capacity: f64,
    /// Whether engines report cached tokens at the end.
    pub reports: bool,
    /// Whether requests name their conversations.
    pub conversations: bool,
    /// Hold requests back until a backend has room for them: requests at once on one, and its whole cache in tokens.
    pub hold_requests: Option<u32>,
    /// How long a conversation waits for its full home, in ms.
    pub home_wait_ms: u64,
    /// How long a long prompt waits for its turn, in ms.
    pub turn_wait_ms: u64,
    /// How often a long prompt gives way while it is prefilled.
    pub give_way_max: u32,
    /// What waiting takes off a held request's work when it is ranked, in tokens a second.
    pub ageing_tokens: f64,
}

impl Default for ProductOptions {
    fn default() -> Self {
        Self {
            shards: 1,
            publish_s: 0.0,
            assumed_capacity: 1.0,
            reports: true,
            conversations: true,
            hold_requests: None,
            home_wait_ms: 0,
            turn_wait_ms: TURN_WAIT_MS,
            give_way_max: GIVE_WAY_MAX,
            ageing_tokens: 1000.0,
        }
    }
}

/// A request that was placed.
#[derive(Debug)]
struct Held<'f> {
    reservation: Reservation<'f>,
    blocks: Vec<SequenceHash>,
    predicted_blocks: u32,
    at: Millis,
}

/// The product.
#[derive(Debug)]
pub struct Product<'f> {
    options: ProductOptions,
    fleet: &'f Fleet,
    pickers: Vec<Picker>,
    writer: IndexWriter,
    reader: IndexReader,
    pool: BackendSet,
    nobody: BackendSet,
    /// By request.
    held: Vec<Option<Held<'f>>>,
    /// Requests of each engine whose first token has not come.
    waiting: Vec<Vec<usize>>,
    /// Observations to be published, with the time.
    unpublished: VecDeque<(f64, Observation)>,
    /// Uncached tokens of requests that wait, by request.
    wanted: Vec<f64>,
    /// Sums of the terms of the chosen scores, and how many were chosen.
    terms: Vec<(&'static str, f64)>,
    chosen: u64,
}

impl<'f> Product<'f> {
    /// The product with this policy in front of a fleet whose engines hold so many blocks each.
    pub fn new(
        policy: PolicyKind,
        fleet: &'f Fleet,
        capacities: &[usize],
        options: ProductOptions,
    ) -> Self {
        let (mut writer, handle) =
            index::index(IndexConfig { fleet_blocks_max: u64::MAX >> 8, ..IndexConfig::default() });
        for (at, capacity) in capacities.iter().enumerate() {
            let blocks_max = (*capacity as f64 * options.assumed_capacity).max(1.0) as u64;
            let backend = BackendId(at as u16);
            writer.apply(Observation::Budget { backend, blocks_max });
        }
        let pool: BackendSet = (0..fleet.len()).map(|at| BackendId(at as u16)).collect();
        for id in pool.iter() {
            fleet.backend(id).set_prefills_in_turn(true);
            fleet.backend(id).set_stops_at_once(true);
        }
        if let Some(requests_max) = options.hold_requests {
            for (id, capacity) in pool.iter().zip(capacities) {
                let tokens_max = *capacity as u64 * BLOCK_TOKENS;
                fleet.backend(id).set_limits(Limits { requests_max, tokens_max });
            }
        }
        Self {
            options,
            fleet,
            pickers: (0..options.shards.max(1)).map(|_| Picker::new(policy)).collect(),
            writer,
            reader: handle.reader(),
            pool,
            nobody: BackendSet::default(),
            held: Vec::new(),
            waiting: vec![Vec::new(); fleet.len()],
            unpublished: VecDeque::new(),
            wanted: Vec::new(),
            terms: Vec::new(),
            chosen: 0,
        }
    }

    fn observe(&mut self, scene: &Scene, observation: Observation) {
        self.unpublished.push_back((scene.now_s + self.options.publish_s, observation));
        self.publish(scene);
    }

    fn publish(&mut self, scene: &Scene) {
        let mut any = false;
        while let Some((at_s, _)) = self.unpublished.front()
            && *at_s <= scene.now_s
        {
            if let Some((_, observation)) = self.unpublished.pop_front() {
                self.writer.apply(observation);
                any = true;
            }
        }
        if any {
            self.writer.publish(millis(scene));
        }
    }

    /// Gives the gauges an engine would be scraped for.
    fn report_gauges(&self, scene: &Scene) {
        for (id, engine) in self.pool.iter().zip(&scene.engines) {
            self.fleet.backend(id).set_queue_depth(engine.queued() as u32);
            self.fleet.backend(id).set_kv_usage_permille((engine.pressure() * 1000.0) as u32);
        }
    }

    /// As the proxy does twice a second of each that waits for its first token.
    fn look_after_all(&self, scene: &Scene) {
        for key in self.waiting.iter().flatten() {
            if let Some(Some(held)) = self.held.get(*key) {
                held.reservation.look_after(millis(scene));
            }
        }
    }

    fn wait(&mut self, key: usize, job: &Job, deepest_blocks: u32) {
        if self.wanted.len() <= key {
            self.wanted.resize(key + 1, 0.0);
        }
        self.wanted[key] = job.uncached_tokens(deepest_blocks) as f64;
    }

    fn note_terms(&mut self, decision: &Decision) {
        let chosen = decision.candidates.iter().flatten().find_map(|candidate| {
            let Verdict::Chosen(score) = candidate.verdict else { return None };
            Some(score)
        });
        let Some(score) = chosen else { return };
        self.chosen += 1;
        for (name, value) in score.terms.iter() {
            match self.terms.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum += value,
                None => self.terms.push((name, value)),
            }
        }
    }

    fn hold(&mut self, key: usize, held: Held<'f>) {
        while self.held.len() <= key {
            self.held.push(None);
        }
        self.held[key] = Some(held);
    }
}

impl Router for Product<'_> {
    fn route(&mut self, scene: &mut Scene, key: usize, job: &Job) -> Option<Route> {
        self.publish(scene);
        self.report_gauges(scene);
        self.look_after_all(scene);
        let blocks: Vec<SequenceHash> =
            job.blocks.iter().map(|id| SequenceHash(mixed(*id))).collect();
        let conversation = ConversationKey(mixed(job.session));
        let ask = Ask {
            blocks: &blocks,
            block_tokens: BLOCK_TOKENS as f32,
            prompt_tokens: job.prompt_tokens,
            output_tokens: job.output_tokens,
            conversation: self.options.conversations.then_some(conversation),
            pool: &self.pool,
            excluded: &self.nobody,
            waited_ms: ((scene.now_s - job.arrived_s) * 1000.0) as u64,
            home_wait_ms: self.options.home_wait_ms,
            turn_wait_ms: self.options.turn_wait_ms,
            give_way_max: self.options.give_way_max,
            streams: true,
            now: millis(scene),
            random: scene.random.wide(),
        };
        let shard = scene.random.below(self.pickers.len());
        let picked = self.pickers[shard].pick(self.fleet, self.reader.load(), &ask);
        let Placed { reservation, decision } = match picked {
            Ok(placed) => placed,
            Err(nowhere) => {
                let deepest = nowhere.decision().deepest_blocks;
                self.wait(key, job, deepest);
                return None;
            }
        };
        self.note_terms(&decision);
        let backend = reservation.backend();
        reservation.sent();
        self.waiting[backend.index()].push(key);
        let expected_tokens = decision.predicted_uncached_tokens;
        let predicted_blocks = decision.overlap_blocks;
        self.hold(
            key,
            Held { reservation, blocks: blocks.clone(), predicted_blocks, at: millis(scene) },
        );
        self.observe(scene, Observation::Stored { backend, blocks, at: millis(scene) });
        Some(Route { engine: backend.index(), expected_tokens })
    }

    fn gives_way(&mut self, scene: &Scene, engine: usize) -> Option<usize> {
        let asked = self.waiting[engine].iter().find_map(|key| {
            let held = self.held.get(*key)?.as_ref()?;
            held.reservation.is_asked_to_give_way().then_some((*key, held))
        });
        let (key, held) = asked?;
        held.reservation.gave_way(millis(scene));
        Some(key)
    }

    fn terms(&self) -> Vec<(&'static str, f64)> {
        let mean = |(name, sum): &(&'static str, f64)| (*name, sum / self.chosen.max(1) as f64);
        self.terms.iter().map(mean).collect()
    }

    fn rank(&mut self, scene: &Scene, jobs: &[Job], waiting: &mut [usize]) {
        let rank = |key: usize| {
            let wanted = self.wanted.get(key).copied().unwrap_or_default();
            wanted - self.options.ageing_tokens * (scene.now_s - jobs[key].arrived_s)
        };
        waiting.sort_by(|a, b| rank(*a).total_cmp(&rank(*b)));
    }

    fn lost(&mut self, _scene: &Scene, key: usize, job: &Job) {
        self.waiting[job.engine].retain(|waiting| *waiting != key);
        self.held.get_mut(key).and_then(Option::take);
    }

    fn down(&mut self, scene: &Scene, engine: usize) {
        let backend = BackendId(engine as u16);
        self.fleet.backend(backend).set_healthy(false);
        self.fleet.backend(backend).restarted();
        self.observe(scene, Observation::Cleared { backend });
    }

    fn up(&mut self, engine: usize) {
        self.fleet.backend(BackendId(engine as u16)).set_healthy(true);
    }

    fn prefilled(&mut self, scene: &Scene, key: usize, job: &Job) {
        self.waiting[job.engine].retain(|waiting| *waiting != key);
        if let Some(Some(held)) = self.held.get(key) {
            held.reservation.prefill_done_at(millis(scene));
        }
    }

    fn finished(&mut self, scene: &Scene, key: usize, job: &Job) {
        let Some(held) = self.held.get_mut(key).and_then(Option::take) else { return };
        let Held { reservation, blocks, predicted_blocks, at: routed_at } = held;
        let (backend, at) = (reservation.backend(), millis(scene));
        if self.options.reports {
            let tokens = |blocks: u64| blocks * BLOCK_TOKENS;
            let cached = tokens(job.cached_blocks as u64);
            reservation.note_cached(tokens(predicted_blocks.into()), cached);
        }
        drop(reservation);
        let cached_blocks = job.cached_blocks as u32;
        // What was found of one that gave way is in part its own: it tells only what was missing.
        let whole = job.interruptions == 0;
        if self.options.reports {
            let (least, most) = (if whole { cached_blocks } else { 0 }, cached_blocks);
            let blocks = blocks.clone();
            self.observe(scene, Observation::Cached { backend, blocks, least, most, routed_at });
        }
        if self.options.reports && whole && predicted_blocks > cached_blocks + 1 {
            let reported = blocks.clone();
            self.observe(
                scene,
                Observation::Reported {
                    backend,
                    blocks: reported,
                    predicted_blocks,
                    cached_blocks,
                    at,
                },
            );
        }
        if self.options.reports {
            self.observe(scene, Observation::Stored { backend, blocks, at });
        }
    }
}

fn millis(scene: &Scene) -> Millis {
    Millis((scene.now_s * 1000.0) as u64)
}
