//! The pure model: reuse, eviction, batching, memory, cancelling. No runtime, no clock.

use std::collections::HashMap;

use loadgen::engine::model::{
    Engine, Event, EventKind, Memory, Micros, Params, Prefill, Refusal, Request, RequestId,
};

const SECOND: Micros = 1_000_000;

/// 100 prompt tokens a second, 10 tokens a second, blocks of 10 tokens.
fn params() -> Params {
    Params {
        prefill_tps: 100.0,
        decode_tps: 10.0,
        slots: 4,
        kv_blocks: 100,
        block_tokens: 10,
        ..Params::default()
    }
}

/// A prompt of whole blocks with these ids.
fn request(blocks: &[u64], reply_tokens: u32) -> Request {
    Request {
        prompt_blocks: blocks.to_vec(),
        prompt_tokens: blocks.len() as u32 * 10,
        reply_tokens,
        ..Request::default()
    }
}

fn events_until(engine: &mut Engine, now: Micros) -> Vec<Event> {
    let mut events = Vec::new();
    engine.advance(now, &mut events);
    events
}

fn all_events(engine: &mut Engine) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(at) = engine.next_event_at() {
        engine.advance(at, &mut events);
    }
    events
}

fn of(events: &[Event], id: RequestId) -> Vec<(Micros, EventKind)> {
    events.iter().filter(|event| event.id == id).map(|event| (event.at, event.kind)).collect()
}

fn cached_of(events: &[Event], id: RequestId) -> Option<u32> {
    events.iter().find_map(|event| match event.kind {
        EventKind::PrefillDone { cached, .. } if event.id == id => Some(cached),
        _ => None,
    })
}

fn finished_at(events: &[Event], id: RequestId) -> Option<Micros> {
    let end = |event: &&Event| event.id == id && event.kind == EventKind::Finished;
    events.iter().find(end).map(|event| event.at)
}

#[test]
fn a_lone_request_prefills_then_produces_at_the_decode_rate() {
    let mut engine = Engine::new(params());
    let id = engine.submit(0, request(&[1, 2], 3)).unwrap();
    let events = all_events(&mut engine);
    let prefill = EventKind::PrefillDone { cached: 0, computed: 20, began: 0 };
    assert_eq!(
        of(&events, id),
        [
            (0, EventKind::Started { slot: 0 }),
            (SECOND / 5, prefill),
            (SECOND / 5, EventKind::Token { produced: 1 }),
            (SECOND * 3 / 10, EventKind::Token { produced: 2 }),
            (SECOND * 4 / 10, EventKind::Token { produced: 3 }),
            (SECOND * 4 / 10, EventKind::Finished),
        ]
    );
    assert_eq!(engine.next_event_at(), None);
}

#[test]
fn in_lockstep_requests_that_began_apart_get_their_tokens_together() {
    let tokens_of = |lockstep| {
        let mut engine = Engine::new(Params { lockstep, prefill_tps: 1e9, ..params() });
        let first = engine.submit(0, request(&[1], 4)).unwrap();
        let mut events = events_until(&mut engine, SECOND / 25);
        let second = engine.submit(SECOND / 25, request(&[2], 4)).unwrap();
        events.extend(all_events(&mut engine));
        let times = |id| -> Vec<Micros> {
            let token = |(at, kind)| matches!(kind, EventKind::Token { .. }).then_some(at);
            of(&events, id).into_iter().filter_map(token).skip(1).collect()
        };
        (times(first), times(second))
    };
    let (first, second) = tokens_of(true);
    assert_eq!(first, second, "after the first token of each");
    assert_eq!(second.len(), 3);
    let (first, second) = tokens_of(false);
    assert!(first.iter().zip(&second).all(|(one, other)| other - one == SECOND / 25));
}

