//! Decisions over large pools: what looking at a shortlist keeps of looking at everybody, and what it costs.
#![cfg(not(loom))]

use index::{
    Ask, BackendId, BackendSet, Charge, ConversationKey, Decision, Fleet, FleetConfig, IndexConfig,
    IndexReader, IndexWriter, Limits, Millis, Observation, Picker, PolicyKind, Reservation,
    SequenceHash, Verdict, index,
};

const CAPACITY: u16 = 400;

/// The default policy without the term that is relative to whoever was looked at, so that costs of two looks compare.
const ABSOLUTE: PolicyKind =
    PolicyKind::Cost { recompute_max: 8.0, request_tokens: 300.0, conversation_tokens: 0.0 };

fn chain(name: u64, blocks: usize) -> Vec<SequenceHash> {
    let mut fingerprinter = index::Fingerprinter::new(index::FingerprintKey::new(name), 8);
    (0..blocks as u64).for_each(|block| fingerprinter.push(&block.to_le_bytes()));
    fingerprinter.finish().blocks
}

/// A prompt of 40 common blocks and 40 of its own.
fn prompt(name: u64) -> Vec<SequenceHash> {
    chain(0, 40).into_iter().chain(chain(1 + name, 40)).collect()
}

fn key(n: u64) -> ConversationKey {
    index::conversation_key(index::FingerprintKey::new(5), b"tests", &n.to_le_bytes())
}

/// A fleet in some state, a pool of it, and what is in flight.
struct Scene {
    rng: fastrand::Rng,
    fleet: &'static Fleet,
    held: Vec<Reservation<'static>>,
    pool: BackendSet,
    excluded: BackendSet,
    _writer: IndexWriter,
    reader: IndexReader,
}

impl Scene {
    /// A fleet with `backends` in the pool, of which `busy` in a hundred have something in flight.
    fn new(seed: u64, backends: usize, busy: u32) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let fleet: &'static Fleet =
            Box::leak(Box::new(Fleet::new(FleetConfig::with_capacity(usize::from(CAPACITY)))));
        let mut ids: Vec<BackendId> = (0..CAPACITY).map(BackendId).collect();
        rng.shuffle(&mut ids);
        let pool: BackendSet = ids.into_iter().take(backends).collect();
        let (mut writer, handle) = index(IndexConfig::default());
        for name in 0..30 {
            let backend = BackendId(rng.u16(..CAPACITY));
            writer.apply(Observation::Stored { backend, blocks: prompt(name), at: Millis(0) });
        }
        for id in (0..CAPACITY).filter(|_| rng.u8(..) < 150) {
            let (backend, blocks) = (BackendId(id), chain(0, 40));
            writer.apply(Observation::Stored { backend, blocks, at: Millis(0) });
        }
        writer.publish(Millis(0));
        let (held, excluded, reader) = (Vec::new(), BackendSet::default(), handle.reader());
        let mut scene = Self { rng, fleet, held, pool, excluded, _writer: writer, reader };
        (0..CAPACITY).for_each(|id| scene.settle(BackendId(id), busy));
        scene
    }

    /// Gives one backend a state.
    fn settle(&mut self, id: BackendId, busy: u32) {
        let rng = &mut self.rng;
        let backend = self.fleet.backend(id);
        backend.set_limits(Limits { requests_max: rng.u32(..6), tokens_max: 0 });
        match rng.u8(..40) {
            0 => backend.set_enabled(false),
            1 => backend.set_healthy(false),
            2 => backend.set_breaker_open(true),
            3 => drop(self.excluded.insert(id)),
            _ => {}
        }
        if rng.u32(..100) < busy {
            for _ in 0..rng.u32(1..5) {
                let uncached_tokens = [0, 100, 3_000, 9_000][rng.usize(..4)];
                self.held.extend(self.fleet.reserve(id, Charge { tokens: 9, uncached_tokens }));
            }
        }
    }

    /// What looking at everybody and looking at a shortlist say of one prompt.
    fn explain_both(&mut self, kind: PolicyKind, name: u64) -> [Decision; 2] {
        let (blocks, random) = (prompt(name), self.rng.u64(..));
        let ask = Ask {
            blocks: &blocks,
            block_tokens: 8.0,
            prompt_tokens: 640,
            output_tokens: 10,
            conversation: Some(key(name)),
            pool: &self.pool,
            excluded: &self.excluded,
            waited_ms: 0,
            home_wait_ms: 100,
            turn_wait_ms: 0,
            give_way_max: 0,
            streams: false,
            now: Millis(0),
            random,
        };
        [usize::MAX, 0].map(|whole| {
            let mut picker = Picker::new(kind).looking_at_all_of(whole);
            picker.explain(self.fleet, self.reader.load(), &ask)
        })
    }
}

fn cost(decision: &Decision) -> Option<f64> {
    decision.candidates.iter().flatten().find_map(|candidate| match candidate.verdict {
        Verdict::Chosen(score) => Some(score.cost),
        _ => None,
    })
}

#[test]
fn a_shortlist_of_a_small_pool_decides_as_looking_at_everybody_does() {
    for seed in 0..60 {
        let mut scene = Scene::new(seed, 24, seed as u32 * 2);
        for name in 0..40 {
            if name % 3 == 0 {
                let home = BackendId(scene.rng.u16(..CAPACITY));
                scene.fleet.affinity().set(scene.fleet, key(name), home, Millis(0));
            }
            let [whole, short] = scene.explain_both(PolicyKind::DEFAULT, name);
            assert_eq!(short.backend, whole.backend, "seed {seed}, prompt {name}");
            assert_eq!((short.reason, short.home), (whole.reason, whole.home), "seed {seed}");
            let scored = |decision: &Decision| {
                let all = decision.candidates.into_iter().flatten();
                all.filter(|c| !matches!(c.verdict, Verdict::Refused(_))).collect::<Vec<_>>()
            };
            assert_eq!(scored(&short), scored(&whole), "seed {seed}, prompt {name}");
        }
    }
}

