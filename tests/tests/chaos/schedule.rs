//! When which engine fails in which way, and which backends operators take out meanwhile: a plan made of a seed before
//! anything runs. It reads no clock.

use std::ops::Range;
use std::time::Duration;

use fastrand::Rng;
use loadgen::engine::{Cut, CutHow, Faults, RateLimit};

/// One way an engine lets its callers down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Its process is killed; another one takes its place when it mends.
    Killed,
    /// It accepts everything and computes nothing.
    Hung,
    /// Its process dies and is back at once, cold.
    Restarted,
    /// It has no room.
    Full,
    /// It is ten times as slow.
    Slowed,
    /// It answers 429 and says when to come again.
    RateLimited,
    /// It answers 401.
    KeyRefused,
    /// Its streams are cut.
    Cut(CutHow),
    /// Its replies in one piece are cut.
    CutWhole,
    /// Its streams stop and stay open.
    Stalled,
    /// It resets new connections.
    ResetOnAccept,
    /// Nothing listens.
    Refusing,
    /// It answers 500.
    Failing,
}

impl Fault {
    pub(crate) const ALL: [Fault; 15] = [
        Fault::Killed,
        Fault::Hung,
        Fault::Restarted,
        Fault::Full,
        Fault::Slowed,
        Fault::RateLimited,
        Fault::KeyRefused,
        Fault::Cut(CutHow::Close),
        Fault::Cut(CutHow::Reset),
        Fault::Cut(CutHow::InsideEvent),
        Fault::CutWhole,
        Fault::Stalled,
        Fault::ResetOnAccept,
        Fault::Refusing,
        Fault::Failing,
    ];

    /// Those by which an engine says only that it is busy.
    pub(crate) const BUSY: [Fault; 2] = [Fault::Full, Fault::RateLimited];

    /// What a running engine is told; a death is not told.
    pub(crate) fn faults(self) -> Faults {
        let well = Faults::default();
        match self {
            Fault::Killed | Fault::Restarted => well,
            Fault::Hung => Faults { wedge: true, ..well },
            Fault::Full => Faults { full: true, ..well },
            Fault::Slowed => Faults { slow_factor: 10.0, ..well },
            Fault::RateLimited => {
                Faults { rate_limited: Some(RateLimit { retry_after_s: Some(1) }), ..well }
            }
            Fault::KeyRefused => Faults { key_refused: true, ..well },
            Fault::Cut(how) => {
                Faults { cut: Some(Cut { after_events: 3, how, times: None }), ..well }
            }
            Fault::CutWhole => Faults { cut_whole: true, ..well },
            Fault::Stalled => Faults { stall_after_events: Some(4), ..well },
            Fault::ResetOnAccept => Faults { reset_on_accept: true, ..well },
            Fault::Refusing => Faults { refuse: true, ..well },
            Fault::Failing => Faults { internal_error: true, ..well },
        }
    }
}

/// What happens to an engine, or to the backend it is to the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Happens {
    Fails(Fault),
    /// It is well again.
    Mends,
    /// An operator asks for this at the admin address.
    Switched(&'static str),
}

/// What happens at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    /// From the beginning of the run.
    pub(crate) at: Duration,
    pub(crate) engine: usize,
    pub(crate) what: Happens,
}

/// How long a fault lasts, milliseconds.
const LASTS_MS: Range<u64> = 300..2_000;
/// How long an engine is well between two faults, milliseconds: hardly, for a run of seconds.
pub(crate) const HARDLY_WELL_MS: Range<u64> = 400..1_800;
/// For a run of minutes: with faults closer together every breaker is open most of the time, and there is no load.
pub(crate) const OFTEN_WELL_MS: Range<u64> = 10_000..50_000;

/// Operators who know nothing of each other: what one takes out another may bring back.
const OPERATORS: u64 = 2;

/// The plan of a seed: every engine fails again and again, in all the ways given, and is well at the end; operators take
/// backends out whatever state these are in, and bring them back.
pub(crate) fn schedule(
    seed: u64,
    engines: usize,
    length: Duration,
    ways: &[Fault],
    well_ms: Range<u64>,
) -> Vec<Step> {
    let mut rng = Rng::with_seed(seed);
    let (mut deck, mut steps) = (Vec::new(), Vec::new());
    let ms = Duration::from_millis;
    for engine in 0..engines {
        let mut at = ms(rng.u64(0..well_ms.end));
        loop {
            let ends = at + ms(rng.u64(LASTS_MS));
            if ends > length {
                break;
            }
            let what = Happens::Fails(dealt(&mut deck, ways, &mut rng));
            steps.push(Step { at, engine, what });
            steps.push(Step { at: ends, engine, what: Happens::Mends });
            at = ends + ms(rng.u64(well_ms.clone()));
        }
    }
    let operators = (1..=OPERATORS).map(|number| Rng::with_seed(seed ^ (number << 32)));
    steps.extend(operators.flat_map(|rng| operator(rng, engines, length, well_ms.clone())));
    steps.sort_by_key(|step| step.at);
    steps
}

/// What one operator does: one backend after another, each only for a while.
fn operator(mut rng: Rng, engines: usize, length: Duration, rests_ms: Range<u64>) -> Vec<Step> {
    let (mut deck, mut steps, ms) = (Vec::new(), Vec::new(), Duration::from_millis);
    let mut at = ms(rng.u64(0..rests_ms.end));
    loop {
        let ends = at + ms(rng.u64(LASTS_MS));
        if ends > length {
            return steps;
        }
        let (engine, what) = (
            rng.usize(..engines),
            Happens::Switched(dealt(&mut deck, &["drain", "disable"], &mut rng)),
        );
        steps.push(Step { at, engine, what });
        steps.push(Step { at: ends, engine, what: Happens::Switched("enable") });
        at = ends + ms(rng.u64(rests_ms.clone()));
    }
}

/// The next of a shuffled deck, so that no way is left out however few are dealt.
fn dealt<T: Copy>(deck: &mut Vec<T>, ways: &[T], rng: &mut Rng) -> T {
    if deck.is_empty() {
        deck.extend_from_slice(ways);
        rng.shuffle(deck);
    }
    deck.pop().expect("there is at least one way to fail")
}

#[test]
fn the_same_seed_is_the_same_schedule_with_every_way_to_fail_in_it() {
    let plan = |seed| schedule(seed, 6, Duration::from_secs(15), &Fault::ALL, HARDLY_WELL_MS);
    assert_eq!(plan(7), plan(7));
    assert_ne!(plan(7), plan(8));
    for seed in 0..50 {
        let steps = plan(seed);
        let happens = |what| steps.iter().any(|step| step.what == what);
        assert!(Fault::ALL.iter().all(|way| happens(Happens::Fails(*way))));
        assert!(happens(Happens::Switched("drain")) && happens(Happens::Switched("disable")));
        let (mut well, mut enabled) = ([true; 6], [true; 6]);
        for Step { engine, what, .. } in steps {
            if let Happens::Switched(to) = what {
                enabled[engine] = to == "enable";
                continue;
            }
            let mends = what == Happens::Mends;
            assert_ne!(well[engine], mends, "faults of one engine do not overlap");
            well[engine] = mends;
        }
        assert_eq!((well, enabled), ([true; 6], [true; 6]), "all are well and enabled at the end");
    }
}
