//! Where decisions are made: a fleet with conversations of others on it, whose index also holds what the bodies measured
//! here said in an earlier turn.

use index::{
    Ask, BackendId, BackendSet, Charge, Fleet, FleetConfig, IndexConfig, IndexReader, IndexWriter,
    Millis, Observation, Overlaps, Picker, PolicyKind, Reservation, SequenceHash,
};

/// A fleet, its index and a picker.
pub(crate) struct Stage {
    fleet: Fleet,
    writer: IndexWriter,
    reader: IndexReader,
    pool: BackendSet,
    excluded: BackendSet,
    picker: Picker,
    overlaps: Overlaps,
    turn: u64,
}

impl Stage {
    pub(crate) fn new(backends: u16) -> Self {
        let (mut writer, handle) = index::index(IndexConfig::default());
        for number in 0..4_000 {
            let backend = BackendId(number % backends);
            let (blocks, at) = (chain(64, 700, u64::from(number) + 2), Millis(u64::from(number)));
            writer.apply(Observation::Stored { backend, blocks, at });
        }
        writer.publish(Millis(5_000));
        Self {
            fleet: Fleet::new(FleetConfig::with_capacity(usize::from(backends))),
            writer,
            reader: handle.reader(),
            pool: (0..backends).map(BackendId).collect(),
            excluded: BackendSet::default(),
            picker: Picker::new(PolicyKind::DEFAULT),
            overlaps: Overlaps::new(),
            turn: 0,
        }
    }

    /// An eighth of the fleet holds the first tenth of these prompts, one backend nine tenths of each.
    pub(crate) fn learn(&mut self, prompts: &[Vec<SequenceHash>]) {
        let backends = self.pool.len();
        for (number, blocks) in prompts.iter().enumerate() {
            let mut store = |backend: usize, blocks: &[SequenceHash]| {
                let backend = BackendId((backend % backends) as u16);
                let blocks = blocks.to_vec();
                self.writer.apply(Observation::Stored { backend, blocks, at: Millis(5_500) });
            };
            (0..backends / 8).for_each(|at| store(at * 8, &blocks[..blocks.len() / 10]));
            store(number * 37, &blocks[..blocks.len() * 9 / 10]);
        }
        self.writer.publish(Millis(5_600));
    }

    /// Who holds what of a prompt.
    pub(crate) fn look_up(&mut self, blocks: &[SequenceHash]) -> u64 {
        self.reader.load().overlaps(blocks, &mut self.overlaps);
        u64::from(self.overlaps.deepest())
    }

    /// A whole decision: look up, pick, reserve.
    pub(crate) fn pick(&mut self, blocks: &[SequenceHash]) -> Option<Reservation<'_>> {
        self.turn += 1;
        let ask = Ask {
            blocks,
            block_tokens: 32.0,
            prompt_tokens: blocks.len() as u64 * 32,
            output_tokens: 512,
            conversation: None,
            pool: &self.pool,
            excluded: &self.excluded,
            waited_ms: 0,
            home_wait_ms: 0,
            turn_wait_ms: 0,
            give_way_max: 0,
            streams: false,
            now: Millis(6_000),
            random: self.turn,
        };
        let placed = self.picker.pick(&self.fleet, self.reader.load(), &ask);
        placed.ok().map(|placed| placed.reservation)
    }

    /// A reservation alone.
    pub(crate) fn reserve(&mut self) -> Option<Reservation<'_>> {
        self.turn += 1;
        let backend = BackendId((self.turn % self.pool.len() as u64) as u16);
        self.fleet.reserve(backend, Charge { tokens: 20_000, uncached_tokens: 5_000 }).ok()
    }
}

/// A chain of made-up hashes: `shared` blocks that all have, then own ones.
fn chain(shared: usize, own: usize, seed: u64) -> Vec<SequenceHash> {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut blocks: Vec<SequenceHash> = (0..shared).map(|_| SequenceHash(rng.u64(..))).collect();
    let mut rng = fastrand::Rng::with_seed(seed);
    blocks.extend((0..own).map(|_| SequenceHash(rng.u64(..))));
    blocks
}