#[test]
fn prompts_are_computed_one_after_the_other_in_order_of_arrival() {
    let mut engine = Engine::new(params());
    let first = engine.submit(0, request(&[1, 2], 1)).unwrap();
    let second = engine.submit(0, request(&[3], 1)).unwrap();
    let events = all_events(&mut engine);
    assert_eq!(finished_at(&events, first), Some(SECOND / 5));
    assert_eq!(finished_at(&events, second), Some(SECOND * 3 / 10));
}

#[test]
fn a_repeated_prompt_reuses_whole_blocks_before_its_last_token() {
    let mut engine = Engine::new(params());
    engine.submit(0, request(&[1, 2, 3], 1)).unwrap();
    all_events(&mut engine);
    let again = engine.submit(SECOND, request(&[1, 2, 3], 1)).unwrap();
    let longer = Request { prompt_tokens: 35, ..request(&[1, 2, 3], 1) };
    let longer = engine.submit(SECOND, longer).unwrap();
    let events = all_events(&mut engine);
    assert_eq!(cached_of(&events, again), Some(20), "the last token is always computed");
    assert_eq!(cached_of(&events, longer), Some(30));
}

#[test]
fn with_a_cached_tail_a_repeated_prompt_reuses_all_but_one_token() {
    let mut engine = Engine::new(Params { cache_tail: true, ..params() });
    let prompt = Request { prompt_tokens: 42, ..request(&[1, 2, 3, 4, 5], 1) };
    engine.submit(0, prompt.clone()).unwrap();
    all_events(&mut engine);
    let again = engine.submit(SECOND, prompt).unwrap();
    assert_eq!(cached_of(&all_events(&mut engine), again), Some(41));
}

#[test]
fn the_next_turn_reuses_prompt_and_reply_of_the_one_before() {
    let mut engine = Engine::new(params());
    let first = Request { reply_blocks: vec![3, 4], ..request(&[1, 2], 25) };
    engine.submit(0, first).unwrap();
    all_events(&mut engine);
    let next = engine.submit(10 * SECOND, request(&[1, 2, 3, 4, 5], 1)).unwrap();
    assert_eq!(cached_of(&all_events(&mut engine), next), Some(40));
}

#[test]
fn siblings_that_arrive_together_share_what_the_first_computes() {
    let mut engine = Engine::new(params());
    engine.submit(0, request(&[1, 2, 3], 50)).unwrap();
    let sibling = engine.submit(0, request(&[1, 2, 9], 50)).unwrap();
    assert_eq!(cached_of(&all_events(&mut engine), sibling), Some(20));
}

#[test]
fn the_least_recently_used_block_goes_first_and_leaves_before_roots() {
    let mut engine = Engine::new(Params { kv_blocks: 6, ..params() });
    for (at, blocks) in [(0, [1, 2]), (10, [3, 4])] {
        engine.submit(at * SECOND, request(&blocks, 1)).unwrap();
        all_events(&mut engine);
    }
    // Two cached chains hold four blocks; this one needs three and one for its reply.
    engine.submit(20 * SECOND, request(&[5, 6, 7], 1)).unwrap();
    all_events(&mut engine);
    assert_eq!(engine.would_reuse(&[3, 4], 100), 20, "the younger chain is whole");
    assert_eq!(engine.would_reuse(&[1, 2], 100), 0, "the older one made room");
    assert_eq!(engine.counters().evicted_blocks, 2);
    engine.submit(30 * SECOND, request(&[8], 1)).unwrap();
    all_events(&mut engine);
    assert_eq!(engine.would_reuse(&[3, 4], 100), 10, "its leaf went before its root");
}

#[test]
fn blocks_of_running_requests_are_never_evicted() {
    let mut engine = Engine::new(Params { kv_blocks: 6, ..params() });
    let running = engine.submit(0, request(&[1, 2], 100)).unwrap();
    events_until(&mut engine, SECOND);
    assert_eq!(engine.load().blocks_in_use, 12, "a request alone may outgrow the pool");
    assert!(engine.cancel(SECOND, running));
    let small = engine.submit(SECOND, request(&[1, 2], 20)).unwrap();
    let waiting = engine.submit(SECOND, request(&[7, 8, 9], 1)).unwrap();
    let events = events_until(&mut engine, 2 * SECOND);
    assert!(of(&events, waiting).is_empty(), "no room beside the running one");
    let events = all_events(&mut engine);
    let started = of(&events, waiting)[0].0;
    assert_eq!(Some(started), finished_at(&events, small));
}