#[test]
fn counts_are_of_the_whole_pool_however_few_were_looked_at() {
    for seed in 0..40 {
        let mut scene = Scene::new(seed, 70 + seed as usize * 8, 60);
        for name in 0..20 {
            let [whole, short] = scene.explain_both(ABSOLUTE, name);
            let counts = |d: &Decision| (d.considered, d.refused, d.deepest_blocks, d.home);
            assert_eq!(counts(&short), counts(&whole), "seed {seed}");
        }
    }
}

#[test]
fn a_shortlist_loses_only_among_equally_busy_backends_that_hold_the_same() {
    let (mut decisions, mut same, mut lost) = (0_u32, 0_u32, 0.0_f64);
    for seed in 0..60 {
        let mut scene = Scene::new(seed, 350, 20 + seed as u32 * 2);
        for name in 0..60 {
            let [whole, short] = scene.explain_both(ABSOLUTE, name);
            let (Some(best), Some(found)) = (cost(&whole), cost(&short)) else {
                panic!("somebody has room, seed {seed}");
            };
            assert!(found >= best, "seed {seed}: {found} is better than the best, {best}");
            decisions += 1;
            same += u32::from(found == best);
            lost = lost.max(found - best);
        }
    }
    assert!(same * 100 >= decisions * 97, "{same} of {decisions} cost as little as could be");
    assert!(lost <= 600.0, "{lost} tokens lost: two requests' worth, within one degree of busy");
}

#[test]
fn the_only_room_of_a_large_pool_is_found() {
    for seed in 0..20 {
        let mut scene = Scene::new(seed, 350, 0);
        let ids: Vec<BackendId> = scene.pool.iter().collect();
        let room = ids[scene.rng.usize(..ids.len())];
        for &id in &ids {
            let backend = scene.fleet.backend(id);
            backend.reset();
            // Room for tokens is told by the size of the request, which no mark knows.
            let pool = if id == room { 0 } else { 300 };
            backend.set_limits(Limits { requests_max: 0, tokens_max: pool });
            scene.held.extend(scene.fleet.reserve(id, Charge { tokens: 100, uncached_tokens: 0 }));
        }
        scene.excluded.clear();
        let [whole, short] = scene.explain_both(PolicyKind::DEFAULT, 1);
        assert_eq!((whole.backend, short.backend), (Some(room), Some(room)), "seed {seed}");
    }
}

#[test]
fn a_large_pool_that_is_full_is_busy_and_one_that_is_off_is_empty() {
    let mut scene = Scene::new(1, 350, 0);
    scene.excluded.clear();
    for id in scene.pool.iter() {
        let backend = scene.fleet.backend(id);
        backend.reset();
        backend.set_limits(Limits { requests_max: 1, tokens_max: 0 });
        scene.held.extend(scene.fleet.reserve(id, Charge::default()));
    }
    let [whole, short] = scene.explain_both(PolicyKind::DEFAULT, 1);
    assert_eq!((short.backend, short.refused.busy_requests), (None, 350));
    assert_eq!(short.refused, whole.refused);
    scene.pool.iter().for_each(|id| scene.fleet.backend(id).set_enabled(false));
    let [_, short] = scene.explain_both(PolicyKind::DEFAULT, 1);
    assert_eq!((short.backend, short.refused.disabled), (None, 350));
    assert_eq!(short.candidates.iter().flatten().count(), 8, "some of the refused are shown");
}

#[test]
fn a_full_home_in_a_large_pool_is_waited_for() {
    let mut scene = Scene::new(3, 350, 0);
    let Some(home) = scene.pool.iter().find(|&id| !scene.excluded.contains(id)) else { panic!() };
    scene.fleet.backend(home).reset();
    scene.fleet.backend(home).set_limits(Limits { requests_max: 1, tokens_max: 0 });
    scene.fleet.affinity().set(scene.fleet, key(7), home, Millis(0));
    let [whole, short] = scene.explain_both(PolicyKind::Session, 7);
    assert_eq!((whole.backend, short.backend), (Some(home), Some(home)));
    scene.held.extend(scene.fleet.reserve(home, Charge::default()));
    let [whole, short] = scene.explain_both(PolicyKind::Session, 7);
    assert_eq!((whole.backend, short.backend), (None, None), "it is waited for");
}

#[test]
fn round_robin_visits_everybody_of_a_large_pool_in_turn() {
    let fleet = Fleet::new(FleetConfig::with_capacity(100));
    let pool: BackendSet = (0..100).map(BackendId).collect();
    let (_writer, handle) = index(IndexConfig::default());
    let (mut reader, excluded) = (handle.reader(), BackendSet::default());
    let mut picker = Picker::new(PolicyKind::RoundRobin);
    let mut rng = fastrand::Rng::with_seed(1);
    let mut order = Vec::new();
    for _ in 0..200 {
        let ask = Ask {
            blocks: &[],
            block_tokens: 8.0,
            prompt_tokens: 10,
            output_tokens: 10,
            conversation: None,
            pool: &pool,
            excluded: &excluded,
            waited_ms: 0,
            home_wait_ms: 0,
            turn_wait_ms: 0,
            give_way_max: 0,
            streams: false,
            now: Millis(0),
            random: rng.u64(..),
        };
        let placed = picker.pick(&fleet, reader.load(), &ask).map_err(|_| ()).unwrap();
        order.push(placed.reservation.backend().0);
    }
    assert!(order.windows(2).all(|pair| pair[1] == (pair[0] + 1) % 100), "{order:?}");
}
