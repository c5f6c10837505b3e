//! The budget by itself: what fits, what comes back, and threads that take and give at once.

use super::*;

fn budget(max: u64, shards: usize) -> &'static Budget {
    Box::leak(Box::new(Budget::new(Some(max), shards)))
}

fn shard(budget: &'static Budget) -> Rc<Allowance> {
    Rc::new(Allowance::new(budget))
}

#[test]
fn what_fits_is_held_and_what_does_not_is_refused_and_changes_nothing() {
    let here = shard(budget(1000, 1));
    let (mut first, mut second) = (Charge::new(&here), Charge::new(&here));
    assert!(first.resize(600) && second.would_fit(400) && !second.would_fit(401));
    assert!(!second.resize(401));
    assert_eq!(here.used(), 600);
    assert!(second.resize(400));
    drop(first);
    assert!(second.resize(1000) && here.used() == 1000);
    drop(second);
    assert_eq!(here.used(), 0);
}

#[test]
fn a_small_body_touches_the_budget_once_a_lease() {
    let all = budget(1 << 30, 2);
    let here = shard(all);
    let taken = || all.max() - all.left();
    let kept: Vec<Charge> = (0..100)
        .map(|_| {
            let mut charge = Charge::new(&here);
            assert!(charge.resize(10_000));
            charge
        })
        .collect();
    assert_eq!(taken(), MEMORY_LEASE_BYTES);
    drop(kept);
    assert_eq!(taken(), MEMORY_LEASE_BYTES, "one lease stays in hand");
}

#[test]
fn what_a_shard_keeps_in_hand_leaves_the_others_most_of_a_small_budget() {
    let all = budget(1 << 20, 4);
    let idle: Vec<_> = (0..3).map(|_| shard(all)).collect();
    for shard in &idle {
        assert!(Charge::new(shard).resize(200_000));
    }
    let busy = shard(all);
    assert!(Charge::new(&busy).resize(800_000));
}

#[test]
fn what_is_held_regardless_is_counted_and_keeps_new_ones_out() {
    let here = shard(budget(1000, 1));
    let (mut forced, mut asks) = (Charge::new(&here), Charge::new(&here));
    assert!(forced.note(900));
    assert!(!forced.note(1500), "beyond the budget");
    assert!(!forced.note(1500), "and still so when asked again");
    assert_eq!(here.used(), 1500);
    assert!(!asks.resize(1) && !asks.would_fit(1));
    assert!(forced.note(10));
    assert!(asks.resize(900));
}

#[test]
fn a_loan_is_what_is_left_and_comes_back() {
    let all = budget(1000, 1);
    let first = all.lend(700);
    let second = all.lend(700);
    assert_eq!((first.bytes(), second.bytes()), (700, 300));
    assert_eq!(all.lend(1).bytes(), 0);
    drop((first, second));
    assert_eq!(all.left(), 1000);
}

#[test]
fn shards_at_once_never_hold_more_than_the_budget_and_all_of_it_comes_back() {
    let all = budget(100_000, 4);
    // Relaxed: a sum over threads, compared while they run: each adds only after it was let.
    let held = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let held = &held;
            scope.spawn(move || {
                let here = shard(all);
                let mut random = fastrand::Rng::with_seed(seed);
                let mut charges: Vec<(Charge, u64)> = Vec::new();
                for _ in 0..20_000 {
                    if random.bool() && !charges.is_empty() {
                        let (charge, bytes) = charges.swap_remove(random.usize(..charges.len()));
                        held.fetch_sub(bytes, Ordering::Relaxed);
                        drop(charge);
                    } else {
                        let (mut charge, bytes) = (Charge::new(&here), random.usize(1..9_000));
                        if charge.resize(bytes) {
                            let now = held.fetch_add(bytes as u64, Ordering::Relaxed);
                            assert!(now + bytes as u64 <= all.max());
                            charges.push((charge, bytes as u64));
                        }
                    }
                }
                held.fetch_sub(charges.iter().map(|(_, bytes)| bytes).sum(), Ordering::Relaxed);
                drop(charges);
                assert_eq!(here.used(), 0);
                assert!(here.leased.get() <= 2 * all.lease);
            });
        }
    });
    // Relaxed: the threads are over.
    assert_eq!(held.load(Ordering::Relaxed), 0);
    assert!(all.max() - all.left() <= 4 * 2 * all.lease);
}
