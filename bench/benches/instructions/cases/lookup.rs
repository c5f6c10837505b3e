//! Looking a prompt up among 1,000 backends, choosing one and reserving a place on it.

use index::{
    Ask, BackendId, BackendSet, Fleet, FleetConfig, IndexConfig, IndexReader, IndexWriter, Millis,
    Observation, Picker, PolicyKind, SequenceHash,
};

use super::repeat;

const BACKENDS: u16 = 1_000;

struct Decider {
    // Readers see what it published as long as it lives.
    _writer: IndexWriter,
    reader: IndexReader,
    fleet: Fleet,
    pool: BackendSet,
    picker: Picker,
    prompts: Vec<Vec<SequenceHash>>,
    turn: usize,
}

pub(crate) fn run(rounds: u64) -> u64 {
    let mut decider = Decider::new();
    (0..rounds).for_each(|_| _ = decider.pick());
    case_pick_of_1000(&mut decider, rounds)
}

#[inline(never)]
fn case_pick_of_1000(decider: &mut Decider, rounds: u64) -> u64 {
    repeat(rounds, || decider.pick())
}

impl Decider {
    /// A template everybody holds and a conversation on each backend.
    fn new() -> Decider {
        let prompts: Vec<Vec<SequenceHash>> = (0..BACKENDS).map(|n| chain(u64::from(n))).collect();
        let (mut writer, handle) = index::index(IndexConfig::default());
        for (blocks, id) in prompts.iter().zip(0..) {
            let (backend, at) = (BackendId(id), Millis(u64::from(id)));
            writer.apply(Observation::Stored { backend, blocks: blocks.clone(), at });
        }
        writer.publish(Millis(5_000));
        let mut pool = BackendSet::with_capacity(usize::from(BACKENDS));
        (0..BACKENDS).for_each(|id| _ = pool.insert(BackendId(id)));
        Decider {
            _writer: writer,
            reader: handle.reader(),
            fleet: Fleet::new(FleetConfig::with_capacity(usize::from(BACKENDS))),
            pool,
            picker: Picker::new(PolicyKind::DEFAULT),
            prompts,
            turn: 0,
        }
    }

    fn pick(&mut self) -> u64 {
        self.turn += 1;
        let ask = Ask {
            blocks: &self.prompts[self.turn * 7 % self.prompts.len()],
            block_tokens: 32.0,
            prompt_tokens: 4_096,
            output_tokens: 512,
            conversation: None,
            pool: &self.pool,
            excluded: &BackendSet::default(),
            waited_ms: 0,
            home_wait_ms: 0,
            turn_wait_ms: 0,
            give_way_max: 0,
            streams: false,
            now: Millis(6_000),
            random: self.turn as u64,
        };
        match self.picker.pick(&self.fleet, self.reader.load(), &ask) {
            Ok(placed) => u64::from(placed.reservation.backend().0),
            Err(_) => u64::MAX,
        }
    }
}

/// 64 blocks that all share, then 64 of its own.
fn chain(number: u64) -> Vec<SequenceHash> {
    let hashes = |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..64).map(move |_| SequenceHash(random.u64(..)))
    };
    hashes(1).chain(hashes(number + 2)).collect()
}
