//! The policies that need no evidence and are no mere counting: who a key belongs to, and who was seen to be fast.
#![cfg(not(loom))]
#![expect(clippy::result_large_err, reason = "a decision is inline by design")]

use index::{
    Ask, BackendId, BackendSet, Charge, ConversationKey, FingerprintKey, Fleet, FleetConfig,
    IndexConfig, IndexReader, Millis, Nowhere, Picker, Placed, PolicyKind, SequenceHash, index,
};

/// A fleet that holds nothing, and who may be asked.
struct Bench {
    fleet: Fleet,
    reader: IndexReader,
    pool: BackendSet,
    excluded: BackendSet,
    rng: fastrand::Rng,
}

impl Bench {
    fn new(backends: u16) -> Self {
        let (_, handle) = index(IndexConfig::default());
        Self {
            fleet: Fleet::new(FleetConfig::with_capacity(usize::from(backends))),
            reader: handle.reader(),
            pool: (0..backends).map(BackendId).collect(),
            excluded: BackendSet::default(),
            rng: fastrand::Rng::with_seed(7),
        }
    }

    fn pick(
        &mut self,
        picker: &mut Picker,
        conversation: Option<ConversationKey>,
        blocks: &[SequenceHash],
        now: Millis,
    ) -> Result<Placed<'_>, Nowhere> {
        let ask = Ask {
            blocks,
            block_tokens: 8.0,
            prompt_tokens: 100,
            output_tokens: 10,
            conversation,
            pool: &self.pool,
            excluded: &self.excluded,
            waited_ms: 0,
            home_wait_ms: 0,
            turn_wait_ms: 0,
            give_way_max: 0,
            streams: false,
            now,
            random: self.rng.u64(..),
        };
        picker.pick(&self.fleet, self.reader.load(), &ask)
    }

    /// Where a conversation goes when nothing else is going on.
    fn home(&mut self, picker: &mut Picker, name: u64) -> BackendId {
        let placed = self.pick(picker, Some(key(name)), &[], Millis(0));
        placed.unwrap().reservation.backend()
    }

    /// Keeps a request running on a backend for the rest of the test.
    fn occupy(&self, id: BackendId) {
        let charge = Charge { tokens: 9, uncached_tokens: 0 };
        std::mem::forget(self.fleet.reserve(id, charge).unwrap());
    }

    /// Serves `count` requests one after another, each answered by its backend after `takes` milliseconds. Returns how
    /// many each backend got.
    fn serve(&mut self, count: u64, start: u64, takes: impl Fn(u16) -> u64) -> Vec<u32> {
        let mut picker = Picker::new(PolicyKind::Ewma);
        let mut got = vec![0; self.fleet.len()];
        for request in 0..count {
            let at = Millis(start + request * 100);
            let placed = self.pick(&mut picker, None, &[], at).unwrap();
            let id = placed.reservation.backend();
            placed.reservation.prefill_done_at(Millis(at.0 + takes(id.0)));
            got[id.index()] += 1;
        }
        got
    }
}

fn key(name: u64) -> ConversationKey {
    index::conversation_key(FingerprintKey::new(5), b"tests", &name.to_le_bytes())
}

fn chain(blocks: std::ops::Range<u64>) -> Vec<SequenceHash> {
    let mut fingerprinter = index::Fingerprinter::new(FingerprintKey::new(5), 8);
    blocks.for_each(|block| fingerprinter.push(&block.to_le_bytes()));
    fingerprinter.finish().blocks
}

fn hash() -> Picker {
    Picker::new(PolicyKind::ConsistentHash)
}

#[test]
fn a_conversation_belongs_to_one_backend_whoever_asks_and_whatever_it_says() {
    let mut bench = Bench::new(8);
    let prompt = chain(0..40);
    for name in 0..50 {
        let home = bench.home(&mut hash(), name);
        let again = bench.pick(&mut hash(), Some(key(name)), &prompt, Millis(9)).unwrap();
        assert_eq!(again.reservation.backend(), home);
    }
}

