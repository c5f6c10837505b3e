//! Many threads on real atomics, seeded: what the loom models show for two or three threads must hold for more, with the
//! real publication cell in between. Threads meet at a barrier and at the end; nobody sleeps.
#![cfg(not(loom))]

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use index::{
    Ask, BackendId, BackendSet, Charge, ConversationKey, Fleet, FleetConfig, IndexConfig, Limits,
    Millis, Nowhere, Observation, Overlaps, Picker, PolicyKind, SequenceHash, index,
};

const THREADS: u64 = 4;
const SEED: u64 = 0x5eed;

fn chain(root: u64, len: usize) -> Vec<SequenceHash> {
    let mut fingerprinter = index::Fingerprinter::new(index::FingerprintKey::new(root), 8);
    (0..len as u64).for_each(|block| fingerprinter.push(&block.to_le_bytes()));
    fingerprinter.finish().blocks
}

fn limited(capacity: usize, limits: Limits) -> Fleet {
    let fleet = Fleet::new(FleetConfig::with_capacity(capacity));
    (0..capacity as u16).for_each(|id| fleet.backend(BackendId(id)).set_limits(limits));
    fleet
}

/// Everything back to nothing: no request in flight, no prefill work.
fn assert_idle(fleet: &Fleet) {
    for id in 0..fleet.len() as u16 {
        let backend = fleet.backend(BackendId(id));
        assert_eq!(backend.slots.in_flight(), (0, 0), "seed {SEED}");
        assert_eq!(backend.load.uncached_tokens(), 0, "seed {SEED}");
    }
    fleet.check_invariants().unwrap();
}

#[test]
fn limits_hold_under_contention_and_everything_comes_back() {
    const MAX: u32 = 3;
    let fleet = limited(2, Limits { requests_max: MAX, tokens_max: 1000 });
    let held = [AtomicU64::new(0), AtomicU64::new(0)];
    let start = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (fleet, held, start) = (&fleet, &held, &start);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(SEED + thread);
                start.wait();
                for _ in 0..20_000 {
                    let id = rng.u16(..2);
                    let charge =
                        Charge { tokens: rng.u64(1..400), uncached_tokens: rng.u64(..400) };
                    let Ok(place) = fleet.reserve(BackendId(id), charge) else { continue };
                    // SeqCst: the count kept apart must never be behind the one under test.
                    let now = held[usize::from(id)].fetch_add(1, Ordering::SeqCst) + 1;
                    assert!(now <= u64::from(MAX), "{now} held at once, seed {SEED}");
                    if rng.bool() {
                        place.prefill_done();
                    }
                    // SeqCst: as above, before the place is given back.
                    held[usize::from(id)].fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert_idle(&fleet);
}

#[test]
fn marks_of_a_large_fleet_are_right_once_everybody_is_done() {
    let fleet = limited(130, Limits { requests_max: 2, tokens_max: 0 });
    let start = Barrier::new(THREADS as usize);
    for round in 0..50 {
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (fleet, start) = (&fleet, &start);
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(SEED + round * THREADS + thread);
                    start.wait();
                    let mut held = Vec::new();
                    for _ in 0..400 {
                        // Few, so that threads meet.
                        let id = BackendId(rng.u16(62..66));
                        let charge = Charge { tokens: 1, uncached_tokens: rng.u64(..9_000) };
                        held.extend(fleet.reserve(id, charge));
                        match rng.u8(..8) {
                            0 => fleet.backend(id).set_healthy(rng.bool()),
                            1 => held.iter().for_each(index::Reservation::prefill_done),
                            _ => drop(held.drain(..rng.usize(..=held.len()))),
                        }
                    }
                });
            }
        });
        assert_idle(&fleet);
    }
}

#[test]
fn readers_see_evidence_grow_and_never_a_torn_snapshot() {
    const GROWTHS: usize = 400;
    const STEP: usize = 5;
    let (mut writer, handle) = index(IndexConfig::default());
    let blocks = chain(1, GROWTHS * STEP);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let (mut reader, blocks, done) = (handle.reader(), &blocks, &done);
            scope.spawn(move || {
                let (mut overlaps, mut last) = (Overlaps::new(), 0);
                // Acquire: pairs with the Release below, so the last look sees the last publication.
                while !done.load(Ordering::Acquire) || last < GROWTHS * STEP {
                    reader.load().overlaps(blocks, &mut overlaps);
                    let (one, two) = (overlaps.depth(BackendId(1)), overlaps.depth(BackendId(2)));
                    assert_eq!(one % STEP as u32, 0, "half an observation");
                    assert_eq!(two, one, "half a batch");
                    assert!(one as usize >= last, "evidence went backwards");
                    last = one as usize;
                }
            });
        }
        for growth in 1..=GROWTHS {
            let blocks = blocks[..growth * STEP].to_vec();
            for backend in [BackendId(1), BackendId(2)] {
                let at = Millis(growth as u64);
                writer.apply(Observation::Stored { backend, blocks: blocks.clone(), at });
            }
            writer.publish(Millis(growth as u64));
        }
        // Release: pairs with the readers' Acquire.
        done.store(true, Ordering::Release);
    });
    writer.check_invariants().unwrap();
    writer.publish(Millis(0));
    assert_eq!(writer.stats().retired_snapshots, 0, "the readers are gone");
}

