//! Many threads at one gate: what the loom models show for two or three of them, with all of its trials and for longer.
#![cfg(not(loom))]

use std::sync::Barrier;
use std::thread;

use index::breaker::{Gate, Pass, State};
use index::limits::{BREAKER_FAILURES, BREAKER_TRIALS};
use index::{Backend, BackendId, Fleet, FleetConfig, Millis};

const FIRST: BackendId = BackendId(0);

fn fleet() -> Fleet {
    Fleet::new(FleetConfig { affinity_entries: 2, ..FleetConfig::with_capacity(1) })
}

fn open(gate: &Gate, backend: &Backend) {
    for _ in 0..BREAKER_FAILURES {
        gate.enter(FIRST, backend).unwrap().failed(Millis(0), 0);
    }
}

#[test]
fn threads_at_once_never_take_more_trials_than_there_are_and_leave_the_switch_as_the_word_says() {
    for seed in 0..200 {
        let fleet = fleet();
        let (gate, backend) = (Gate::default(), fleet.backend(FIRST));
        thread::scope(|scope| {
            for thread in 0..3 {
                let gate = &gate;
                scope.spawn(move || disturb(gate, backend, seed * 3 + thread));
            }
        });
        let word = gate.look();
        assert_eq!(backend.admits().is_ok(), word.admits(), "seed {seed}: {word:?}");
        if let State::HalfOpen { taken, passed } = word.state {
            assert_eq!(taken, passed, "seed {seed}: nobody is on trial any more");
        }
        assert_eq!(gate.due().is_some(), word.state == State::Open, "seed {seed}");
    }
}

#[test]
fn a_place_taken_and_one_given_back_at_once_leave_the_switch_as_the_word_says() {
    const ROUNDS: usize = 5_000;
    let fleet = fleet();
    let (gate, backend) = (Gate::default(), fleet.backend(FIRST));
    open(&gate, backend);
    gate.half_open(backend);
    // All places but one are held, so that taking it shuts the switch and giving one back opens it.
    let mut held: Vec<Pass<'_>> =
        (1..BREAKER_TRIALS).filter_map(|_| gate.enter(FIRST, backend)).collect();
    let (meet, mut wrong) = (Barrier::new(2), Vec::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..ROUNDS {
                meet.wait();
                let taken = gate.enter(FIRST, backend);
                meet.wait();
                meet.wait();
                drop(taken);
            }
        });
        for round in 0..ROUNDS {
            meet.wait();
            drop(held.pop());
            meet.wait();
            let word = gate.look();
            // Asserted afterwards: a panic here would leave the other thread waiting.
            if backend.admits().is_ok() != word.admits() {
                wrong.push((round, word));
            }
            held.extend(gate.enter(FIRST, backend));
            meet.wait();
        }
    });
    assert_eq!(wrong, [], "round and word");
}

/// Requests that come to anything, and a control thread that ends pauses at once.
fn disturb(gate: &Gate, backend: &Backend, seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut held = Vec::new();
    for step in 0..300 {
        match (rng.u8(0..8), held.pop()) {
            (0..=2, back) => {
                held.extend(back);
                held.extend(gate.enter(FIRST, backend));
            }
            (3, Some(pass)) => pass.succeeded(Millis(step)),
            (4..=5, Some(pass)) => pass.failed(Millis(step), 0),
            (6, back) => {
                held.extend(back);
                gate.half_open(backend);
            }
            (_, dropped) => drop(dropped),
        }
        if let State::HalfOpen { taken, passed } = gate.look().state {
            assert!(passed <= taken && taken <= BREAKER_TRIALS);
        }
    }
}