#[test]
fn requests_beyond_the_slots_wait_for_one() {
    let mut engine = Engine::new(Params { slots: 2, ..params() });
    let ids: Vec<_> = (0..3).map(|n| engine.submit(0, request(&[n + 1], 11)).unwrap()).collect();
    assert_eq!((engine.load().running, engine.load().waiting), (2, 1));
    let events = all_events(&mut engine);
    let started = of(&events, ids[2])[0];
    assert_eq!(started, (finished_at(&events, ids[0]).unwrap(), EventKind::Started { slot: 0 }));
}

#[test]
fn running_requests_slow_each_other_down_when_the_batch_costs() {
    let params = Params { batch_half: 1.0, ..params() };
    let mut alone = Engine::new(params.clone());
    let id = alone.submit(0, request(&[], 11)).unwrap();
    assert_eq!(finished_at(&all_events(&mut alone), id), Some(SECOND));
    let mut shared = Engine::new(params);
    shared.submit(0, request(&[], 11)).unwrap();
    let id = shared.submit(0, request(&[], 11)).unwrap();
    assert_eq!(finished_at(&all_events(&mut shared), id), Some(2 * SECOND));
}

#[test]
fn a_pausing_prefill_stops_running_requests_and_chunks_let_them_through() {
    let finish = |prefill: Prefill| {
        let mut engine = Engine::new(Params { prefill, ..params() });
        let running = engine.submit(0, request(&[], 11)).unwrap();
        engine.submit(SECOND / 2, request(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 1)).unwrap();
        finished_at(&all_events(&mut engine), running).unwrap()
    };
    assert_eq!(finish(Prefill::Apart), SECOND);
    assert_eq!(finish(Prefill::Pausing), 2 * SECOND, "one second of prefill in between");
    // Ten tokens a chunk: 0.1 s of prefill and 0.1 s of decoding a step, so half the speed until both are done.
    let chunked = finish(Prefill::Chunked { tokens: 10 });
    assert_eq!(chunked, SECOND * 3 / 2);
}

#[test]
fn a_cancelled_request_frees_its_slot_and_keeps_what_it_computed() {
    let mut engine = Engine::new(Params { slots: 1, ..params() });
    let first = engine.submit(0, request(&[1, 2, 3, 4], 5)).unwrap();
    let second = engine.submit(0, request(&[9], 1)).unwrap();
    events_until(&mut engine, SECOND / 4);
    assert!(engine.cancel(SECOND / 4, first));
    assert!(!engine.cancel(SECOND / 4, first), "it is gone");
    assert_eq!(engine.would_reuse(&[1, 2, 3, 4], 100), 20, "25 of 40 tokens were computed");
    let events = all_events(&mut engine);
    assert!(of(&events, first).is_empty());
    assert_eq!(finished_at(&events, second), Some(SECOND * 35 / 100));
}

#[test]
fn a_cancelled_waiting_request_leaves_the_queue() {
    let mut engine = Engine::new(Params { slots: 1, ..params() });
    engine.submit(0, request(&[1], 5)).unwrap();
    let waiting = engine.submit(0, request(&[2], 5)).unwrap();
    assert!(engine.cancel(0, waiting));
    assert_eq!(engine.load().waiting, 0);
    assert_eq!(engine.counters().cancelled, 1);
}

