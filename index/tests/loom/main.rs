//! Every interleaving of what several threads do to shared state, explored by loom:
//! `RUSTFLAGS="--cfg loom" cargo test -p index --lib --test loom --release`
#![cfg(loom)]

mod breaker;
mod pool;
mod recent;

use index::publication::publication;
use index::{BackendId, Charge, ConversationKey, Fleet, FleetConfig, Limits, Millis, model};
use loom::sync::Arc;
use loom::thread;

const B: BackendId = BackendId(0);

fn fleet(capacity: usize, limits: Limits) -> Arc<Fleet> {
    let config = FleetConfig { capacity, affinity_entries: 2, affinity_idle_ms: 60_000 };
    let fleet = Fleet::new(config);
    fleet.backend(B).set_limits(limits);
    Arc::new(fleet)
}

fn in_flight(fleet: &Fleet) -> (u32, u64) {
    fleet.backend(B).slots.in_flight()
}

#[test]
fn a_slot_is_never_held_twice_and_always_comes_back() {
    model(|| {
        let fleet = fleet(1, Limits { requests_max: 2, tokens_max: 0 });
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let fleet = Arc::clone(&fleet);
                thread::spawn(move || {
                    let held = fleet.reserve(B, Charge { tokens: 10, uncached_tokens: 7 });
                    assert!(in_flight(&fleet).0 <= 2);
                    held.is_ok()
                })
            })
            .collect();
        let won = threads.into_iter().map(|t| t.join().unwrap()).filter(|won| *won).count();
        assert!(won >= 2, "two fit");
        assert_eq!(in_flight(&fleet), (0, 0));
        assert_eq!(fleet.backend(B).load.uncached_tokens(), 0);
    });
}

#[test]
fn requests_and_tokens_move_together_or_not_at_all() {
    model(|| {
        // 90 of 100 tokens are usable: either request fits, both do not.
        let fleet = fleet(1, Limits { requests_max: 0, tokens_max: 100 });
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let fleet = Arc::clone(&fleet);
                thread::spawn(move || {
                    let held = fleet.reserve(B, Charge { tokens: 60, uncached_tokens: 0 });
                    let (requests, tokens) = in_flight(&fleet);
                    assert_eq!(tokens, 60 * u64::from(requests));
                    assert!(requests <= 1);
                    drop(held);
                })
            })
            .collect();
        let (requests, tokens) = in_flight(&fleet);
        assert_eq!(tokens, 60 * u64::from(requests));
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(in_flight(&fleet), (0, 0));
    });
}

#[test]
fn prefill_work_is_given_back_once_however_it_ends() {
    model(|| {
        let fleet = fleet(1, Limits::default());
        let threads: Vec<_> = (0..2)
            .map(|i| {
                let fleet = Arc::clone(&fleet);
                thread::spawn(move || {
                    let charge = Charge { tokens: 9, uncached_tokens: 5 };
                    let held = fleet.reserve(B, charge).unwrap();
                    if i == 0 {
                        held.prefill_done();
                        held.prefill_done();
                    }
                })
            })
            .collect();
        assert!(fleet.backend(B).load.uncached_tokens() <= 10);
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(fleet.backend(B).load.uncached_tokens(), 0);
    });
}

