//! A long prompt gives way to a conversation that comes home: who asks, who is asked, and what counts meanwhile.
#![cfg(not(loom))]

use index::{
    Ask, BackendId, BackendSet, Fleet, FleetConfig, IndexConfig, IndexReader, IndexWriter, Millis,
    Observation, Picker, Placed, PolicyKind, SequenceHash, index,
};

const BLOCK_TOKENS: u64 = 8;
/// What is prefilled in four seconds at 8 tokens a millisecond.
const LONG_BLOCKS: u64 = 4_000;
const LONG_MS: u64 = 4_000;
const HOME: BackendId = BackendId(0);
const OTHER: BackendId = BackendId(1);

/// A long prompt that home is believed to have cached, and has forgotten.
const FORGOTTEN: u64 = 7;

struct Scene {
    fleet: &'static Fleet,
    picker: Picker,
    _writer: IndexWriter,
    reader: IndexReader,
    give_way_max: u32,
}

fn blocks(first: u64, count: u64) -> Vec<SequenceHash> {
    let mut fingerprinter = index::Fingerprinter::new(index::FingerprintKey::new(5), 8);
    (first..first + count).for_each(|name| fingerprinter.push(&name.to_le_bytes()));
    fingerprinter.finish().blocks
}

fn long(number: u64) -> Vec<SequenceHash> {
    blocks(number << 32, LONG_BLOCKS)
}

/// What a conversation says that has most of it cached at its home.
fn conversation() -> Vec<SequenceHash> {
    blocks(0, 500)
}

impl Scene {
    /// Two backends whose pace is known, one of them a conversation's home.
    fn new(policy: PolicyKind, give_way_max: u32) -> Scene {
        let (mut writer, handle) = index(IndexConfig::default());
        for blocks in [blocks(0, 480), long(FORGOTTEN)] {
            writer.apply(Observation::Stored { backend: HOME, blocks, at: Millis(0) });
        }
        writer.publish(Millis(0));
        let fleet = Box::leak(Box::new(Fleet::new(FleetConfig::with_capacity(2))));
        let (picker, reader) = (Picker::new(policy), handle.reader());
        let mut scene = Scene { fleet, picker, _writer: writer, reader, give_way_max };
        for id in [HOME, OTHER] {
            scene.fleet.backend(id).set_prefills_in_turn(true);
            scene.fleet.backend(id).set_stops_at_once(true);
            let first = scene.pick(&[id], &long(1 + u64::from(id.0)), 0);
            first.reservation.prefill_done_at(Millis(LONG_MS));
        }
        scene
    }

    fn pick(&mut self, to: &[BackendId], blocks: &[SequenceHash], now: u64) -> Placed<'static> {
        let pool: BackendSet = to.iter().copied().collect();
        let ask = Ask {
            blocks,
            block_tokens: BLOCK_TOKENS as f32,
            prompt_tokens: blocks.len() as u64 * BLOCK_TOKENS,
            output_tokens: 10,
            conversation: None,
            pool: &pool,
            excluded: &BackendSet::default(),
            waited_ms: 0,
            home_wait_ms: 0,
            turn_wait_ms: 0,
            give_way_max: self.give_way_max,
            streams: true,
            now: Millis(now),
            random: 1,
        };
        self.picker.pick(self.fleet, self.reader.load(), &ask).expect("there is room")
    }

    fn pending(&self, id: BackendId) -> u64 {
        self.fleet.backend(id).load.uncached_tokens()
    }
}

#[test]
fn who_comes_home_asks_the_long_one_there_once_it_is_sent() {
    let mut scene = Scene::new(PolicyKind::default(), 2);
    let long = scene.pick(&[HOME], &long(3), 10_000).reservation;
    assert!(long.may_give_way() && !long.is_asked_to_give_way());
    let home = scene.pick(&[HOME, OTHER], &conversation(), 10_100);
    assert_eq!((home.decision.backend, home.decision.asks_way), (Some(HOME), true));
    assert!(!long.is_asked_to_give_way(), "who asks is not with the engine yet");
    home.reservation.sent();
    assert!(long.is_asked_to_give_way());
}

#[test]
fn who_gave_way_has_the_rest_to_go_and_gives_back_all_of_it() {
    let mut scene = Scene::new(PolicyKind::default(), 2);
    let long = scene.pick(&[HOME], &long(3), 10_000).reservation;
    let before = scene.pending(HOME);
    assert_eq!(before, LONG_BLOCKS * BLOCK_TOKENS);
    scene.pick(&[HOME, OTHER], &conversation(), 11_000).reservation.sent();
    long.gave_way(Millis(11_000));
    assert!(!long.is_asked_to_give_way());
    let left = scene.pending(HOME);
    assert!((before * 7 / 10..before * 8 / 10).contains(&left), "a quarter is done: {left}");
    long.prefill_done_at(Millis(14_000));
    assert_eq!(scene.pending(HOME), 0);
    scene.fleet.check_invariants().unwrap();
}