/// One shard of the whole decision: picks, holds some, ends some, and sends what it routed to the writer.
fn shard(
    fleet: &Fleet,
    handle: &index::IndexHandle,
    thread: u64,
    observe: &std::sync::mpsc::Sender<Observation>,
) -> u64 {
    let mut rng = fastrand::Rng::with_seed(SEED + thread);
    let (mut picker, mut reader) = (Picker::new(PolicyKind::DEFAULT), handle.reader());
    let pool: BackendSet = (0..fleet.len() as u16).map(BackendId).collect();
    let excluded = BackendSet::default();
    let (mut running, mut busy) = (Vec::new(), 0);
    for step in 0..2_000 {
        let conversation = rng.u64(..200);
        let blocks = chain(conversation % 20, rng.usize(1..60));
        let ask = Ask {
            blocks: &blocks,
            block_tokens: 4.0,
            prompt_tokens: blocks.len() as u64 * 4,
            output_tokens: 50,
            conversation: Some(ConversationKey(conversation.wrapping_mul(0x9e37_79b9_7f4a_7c15))),
            pool: &pool,
            excluded: &excluded,
            waited_ms: 0,
            home_wait_ms: 0,
            turn_wait_ms: 0,
            give_way_max: 0,
            streams: false,
            now: Millis(step),
            random: rng.u64(..),
        };
        match picker.pick(fleet, reader.load(), &ask) {
            Ok(placed) => {
                let (backend, at) = (placed.reservation.backend(), ask.now);
                observe.send(Observation::Stored { backend, blocks, at }).unwrap();
                running.push(placed.reservation);
            }
            Err(Nowhere::Busy(_)) => busy += 1,
            Err(other) => panic!("{other:?}, seed {SEED}"),
        }
        if running.len() > 5 || rng.bool() {
            running.drain(..running.len().min(rng.usize(..4)));
        }
    }
    busy
}

#[test]
fn whole_decisions_from_many_shards_leave_the_fleet_idle_and_the_books_right() {
    let fleet = limited(3, Limits { requests_max: 4, tokens_max: 0 });
    let config = IndexConfig { backend_blocks_max: 300, ..IndexConfig::default() };
    let (mut writer, handle) = index(config);
    let (observe, observed) = std::sync::mpsc::channel();
    let busy: u64 = thread::scope(|scope| {
        let shards: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (fleet, handle, observe) = (&fleet, &handle, observe.clone());
                scope.spawn(move || shard(fleet, handle, thread, &observe))
            })
            .collect();
        drop(observe);
        for observation in observed {
            writer.apply(observation);
            writer.publish(Millis(0));
        }
        shards.into_iter().map(|shard| shard.join().unwrap()).sum()
    });
    assert!(busy > 0, "the limits were never reached, seed {SEED}");
    assert_idle(&fleet);
    writer.check_invariants().unwrap();
    let pinned: u32 = (0..3).map(|id| fleet.backend(BackendId(id)).load.conversations()).sum();
    assert!((1..=200 + THREADS as u32).contains(&pinned), "{pinned} of 200 conversations");
    (0..3).for_each(|id| fleet.affinity().forget_backend(&fleet, BackendId(id), Millis(0)));
    let left: u32 = (0..3).map(|id| fleet.backend(BackendId(id)).load.conversations()).sum();
    assert_eq!(left, 0, "seed {SEED}");
}

#[test]
fn what_crosses_threads_may_cross_threads() {
    fn send<T: Send>() {}
    fn share<T: Send + Sync>() {}
    share::<Fleet>();
    share::<index::IndexHandle>();
    share::<index::Snapshot>();
    send::<index::IndexWriter>();
    send::<index::IndexReader>();
    send::<Picker>();
    send::<index::Reservation<'static>>();
    send::<index::Decision>();
}