#[test]
fn conversations_are_counted_exactly_as_long_as_they_are_pinned() {
    model(|| {
        let fleet = fleet(2, Limits::default());
        let key = ConversationKey(0x1234_5678_0000_0001);
        let threads: Vec<_> = (0..2)
            .map(|i| {
                let fleet = Arc::clone(&fleet);
                thread::spawn(move || {
                    fleet.affinity().set(&fleet, key, BackendId(i), Millis(0));
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        let home = fleet.affinity().get(key, Millis(0)).unwrap();
        let load = &fleet.backend(home).load;
        assert!(load.conversations() >= 1);
        let due = load.conversations_due(Millis(0), 1_000.0);
        assert_eq!(due, load.conversations() as f32, "no change of the sum is lost");
        (0..2).for_each(|id| fleet.affinity().forget_backend(&fleet, BackendId(id), Millis(0)));
        let left = (0..2).map(|id| fleet.backend(BackendId(id)).load.conversations()).sum::<u32>();
        assert_eq!(left, 0);
    });
}

#[test]
fn a_pin_moved_while_its_backend_leaves_never_leaves_a_count_behind() {
    model(|| {
        let fleet = fleet(2, Limits::default());
        let key = ConversationKey(0x1234_5678_0000_0001);
        fleet.affinity().set(&fleet, key, B, Millis(0));
        let mover = {
            let fleet = Arc::clone(&fleet);
            thread::spawn(move || fleet.affinity().set(&fleet, key, BackendId(1), Millis(1)))
        };
        fleet.affinity().forget_backend(&fleet, B, Millis(1));
        mover.join().unwrap();
        assert_eq!(fleet.backend(B).load.conversations(), 0);
        assert_eq!(fleet.backend(BackendId(1)).load.conversations(), 1);
    });
}

#[test]
fn marks_agree_with_the_state_once_everybody_is_done() {
    model(|| {
        // Large enough to be marked.
        let fleet = fleet(3, Limits { requests_max: 1, tokens_max: 0 });
        let other = {
            let fleet = Arc::clone(&fleet);
            thread::spawn(move || drop(fleet.reserve(B, Charge { tokens: 1, uncached_tokens: 0 })))
        };
        let held = fleet.reserve(B, Charge { tokens: 1, uncached_tokens: 0 });
        other.join().unwrap();
        fleet.check_invariants().unwrap();
        drop(held);
        fleet.check_invariants().unwrap();
    });
}

#[test]
fn a_switch_thrown_while_a_request_ends_is_marked() {
    model(|| {
        let fleet = fleet(3, Limits::default());
        let held = fleet.reserve(B, Charge { tokens: 1, uncached_tokens: 1 }).unwrap();
        let control = {
            let fleet = Arc::clone(&fleet);
            thread::spawn(move || {
                fleet.backend(B).set_limits(Limits { requests_max: 1, tokens_max: 0 })
            })
        };
        drop(held);
        control.join().unwrap();
        fleet.check_invariants().unwrap();
    });
}

/// A value that knows which thread may free it.
struct Guarded {
    number: u32,
    writer: thread::ThreadId,
}

impl Drop for Guarded {
    fn drop(&mut self) {
        assert_eq!(thread::current().id(), self.writer, "freed by a reader");
    }
}

#[test]
fn a_reader_sees_old_or_new_and_only_the_writer_frees() {
    model(|| {
        let writer = thread::current().id();
        let value = |number| Guarded { number, writer };
        let (mut publisher, subscription) = publication(value(0));
        let mut reader = subscription.reader();
        let reading = thread::spawn(move || {
            let first = reader.load().number;
            let held = reader.load();
            let second = held.number;
            assert!(first <= second && second <= 2, "{first} then {second}");
            assert_eq!(held.number, second, "it stays while it is borrowed");
        });
        publisher.publish(value(1));
        publisher.publish(value(2));
        reading.join().unwrap();
        assert_eq!(publisher.reclaim(), 0, "nobody reads any more");
        assert_eq!(publisher.current().number, 2);
        drop(subscription);
    });
}

/// The canary: a publisher that does not keep what it replaced lets a reader free it, and the model sees that.
#[test]
#[should_panic(expected = "freed by a reader")]
fn a_publisher_that_retires_nothing_is_caught() {
    model(|| {
        let writer = thread::current().id();
        let cell = Arc::new(loom::sync::Mutex::new(Arc::new(Guarded { number: 0, writer })));
        let reading = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || {
                let held = Arc::clone(&cell.lock().unwrap());
                assert!(held.number <= 1);
            })
        };
        *cell.lock().unwrap() = Arc::new(Guarded { number: 1, writer });
        reading.join().unwrap();
    });
}