#[test]
fn a_prompt_of_no_known_conversation_goes_by_its_head() {
    let mut bench = Bench::new(16);
    let mut at = |prompt: &[SequenceHash]| {
        bench.pick(&mut hash(), None, prompt, Millis(0)).unwrap().reservation.backend()
    };
    let heads = |own: u64| chain(0..20).into_iter().chain(chain(own..own + 9)).collect::<Vec<_>>();
    let home = at(&heads(100));
    assert!((200..230).all(|own| at(&heads(own)) == home), "the same head");
    assert!((1..30).any(|first| at(&chain(first..first + 20)) != home), "other heads");
}

#[test]
fn who_leaves_moves_its_own_conversations_only_in_small_pools_and_in_large_ones() {
    for backends in [12, 300] {
        let mut bench = Bench::new(backends);
        let mut picker = hash();
        let homes: Vec<BackendId> = (0..600).map(|name| bench.home(&mut picker, name)).collect();
        let gone = homes[0];
        bench.pool.remove(gone);
        for (name, home) in (0..).zip(&homes) {
            let now = bench.home(&mut picker, name);
            assert_eq!(now == *home, *home != gone, "conversation {name} of {backends} backends");
        }
        bench.pool.insert(gone);
        assert!((0..).zip(&homes).all(|(name, home)| bench.home(&mut picker, name) == *home));
    }
}

#[test]
fn a_large_pool_is_looked_at_through_the_keys_own_line() {
    let mut bench = Bench::new(300);
    for name in 0..200 {
        let whole = bench.home(&mut hash().looking_at_all_of(1000), name);
        assert_eq!(bench.home(&mut hash(), name), whole);
    }
}

#[test]
fn who_has_a_quarter_more_than_the_mean_is_passed_over_for_the_same_next_in_line() {
    for backends in [10, 200] {
        let mut bench = Bench::new(backends);
        let home = bench.home(&mut hash(), 1);
        bench.pool.clone().iter().for_each(|id| (0..4).for_each(|_| bench.occupy(id)));
        assert_eq!(bench.home(&mut hash(), 1), home, "four of four on average");
        bench.occupy(home);
        bench.occupy(home);
        let next = bench.home(&mut hash(), 1);
        assert_ne!(next, home, "a seventh would be more than five of four");
        assert!((0..20).all(|_| bench.home(&mut hash(), 1) == next));
    }
}

#[test]
fn an_engine_four_times_as_slow_gets_what_it_can_bear_once_that_is_known() {
    let mut bench = Bench::new(4);
    let takes = |id| if id == 2 { 400 } else { 100 };
    let first = bench.serve(80, 0, takes);
    assert!(first.iter().all(|got| *got >= 10), "equal before twenty samples each: {first:?}");
    let later = bench.serve(300, 8_000, takes);
    assert!(later[2] < 10 && later[0] > 60, "{later:?}");
}

#[test]
fn requests_in_flight_count_as_much_as_latency() {
    let mut bench = Bench::new(2);
    bench.serve(60, 0, |id| if id == 0 { 100 } else { 250 });
    (0..2).for_each(|_| bench.occupy(BackendId(0)));
    let mut picker = Picker::new(PolicyKind::Ewma);
    let two = bench.pick(&mut picker, None, &[], Millis(6_000)).unwrap();
    assert_eq!(two.reservation.backend(), BackendId(1), "300 of the fast one against 250");
}

#[test]
fn an_engine_slow_for_a_while_is_tried_again_and_one_restarted_counts_as_new() {
    let mut bench = Bench::new(3);
    let slow = |id| if id == 1 { 900 } else { 100 };
    bench.serve(200, 0, slow);
    assert!(bench.serve(50, 20_000, slow)[1] <= 1, "it is left alone");
    assert!((1..9).contains(&bench.serve(2_000, 25_000, slow)[1]), "but for a trial a minute");
    let fast = bench.serve(2_000, 225_000, |_| 100);
    assert!(fast[1] > 300, "{fast:?}: one trial shows that it is as fast as the others now");
    bench.serve(200, 425_000, slow);
    bench.fleet.backend(BackendId(1)).restarted();
    let new = bench.serve(90, 445_000, |_| 100);
    assert!(new[1] >= 20, "{new:?}: it shows itself at once");
}
