//! What the clients say and when they leave: a plan made of a seed before anything runs. It opens no connection.

use std::time::Duration;

use fastrand::Rng;

use super::dialect::Dialect;

/// Groups of conversations that share a system prompt, and its length.
const SYSTEMS: u64 = 5;
const SYSTEM_BYTES: usize = 1_600;

/// When a client stops waiting for a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaves {
    /// Not before the reply has ended.
    Never,
    /// So long after it asked: while it waits, or in prefill, or later.
    After(Duration),
    /// When so many events have come.
    AfterEvents(usize),
}

/// How a client takes a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    /// As it comes.
    AtOnce,
    /// A few bytes at a time.
    Slowly,
    /// Slowly, and once it stops for longer than the proxy waits for a client.
    Stopping,
}

/// One thing a client says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Turn {
    /// How long it thinks before it says it.
    pub(crate) thinks: Duration,
    pub(crate) says: String,
    pub(crate) leaves: Leaves,
}

/// One conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Talk {
    pub(crate) number: u64,
    pub(crate) dialect: Dialect,
    pub(crate) streamed: bool,
    pub(crate) takes: Takes,
    pub(crate) system: String,
    pub(crate) turns: Vec<Turn>,
}

impl Talk {
    /// The `number`-th conversation of a seed. Everything it says carries its canary, so that no two prompts of a run are
    /// equal, and neither are their replies.
    pub(crate) fn of(seed: u64, number: u64) -> Talk {
        let mut rng = Rng::with_seed(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let takes = takes(&mut rng);
        let slow = takes != Takes::AtOnce;
        let streamed = slow || rng.u8(0..10) < 7;
        let turns = (0..if slow { 1 } else { rng.usize(2..5) }).map(|turn| {
            let words = prose(&mut rng, 40..500);
            Turn {
                thinks: Duration::from_millis(if turn == 0 { 0 } else { rng.u64(0..150) }),
                says: format!("canary {seed:x}.{number}.{turn} {words}"),
                leaves: if slow { Leaves::Never } else { leaves(&mut rng, streamed) },
            }
        });
        let turns = turns.collect();
        let dialect = Dialect::ALL[rng.usize(..Dialect::ALL.len())];
        let mut group = Rng::with_seed(seed ^ (number % SYSTEMS));
        let system = prose(&mut group, SYSTEM_BYTES..SYSTEM_BYTES + 1);
        Talk { number, dialect, streamed, takes, system, turns }
    }
}

/// Few, because their replies are long.
fn takes(rng: &mut Rng) -> Takes {
    match rng.u8(0..120) {
        0 => Takes::Slowly,
        1 => Takes::Stopping,
        _ => Takes::AtOnce,
    }
}

/// One in ten does not wait for the end.
fn leaves(rng: &mut Rng, streamed: bool) -> Leaves {
    match rng.u8(0..20) {
        0 => Leaves::After(Duration::from_millis(rng.u64(0..250))),
        1 if streamed => Leaves::AfterEvents(rng.usize(1..8)),
        1 => Leaves::After(Duration::from_millis(rng.u64(0..40))),
        _ => Leaves::Never,
    }
}

/// Words without meaning.
fn prose(rng: &mut Rng, bytes: std::ops::Range<usize>) -> String {
    let length = rng.usize(bytes);
    let mut text = String::with_capacity(length + 10);
    while text.len() < length {
        text.extend((0..rng.usize(2..9)).map(|_| char::from(rng.u8(b'a'..=b'z'))));
        text.push(' ');
    }
    text
}

#[test]
fn the_same_seed_is_the_same_clients_and_no_two_say_the_same() {
    assert_eq!(Talk::of(1, 2), Talk::of(1, 2));
    let talks: Vec<Talk> = (0..300).map(|number| Talk::of(1, number)).collect();
    let mut said: Vec<&str> =
        talks.iter().flat_map(|talk| &talk.turns).map(|turn| turn.says.as_str()).collect();
    let all = said.len();
    said.sort_unstable();
    said.dedup();
    assert_eq!(said.len(), all);
    let any = |holds: &dyn Fn(&Talk) -> bool| talks.iter().any(holds);
    for dialect in Dialect::ALL {
        assert!(any(&|talk| talk.dialect == dialect && talk.streamed));
        assert!(any(&|talk| talk.dialect == dialect && !talk.streamed));
    }
    assert!(any(&|talk| talk
        .turns
        .iter()
        .any(|turn| matches!(turn.leaves, Leaves::AfterEvents(_)))));
    assert!(any(&|talk| talk.takes == Takes::Slowly) && any(&|talk| talk.takes == Takes::Stopping));
    assert_eq!(talks[0].system, talks[5].system);
}