#[test]
fn it_gives_way_as_often_as_it_may_and_not_once_its_reply_has_begun() {
    let mut scene = Scene::new(PolicyKind::default(), 2);
    let first = scene.pick(&[HOME], &long(3), 10_000).reservation;
    for now in [10_100, 10_200] {
        scene.pick(&[HOME, OTHER], &conversation(), now).reservation.sent();
        assert!(first.is_asked_to_give_way());
        first.gave_way(Millis(now));
    }
    assert!(!scene.pick(&[HOME], &conversation(), 10_300).decision.asks_way);
    drop(first);
    let second = scene.pick(&[HOME], &long(4), 20_000).reservation;
    scene.pick(&[HOME, OTHER], &conversation(), 20_100).reservation.sent();
    second.stays();
    assert!(!second.is_asked_to_give_way() && !second.may_give_way());
    assert!(!scene.pick(&[HOME], &conversation(), 20_200).decision.asks_way);
}

#[test]
fn a_stranger_asks_nobody() {
    let mut scene = Scene::new(PolicyKind::default(), 2);
    let long = scene.pick(&[HOME], &long(3), 10_000).reservation;
    let stranger = scene.pick(&[HOME], &blocks(9 << 32, 20), 10_100);
    assert!(!stranger.decision.asks_way);
    stranger.reservation.sent();
    assert!(!long.is_asked_to_give_way());
}

#[test]
fn nobody_is_asked_under_a_policy_that_knows_no_turns_or_where_it_is_switched_off() {
    for (policy, give_way_max) in [(PolicyKind::LeastRequests, 2), (PolicyKind::default(), 0)] {
        let mut scene = Scene::new(policy, give_way_max);
        let long = scene.pick(&[HOME], &long(3), 10_000).reservation;
        assert!(!long.may_give_way());
        assert!(!scene.pick(&[HOME], &conversation(), 10_100).decision.asks_way);
    }
}

#[test]
fn one_that_is_prefilled_for_longer_than_it_should_take_gives_way_like_a_long_one() {
    let mut scene = Scene::new(PolicyKind::default(), 2);
    let late = scene.pick(&[HOME], &long(FORGOTTEN), 10_000).reservation;
    assert!(!late.may_give_way() && late.may_be_found_long());
    late.look_after(Millis(10_400));
    assert_eq!(scene.pending(HOME), 1, "it may still be as short as was believed");
    late.look_after(Millis(11_000));
    assert!(late.may_give_way());
    let (prompt, done) = (LONG_BLOCKS * BLOCK_TOKENS, 1_000 * BLOCK_TOKENS);
    assert_eq!(scene.pending(HOME), done + (prompt - done) / 2);
    scene.pick(&[HOME], &conversation(), 11_000).reservation.sent();
    assert!(late.is_asked_to_give_way());
    late.gave_way(Millis(11_000));
    late.prefill_done_at(Millis(14_000));
    assert_eq!(scene.pending(HOME), 0);
    scene.fleet.check_invariants().unwrap();
}

#[test]
fn one_that_waits_behind_another_is_not_late() {
    let mut scene = Scene::new(PolicyKind::default(), 2);
    let _first = scene.pick(&[HOME], &conversation(), 10_000).reservation;
    let behind = scene.pick(&[HOME], &long(FORGOTTEN), 10_000).reservation;
    let pending = scene.pending(HOME);
    behind.look_after(Millis(60_000));
    assert!(!behind.may_give_way());
    assert_eq!(scene.pending(HOME), pending);
}

#[test]
fn what_was_wrongly_believed_cached_teaches_no_pace_once_it_gave_way() {
    let takes_ms = |late: bool| {
        let mut scene = Scene::new(PolicyKind::default(), 2);
        if late {
            let late = scene.pick(&[HOME], &long(FORGOTTEN), 10_000).reservation;
            late.look_after(Millis(11_000));
            late.gave_way(Millis(11_000));
            late.prefill_done_at(Millis(31_000));
        }
        let _next = scene.pick(&[HOME], &long(3), 40_000).reservation;
        scene.fleet.backend(HOME).load.prefill_ms()
    };
    assert_eq!(takes_ms(true), takes_ms(false));
}

#[test]
fn nobody_is_found_long_who_may_not_give_way_or_whose_reply_has_begun() {
    for give_way_max in [0, 2] {
        let mut scene = Scene::new(PolicyKind::default(), give_way_max);
        let late = scene.pick(&[HOME], &long(FORGOTTEN), 10_000).reservation;
        late.stays();
        late.look_after(Millis(11_000));
        assert!(!late.may_give_way() && !late.may_be_found_long());
        assert_eq!(scene.pending(HOME), 1);
    }
}