#[test]
fn an_exhausted_pool_fails_every_running_request_and_clears_it() {
    let on_demand = Params { memory: Memory::OnDemand, kv_blocks: 5, ..params() };
    let mut engine = Engine::new(on_demand);
    let one = engine.submit(0, request(&[1, 2], 100)).unwrap();
    let two = engine.submit(0, request(&[3, 4], 100)).unwrap();
    let events = all_events(&mut engine);
    for id in [one, two] {
        assert_eq!(of(&events, id).last().unwrap().1, EventKind::Overflowed);
    }
    assert_eq!(engine.counters().overflowed, 2);
    assert_eq!(engine.load().blocks_in_use + engine.load().blocks_cached, 0);
    // One of them alone has room until it is done.
    let alone = engine.submit(100 * SECOND, request(&[1, 2], 25)).unwrap();
    assert!(finished_at(&all_events(&mut engine), alone).is_some());
}

#[test]
fn a_prompt_larger_than_the_pool_fails_at_once_and_alone_when_nothing_runs() {
    let on_demand = Params { memory: Memory::OnDemand, kv_blocks: 3, ..params() };
    let mut engine = Engine::new(on_demand);
    let large = engine.submit(0, request(&[1, 2, 3, 4], 1)).unwrap();
    let small = engine.submit(0, request(&[5], 1)).unwrap();
    let events = all_events(&mut engine);
    let started = (0, EventKind::Started { slot: 0 });
    assert_eq!(of(&events, large), [started, (0, EventKind::Overflowed)]);
    assert!(finished_at(&events, small).is_some());
}

#[test]
fn limits_refuse_what_is_too_much() {
    let too_long =
        Engine::new(Params { sequence_tokens_max: 20, ..params() }).submit(0, request(&[1, 2], 1));
    assert_eq!(too_long, Err(Refusal::TooLong { tokens: 20, limit: 20 }));

    let mut queue = Engine::new(Params { slots: 1, queue_max: Some(1), ..params() });
    assert!(queue.submit(0, request(&[1], 9)).is_ok(), "runs");
    assert!(queue.submit(0, request(&[2], 9)).is_ok(), "waits");
    assert_eq!(queue.submit(0, request(&[3], 9)), Err(Refusal::Busy));

    let mut flight = Engine::new(Params { in_flight_max: Some(1), ..params() });
    assert!(flight.submit(0, request(&[1], 9)).is_ok());
    assert_eq!(flight.submit(0, request(&[2], 9)), Err(Refusal::Busy));
    assert_eq!(flight.counters().refused, 1);

    let mut pending = Engine::new(Params { pending_tokens_max: Some(15), ..params() });
    assert!(pending.submit(0, request(&[1, 2], 9)).is_ok(), "compared before it is added");
    assert_eq!(pending.submit(0, request(&[3], 9)), Err(Refusal::Busy));
}

#[test]
fn a_reply_is_cut_where_the_context_ends() {
    let mut engine = Engine::new(Params { sequence_tokens_max: 25, ..params() });
    let id = engine.submit(0, request(&[1, 2], 100)).unwrap();
    let events = all_events(&mut engine);
    let tokens = of(&events, id).iter().filter(|e| matches!(e.1, EventKind::Token { .. })).count();
    assert_eq!(tokens, 5);
}

#[test]
fn a_slower_pace_stretches_what_is_left_and_zero_stops_it() {
    let mut engine = Engine::new(params());
    let id = engine.submit(0, request(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 1)).unwrap();
    engine.set_pace(SECOND / 2, 0.5);
    engine.set_pace(SECOND, 0.0);
    events_until(&mut engine, 50 * SECOND);
    assert_eq!(engine.next_event_at(), None);
    engine.set_pace(100 * SECOND, 1.0);
    // Half a second at full and half a second at half speed are done: a quarter is left.
    assert_eq!(finished_at(&all_events(&mut engine), id), Some(100 * SECOND + SECOND / 4));
}

