//! Small shared tables beside naive twins that forget nothing, and recent routes under threads. Seeded; what fails says
//! which seed.
#![cfg(not(loom))]

use std::collections::HashMap;
use std::sync::Barrier;
use std::thread;

use index::limits::RECENT_MS;
use index::{BackendId, ConversationKey, Fleet, FleetConfig, Millis, Overlaps, SequenceHash};

const BACKENDS: u16 = 4;
const SEEDS: u64 = 20;

fn ids() -> impl Iterator<Item = BackendId> {
    (0..BACKENDS).map(BackendId)
}

fn chain(rng: &mut fastrand::Rng, len: usize) -> Vec<SequenceHash> {
    (0..len).map(|_| SequenceHash(rng.u64(..))).collect()
}

fn depth(fleet: &Fleet, prompt: &[SequenceHash], backend: BackendId, now: Millis) -> usize {
    let mut overlaps = Overlaps::new();
    fleet.recent().overlay(prompt, now, &mut overlaps);
    overlaps.depth(backend) as usize
}

/// Every pin there ever was, until it is told to forget.
struct Pins {
    idle_s: u64,
    homes: HashMap<u64, (BackendId, u64)>,
}

impl Pins {
    fn is_fresh(&self, second: u64, now: Millis) -> bool {
        now.0 / 1000 - second <= self.idle_s
    }

    fn home(&self, key: u64, now: Millis) -> Option<BackendId> {
        let (home, second) = self.homes.get(&key)?;
        self.is_fresh(*second, now).then_some(*home)
    }

    fn sweep(&mut self, now: Millis) {
        let idle_s = self.idle_s;
        self.homes.retain(|_, (_, second)| now.0 / 1000 - *second <= idle_s);
    }

    fn counts(&self) -> Vec<usize> {
        let at = |id| self.homes.values().filter(|(home, _)| *home == id).count();
        ids().map(at).collect()
    }
}

#[test]
fn pins_are_those_of_a_naive_twin_as_long_as_there_is_room() {
    const IDLE_S: u64 = 30;
    for seed in 0..SEEDS {
        let mut rng = fastrand::Rng::with_seed(seed);
        let keys: Vec<u64> = (0..40).map(|_| rng.u64(..)).collect();
        let fleet = Fleet::new(FleetConfig {
            capacity: usize::from(BACKENDS),
            affinity_entries: 1024,
            affinity_idle_ms: IDLE_S * 1000,
        });
        let mut twin = Pins { idle_s: IDLE_S, homes: HashMap::new() };
        let mut now = Millis(0);
        for step in 0..4_000 {
            now = Millis(now.0 + rng.u64(..2_000));
            let (key, backend) = (keys[rng.usize(..keys.len())], BackendId(rng.u16(..BACKENDS)));
            match rng.u8(..100) {
                0 => {
                    fleet.affinity().forget_backend(&fleet, backend, now);
                    twin.homes.retain(|_, (home, _)| *home != backend);
                }
                1..=4 => {
                    fleet.affinity().sweep(&fleet, now);
                    twin.sweep(now);
                    let load = |id| fleet.backend(id).load.conversations() as usize;
                    let counts: Vec<usize> = ids().map(load).collect();
                    assert_eq!(counts, twin.counts(), "seed {seed}, step {step}");
                }
                5..=50 => {
                    fleet.affinity().set(&fleet, ConversationKey(key), backend, now);
                    twin.homes.insert(key, (backend, now.0 / 1000));
                }
                _ => {
                    let home = fleet.affinity().get(ConversationKey(key), now);
                    assert_eq!(home, twin.home(key, now), "seed {seed}, step {step}");
                }
            }
        }
    }
}

/// A prompt that was routed.
struct Route {
    prompt: Vec<SequenceHash>,
    backend: BackendId,
    at: Millis,
}

/// The deepest prefix that was routed to this backend within so long.
fn routed(routes: &[Route], prompt: &[SequenceHash], backend: BackendId, since: Millis) -> usize {
    let shared = |route: &Route| {
        prompt.iter().zip(&route.prompt).take_while(|(mine, theirs)| mine == theirs).count()
    };
    let there = routes.iter().filter(|route| route.backend == backend && since <= route.at);
    there.map(shared).max().unwrap_or(0)
}

#[test]
fn recent_routes_are_those_of_a_naive_twin_to_two_thirds_and_never_more() {
    /// Times are kept in ticks of so long, so a route may be seen two ticks longer than it should be, or one less.
    const TICK_MS: u64 = 16;
    let mut seen_any = 0;
    for seed in 0..SEEDS {
        let mut rng = fastrand::Rng::with_seed(seed);
        let fleet = Fleet::new(FleetConfig::with_capacity(usize::from(BACKENDS)));
        let stems: Vec<_> = (0..3).map(|_| chain(&mut rng, 120)).collect();
        let (mut routes, mut now) = (Vec::new(), Millis(10_000));
        for step in 0..1_500 {
            now = Millis(now.0 + rng.u64(..60));
            let mut prompt = stems[rng.usize(..stems.len())][..rng.usize(1..120)].to_vec();
            let tail = rng.usize(..30);
            prompt.extend(chain(&mut rng, tail));
            for backend in ids() {
                let seen = depth(&fleet, &prompt, backend, now);
                let since = |ms| Millis(now.0.saturating_sub(ms));
                let most = routed(&routes, &prompt, backend, since(RECENT_MS + 2 * TICK_MS));
                let sure = routed(&routes, &prompt, backend, since(RECENT_MS - TICK_MS));
                assert!(
                    seen <= most && seen * 3 >= sure * 2,
                    "{sure} to {most} blocks were routed to {backend:?}, {seen} are seen: seed {seed}, step {step}"
                );
                seen_any += usize::from(seen > 0);
            }
            let backend = BackendId(rng.u16(..BACKENDS));
            fleet.recent().record(&prompt, 0, backend, now);
            routes.push(Route { prompt, backend, at: now });
        }
    }
    assert!(seen_any > 1_000, "{seen_any} depths prove nothing");
}

#[test]
fn no_thread_sees_a_route_that_nobody_took() {
    let mut rng = fastrand::Rng::with_seed(0x5eed);
    let fleet = Fleet::new(FleetConfig::with_capacity(usize::from(BACKENDS)));
    let prompts: Vec<_> = ids().map(|_| chain(&mut rng, 200)).collect();
    let start = Barrier::new(usize::from(BACKENDS));
    thread::scope(|scope| {
        for (mine, own) in ids().zip(&prompts) {
            let (fleet, prompts, start) = (&fleet, &prompts, &start);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(u64::from(mine.0));
                start.wait();
                for step in 0..2_000 {
                    let now = Millis(5_000 + step / 10);
                    fleet.recent().record(&own[..rng.usize(1..=own.len())], 0, mine, now);
                    let (other, prompt) = ids().zip(prompts).nth(rng.usize(..4)).unwrap();
                    let strangers = ids().filter(|id| *id != other);
                    let wrong: Vec<_> =
                        strangers.filter(|id| depth(fleet, prompt, *id, now) > 0).collect();
                    assert_eq!(wrong, [], "none of them was given the prompt of {other:?}");
                    assert!(depth(fleet, own, mine, now) > 0, "its own is seen at once");
                }
            });
        }
    });
}
