//! What is told and taken in: the same beliefs for the same backends, and nothing from bytes that are not whole.

use index::{Observation, Overlaps};

use super::*;
use crate::fixture::{config, shared};

const BOTH: &str = "[[backend]]\nname = \"a\"\nurl = \"http://127.0.0.1:9\"\n\
    [[backend]]\nname = \"b\"\nurl = \"http://127.0.0.1:10\"\n";
/// The second comes first, and the first has moved.
const OTHERS: &str = "[[backend]]\nname = \"b\"\nurl = \"http://127.0.0.1:10\"\n\
    [[backend]]\nname = \"a\"\nurl = \"http://127.0.0.1:11\"\n";

fn blocks(family: u64, count: u64) -> Vec<SequenceHash> {
    let hash =
        |number: u64| SequenceHash((family << 32 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    (1..=count).map(hash).collect()
}

const KEY: ConversationKey = ConversationKey(0x1234_5678_9abc_def0);

fn told() -> Vec<u8> {
    let (old, mut writer) = shared(config(BOTH));
    for (backend, family, count) in [(0, 1, 20), (1, 1, 12), (1, 2, 30)] {
        let (backend, blocks) = (BackendId(backend), blocks(family, count));
        writer.apply(Observation::Stored { backend, blocks, at: Millis(9_000) });
    }
    old.fleet.affinity().set(&old.fleet, KEY, BackendId(1), Millis(9_000));
    write(old, &writer, Millis(10_000))
}

/// How deep the first two backends are believed to reach, and where the conversation lives.
type Beliefs = ([u32; 2], [u32; 2], Option<BackendId>);

fn taken(fleet: &str, bytes: &[u8]) -> (Option<Inherited>, Beliefs) {
    let (new, mut writer) = shared(config(fleet));
    let inherited = take_in(bytes, new, &mut writer, Millis(500));
    writer.publish(Millis(500));
    let depths = |family| {
        let mut overlaps = Overlaps::new();
        new.index.reader().load().overlaps(&blocks(family, 40), &mut overlaps);
        [0, 1].map(|id| overlaps.depth(BackendId(id)))
    };
    let home = new.fleet.affinity().get(KEY, Millis(500));
    (inherited, (depths(1), depths(2), home))
}

const NOTHING: Beliefs = ([0; 2], [0; 2], None);

#[test]
fn a_successor_believes_what_it_is_told() {
    let (inherited, beliefs) = taken(BOTH, &told());
    assert_eq!(inherited, Some(Inherited { paths: 3, homes: 1 }));
    assert_eq!(beliefs, ([20, 12], [0, 30], Some(BackendId(1))));
}

#[test]
fn backends_are_known_by_name_and_address() {
    let (_, beliefs) = taken(OTHERS, &told());
    assert_eq!(beliefs, ([12, 0], [30, 0], Some(BackendId(0))));
}

#[test]
fn of_bytes_that_are_not_whole_or_of_other_blocks_nothing_is_taken_in() {
    let bytes = told();
    let mut broken: Vec<Vec<u8>> =
        (0..bytes.len()).step_by(7).map(|at| bytes[..at].to_vec()).collect();
    broken.push([&bytes[..], b"x"].concat());
    let mut others = bytes.clone();
    others[0] ^= 1;
    broken.push(others);
    for bytes in broken {
        let (inherited, beliefs) = taken(BOTH, &bytes);
        // It may end between two prompts; then it is whole, and shorter.
        assert!(inherited.is_some_and(|it| it.paths < 3) || beliefs == NOTHING, "{}", bytes.len());
    }
    assert_eq!(taken(BOTH, &[]), (None, NOTHING));
}

#[test]
fn no_bytes_make_it_panic_or_allocate_beyond_their_own_length() {
    let bytes = told();
    for seed in 0..300 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut bytes = bytes.clone();
        for _ in 0..rng.usize(1..6) {
            let at = rng.usize(..bytes.len());
            bytes[at] = rng.u8(..);
        }
        let (_, beliefs) = taken(BOTH, &bytes);
        assert!(beliefs.0[0] <= 40, "seed {seed}");
    }
}
