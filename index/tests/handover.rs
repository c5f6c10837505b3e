//! An index that takes over from another: what it is told, it believes; of too much it is told what was used last.
#![cfg(not(loom))]

use index::{
    BackendId, FingerprintKey, Fingerprinter, IndexConfig, IndexHandle, IndexWriter, Millis,
    Observation, Overlaps, SequenceHash, Telling, index,
};

const ALL: Telling = Telling { paths_max: usize::MAX, blocks_max: u64::MAX };

/// A prompt whose first blocks are those of others of its family.
fn prompt(family: u64, shared: usize, name: u64, own: usize) -> Vec<SequenceHash> {
    let mut blocks = Fingerprinter::new(FingerprintKey::new(7), 8);
    (0..shared as u64).for_each(|block| blocks.push(&(family << 32 | block).to_le_bytes()));
    (0..own as u64).for_each(|block| blocks.push(&(name << 40 | block).to_le_bytes()));
    blocks.finish().blocks
}

fn store(writer: &mut IndexWriter, backend: u16, blocks: &[SequenceHash], at: u64) {
    let (backend, blocks) = (BackendId(backend), blocks.to_vec());
    writer.apply(Observation::Stored { backend, blocks, at: Millis(at) });
}

fn successor(
    writer: &IndexWriter,
    most: Telling,
    config: IndexConfig,
) -> (IndexWriter, IndexHandle) {
    let (mut successor, handle) = index(config);
    writer.tell(most, |backend, blocks, at| successor.inherit(backend, blocks, at));
    successor.publish(Millis(0));
    successor.check_invariants().unwrap();
    (successor, handle)
}

fn depths(handle: &IndexHandle, blocks: &[SequenceHash]) -> [u32; 4] {
    let mut overlaps = Overlaps::new();
    handle.reader().load().overlaps(blocks, &mut overlaps);
    [0, 1, 2, 3].map(|id| overlaps.depth(BackendId(id)))
}

#[test]
fn a_successor_believes_what_it_was_told_of_every_prompt() {
    for seed in 0..20 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut writer, handle) = index(IndexConfig::default());
        let mut prompts = Vec::new();
        for turn in 0..200 {
            let (family, shared) = (rng.u64(0..3), rng.usize(0..40));
            let prompt = prompt(family, shared, rng.u64(0..30), rng.usize(1..60));
            store(&mut writer, rng.u16(0..4), &prompt, turn * 100);
            prompts.push(prompt);
        }
        writer.apply(Observation::Cleared { backend: BackendId(3) });
        writer.publish(Millis(20_000));
        let (_, successors) = successor(&writer, ALL, IndexConfig::default());
        for prompt in &prompts {
            assert_eq!(depths(&successors, prompt), depths(&handle, prompt), "seed {seed}");
            assert_eq!(depths(&successors, prompt)[3], 0, "what was cleared is not told");
        }
    }
}

#[test]
fn of_too_much_what_was_used_last_is_told_and_in_its_order() {
    let (mut writer, _) = index(IndexConfig::default());
    let prompts: Vec<_> = (0..10).map(|name| prompt(name, 0, name, 10)).collect();
    for (at, prompt) in prompts.iter().enumerate() {
        store(&mut writer, at as u16 % 2, prompt, at as u64 * 1000);
    }
    // Used again: now the last of all.
    store(&mut writer, 0, &prompts[0], 20_000);
    for most in [Telling { paths_max: 3, ..ALL }, Telling { blocks_max: 39, ..ALL }] {
        let (_, successors) = successor(&writer, most, IndexConfig::default());
        let known = |at: &usize| depths(&successors, &prompts[*at]) != [0; 4];
        assert_eq!((0..10).filter(known).collect::<Vec<_>>(), [0, 8, 9]);
    }
    // A successor with less room forgets what was used first.
    let small = IndexConfig { backend_blocks_max: 20, ..IndexConfig::default() };
    let (_, successors) = successor(&writer, ALL, small);
    let known = |at: &usize| depths(&successors, &prompts[*at]) != [0; 4];
    assert_eq!((0..10).filter(known).collect::<Vec<_>>(), [0, 7, 8, 9]);
}

#[test]
fn what_was_inherited_is_confirmed_and_corrected_as_if_it_had_been_stored_here() {
    let (mut writer, _) = index(IndexConfig::default());
    let whole = prompt(1, 20, 1, 30);
    store(&mut writer, 1, &whole, 0);
    let (mut successor, handle) = successor(&writer, ALL, IndexConfig::default());
    let longer = [&whole[..], &prompt(9, 0, 9, 5)[..]].concat();
    store(&mut successor, 1, &longer, 5_000);
    successor.publish(Millis(5_000));
    assert_eq!(depths(&handle, &longer), [0, 55, 0, 0]);
    successor.apply(Observation::Reported {
        backend: BackendId(1),
        blocks: whole.clone(),
        predicted_blocks: 50,
        cached_blocks: 20,
        at: Millis(6_000),
    });
    successor.publish(Millis(6_000));
    successor.check_invariants().unwrap();
    assert_eq!(depths(&handle, &whole), [0, 20, 0, 0]);
}