#[test]
fn an_engine_that_does_not_admit_lets_requests_wait() {
    let mut engine = Engine::new(params());
    engine.set_admitting(0, false);
    let id = engine.submit(0, request(&[1], 1)).unwrap();
    assert!(events_until(&mut engine, 10 * SECOND).is_empty());
    assert_eq!(engine.load().waiting, 1);
    engine.set_admitting(10 * SECOND, true);
    assert_eq!(finished_at(&all_events(&mut engine), id), Some(10 * SECOND + SECOND / 10));
}

#[test]
fn without_token_events_a_reply_ends_at_the_same_time() {
    let end = |token_events: bool| {
        let mut engine = Engine::new(Params { token_events, batch_half: 3.0, ..params() });
        let first = engine.submit(0, request(&[1], 40)).unwrap();
        engine.submit(SECOND, request(&[2], 17)).unwrap();
        let events = all_events(&mut engine);
        (finished_at(&events, first), events.len(), engine.counters().generated_tokens)
    };
    let ((with, many, tokens), (without, few, same)) = (end(true), end(false));
    assert_eq!((with, tokens), (without, same));
    assert!(few < 12 && many > 57, "{few} and {many} events");
}

#[test]
fn jitter_spreads_prefills_the_same_way_for_the_same_seed() {
    let ends = |seed: u64| {
        let mut engine = Engine::new(Params { jitter: 0.5, seed, ..params() });
        let ids: Vec<_> = (0..4).map(|n| engine.submit(0, request(&[n], 1)).unwrap()).collect();
        let events = all_events(&mut engine);
        ids.iter().map(|id| finished_at(&events, *id).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(ends(7), ends(7));
    assert_ne!(ends(7), ends(8));
    assert!(ends(7).last().unwrap() < &(SECOND * 6 / 10));
}

/// A cache that is only a list, most recently used last: slow and obvious.
#[derive(Default)]
struct ListCache {
    ids: Vec<u64>,
}

impl ListCache {
    fn reuse(&self, chain: &[u64]) -> u32 {
        chain.iter().take_while(|id| self.ids.contains(id)).count() as u32
    }

    fn touch(&mut self, chain: &[u64], capacity: usize) {
        for id in chain.iter().rev() {
            self.ids.retain(|other| other != id);
            self.ids.push(*id);
        }
        let surplus = self.ids.len().saturating_sub(capacity);
        self.ids.drain(..surplus);
    }
}

#[test]
fn one_at_a_time_reuse_equals_that_of_a_plain_lru_list() {
    let seed = 20_261_129;
    let mut rng = fastrand::Rng::with_seed(seed);
    let capacity = 40;
    let mut engine = Engine::new(Params { kv_blocks: capacity, ..params() });
    let mut list = ListCache::default();
    let mut now = 0;
    for step in 0..2_000 {
        let conversation = rng.u64(1..8);
        let length = rng.u64(1..12);
        let chain: Vec<u64> = (0..length).map(|n| conversation * 1_000 + n).collect();
        // One token more than whole blocks, so that no block is held back for the last token; no reply block is needed for it.
        let prompt_tokens = length as u32 * 10 + 1;
        let one = Request { prompt_tokens, ..request(&chain, 0) };
        let id = engine.submit(now, one).unwrap();
        let cached = cached_of(&all_events(&mut engine), id).unwrap();
        assert_eq!(cached, list.reuse(&chain) * 10, "seed {seed}, step {step}");
        // While it runs, the partly filled block takes one block of the cache's room.
        list.touch(&chain, capacity - 1);
        now = engine.next_event_at().unwrap_or(now) + SECOND;
    }
    assert!(engine.counters().cached_tokens > 50_000, "the test must see hits");
}

#[test]
fn any_sequence_of_calls_keeps_the_books_balanced() {
    for seed in 0..40 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let memory = if seed % 2 == 0 { Memory::Reserve } else { Memory::OnDemand };
        let params = Params {
            memory,
            kv_blocks: 30,
            slots: 3,
            cache_tail: seed % 3 == 0,
            prefill: Prefill::Chunked { tokens: 7 },
            ..params()
        };
        let mut engine = Engine::new(params);
        let mut open: HashMap<RequestId, bool> = HashMap::new();
        let mut now = 0;
        for _ in 0..400 {
            now += rng.u64(0..SECOND);
            match rng.u8(0..10) {
                0..6 => {
                    let start = rng.u64(0..4) * 100;
                    let blocks: Vec<u64> = (start..start + rng.u64(1..9)).collect();
                    let reply_blocks = vec![start + 50, start + 51];
                    let one = Request { reply_blocks, ..request(&blocks, rng.u32(0..30)) };
                    open.insert(engine.submit(now, one).unwrap(), true);
                }
                6 => {
                    if let Some(id) = open.keys().copied().min() {
                        engine.cancel(now, id);
                        open.remove(&id);
                    }
                }
                7 => engine.set_pace(now, rng.f64() * 2.0),
                _ => {}
            }
            for event in events_until(&mut engine, now) {
                if matches!(event.kind, EventKind::Finished | EventKind::Overflowed) {
                    open.remove(&event.id);
                }
            }
            let load = engine.load();
            assert!(load.running <= 3, "seed {seed}");
            let held = load.blocks_in_use + load.blocks_cached;
            assert!(held <= 30 || load.running == 1, "seed {seed}: {held} blocks");
        }
        engine.set_pace(now, 1.0);
        all_events(&mut engine);
        let (load, counters) = (engine.load(), engine.counters());
        assert_eq!((load.running, load.waiting, load.blocks_in_use), (0, 0, 0), "seed {seed}");
        let ended = counters.finished + counters.cancelled + counters.overflowed;
        assert_eq!(counters.submitted, ended, "seed {seed}");
        assert_eq!(counters.prompt_tokens, counters.cached_tokens + counters.computed_tokens);
    }
}

#[test]
fn slots_with_caches_of_their_own_share_nothing_and_are_chosen_by_what_they_hold() {
    let mut engine = Engine::new(Params { slot_caches: true, ..params() });
    let mut cached = |request: Request| {
        let now = engine.next_event_at().unwrap_or(0).max(1);
        engine.submit(now, request).expect("there is room");
        let prefill = |event: &Event| match event.kind {
            EventKind::PrefillDone { cached, .. } => Some(cached),
            _ => None,
        };
        all_events(&mut engine).iter().find_map(prefill).expect("it was computed")
    };
    let named = |slot, blocks: &[u64]| Request { slot: Some(slot), ..request(blocks, 1) };
    assert_eq!(cached(named(1, &[1, 2, 3])), 0);
    assert_eq!(cached(named(2, &[1, 2, 4])), 0, "another slot holds what it needs");
    assert_eq!(cached(named(1, &[1, 2, 3, 5])), 30);
    assert_eq!(cached(named(2, &[1, 2, 4, 6])), 30);
    // Without a name the one that begins most alike; numbers beyond the last begin again.
    assert_eq!(cached(request(&[1, 2, 4, 6, 7], 1)), 40);
    assert_eq!(cached(named(5, &[1, 2, 3, 5, 8])), 40);
    assert_eq!((engine.counters().named, engine.counters().named_busy), (5, 0));
}

#[test]
fn naming_a_busy_slot_waits_for_it_destroys_it_and_holds_up_nobody() {
    let mut engine = Engine::new(Params { slot_caches: true, ..params() });
    let named = |blocks: &[u64], reply| Request { slot: Some(0), ..request(blocks, reply) };
    let first = engine.submit(0, named(&[1], 50)).expect("room");
    let second = engine.submit(0, named(&[2], 1)).expect("room");
    let third = engine.submit(0, request(&[3], 1)).expect("room");
    let events = all_events(&mut engine);
    let started = |id| {
        events
            .iter()
            .position(|event| event.id == id && matches!(event.kind, EventKind::Started { .. }))
    };
    assert!(started(first) < started(third) && started(third) < started(second));
    assert_eq!(engine.counters().named_busy, 1);
}
