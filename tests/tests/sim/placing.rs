//! How a request finds its engine: decide, reserve, send, wait. The part of the proxy between the decision core
//! and the sockets, without the sockets.

use std::pin::pin;
use std::task::{Context, Waker};

use index::limits::BREAKER_FAILURES;
use index::{Ask, Nowhere, Observation, Placed};
use loadgen::engine::model::{Refusal, Request as EngineRequest};
use proxy::limits::{ATTEMPTS_MAX, BUSY_PAUSE_MS};
use proxy::wait::{Ticket, Waits};

use crate::shadow::{Checked, hold};
use crate::traffic::{BLOCK_TOKENS, Request, engine_blocks};
use crate::world::{Live, Plant, Waiting, World};

/// How long a conversation waits for its home.
const HOME_WAIT_MS: u64 = 2_000;

/// How often a long prompt gives way.
pub(crate) const GIVE_WAY_MAX: u32 = 3;

/// How long a long prompt waits for its turn.
pub(crate) const TURN_WAIT_MS: u64 = 3_000;
/// How long anybody waits for room: longer than any simulation.
const QUEUE_WAIT_MS: u64 = 3_600_000;

/// What became of an attempt.
enum Sent {
    Running,
    /// It is to be tried elsewhere.
    Refused(Box<Request>),
}

/// A place in a waiting room, kept while its owner looks for a better one.
#[derive(Debug)]
pub(crate) struct Queued {
    number: u64,
    ticket: Ticket,
    room_since_us: Option<u64>,
}

impl<'f> World<'f> {
    /// Finds the request an engine, or a place to wait: the one it has, if it waited before.
    pub(crate) fn route(&mut self, mut request: Request, mut queued: Option<Queued>) -> Checked {
        loop {
            let number = self.next_number;
            match self.decide(number, &request)? {
                Ok(placed) => {
                    queued = None;
                    match self.send(number, request, placed)? {
                        Sent::Running => return Ok(()),
                        Sent::Refused(back) => request = *back,
                    }
                }
                Err(nowhere) => return self.wait_or_give_up(request, queued, &nowhere),
            }
            if request.attempts >= ATTEMPTS_MAX {
                self.give_up(&request);
                return Ok(());
            }
            self.counts.retried += 1;
        }
    }

    /// Asks a shard. What it answers must be what the shadow would allow; its dry run must say the same.
    fn decide(&mut self, number: u64, request: &Request) -> Checked<Result<Placed<'f>, Nowhere>> {
        let foreign = self.planted(Plant::ForeignPool) && number.is_multiple_of(7);
        let offered = &self.pools[if foreign { 1 - request.model } else { request.model }];
        let excluded = request.excluded();
        let ask = Ask {
            blocks: &request.blocks,
            block_tokens: BLOCK_TOKENS as f32,
            prompt_tokens: request.prompt_tokens(),
            output_tokens: request.output_tokens,
            conversation: Some(request.key),
            pool: offered,
            excluded: &excluded,
            waited_ms: request.waited_ms,
            home_wait_ms: HOME_WAIT_MS,
            turn_wait_ms: TURN_WAIT_MS,
            give_way_max: GIVE_WAY_MAX,
            streams: true,
            now: self.now(),
            random: self.rng.u64(..),
        };
        let shard = &mut self.shards[request.shard];
        let snapshot = shard.reader.load();
        // Those who wait ask often, and a rehearsal costs as much as the question.
        let rehearses = request.waited_ms == 0 || self.rng.u8(0..8) == 0;
        let told = rehearses.then(|| shard.picker.explain(self.fleet, snapshot, &ask).backend);
        let picked = shard.picker.pick(self.fleet, snapshot, &ask);
        let pool = &self.pools[request.model];
        match picked {
            Ok(placed) => {
                let decision = &placed.decision;
                let chosen = decision.backend;
                let same = told.is_none_or(|told| told == chosen);
                hold!("dry run", same, "{told:?} was told, {chosen:?} chosen");
                self.shadow.placed(number, request, pool, decision)?;
                let charged = placed.reservation.uncached_tokens();
                let due = decision.predicted_uncached_tokens;
                hold!("charge", charged == due, "{charged} tokens reserved, {due} decided");
                self.next_number += 1;
                Ok(Ok(placed))
            }
            Err(nowhere) => {
                let its_turn = !matches!(nowhere, Nowhere::NotItsTurn(_));
                let same = told.is_none_or(|told| told.is_none() == its_turn);
                hold!("dry run", same, "{told:?} was told, nobody chosen");
                self.shadow.refused(request, pool, &nowhere, (HOME_WAIT_MS, TURN_WAIT_MS))?;
                Ok(Err(nowhere))
            }
        }
    }

    /// Hands a placed request to its engine.
    fn send(&mut self, number: u64, mut request: Request, placed: Placed<'f>) -> Checked<Sent> {
        let Placed { reservation, decision } = placed;
        let backend = reservation.backend();
        self.counts.routed += 1;
        request.attempts += 1;
        self.trace.note("placed", &[number, u64::from(backend.0), self.now_us]);
        let blocks = request.blocks.clone();
        self.notes.push_back(Observation::Stored { backend, blocks, at: self.now() });
        let machine = &mut self.machines[backend.index()];
        let ask = engine_request(&request, machine.params.block_tokens);
        let answer = machine.engine.as_mut().map(|engine| engine.submit(self.now_us, ask));
        match answer {
            Some(Ok(engine_id)) => {
                machine.running.insert(engine_id.0, number);
                machine.failures = 0;
                let (generation, predicted) = (machine.generation, decision.overlap_blocks);
                let live = Live {
                    placed_at: self.now(),
                    request,
                    reservation,
                    backend,
                    generation,
                    engine_id,
                    predicted,
                    cached: None,
                    gave_way: 0,
                };
                live.reservation.sent();
                self.live.insert(number, live);
                self.make_way(backend)?;
                return Ok(Sent::Running);
            }
            Some(Err(refusal)) => {
                hold!("sizes", refusal == Refusal::Busy, "{number} is too long for {backend}");
                self.counts.busy += 1;
                request.busy.insert(backend);
                request.busy_until_us = self.now_us + BUSY_PAUSE_MS * 1_000;
            }
            None => {
                machine.failures += 1;
                if machine.failures >= BREAKER_FAILURES {
                    self.set_breaker(backend, true);
                }
                request.broken.insert(backend);
            }
        }
        self.shadow.left(number);
        drop(reservation);
        let never_ran = Observation::Reported {
            backend,
            predicted_blocks: request.blocks.len() as u32,
            blocks: request.blocks.clone(),
            cached_blocks: decision.overlap_blocks,
            at: self.now(),
        };
        self.notes.push_back(never_ran);
        Ok(Sent::Refused(Box::new(request)))
    }

    fn wait_or_give_up(
        &mut self,
        request: Request,
        queued: Option<Queued>,
        nowhere: &Nowhere,
    ) -> Checked {
        if matches!(nowhere, Nowhere::NoBackend(_)) && request.busy.is_empty() {
            self.give_up(&request);
            return Ok(());
        }
        let wait_ms = match nowhere {
            Nowhere::HomeFull(_) => HOME_WAIT_MS.saturating_sub(request.waited_ms).max(1),
            Nowhere::NotItsTurn(_) => TURN_WAIT_MS.saturating_sub(request.waited_ms).max(1),
            _ => QUEUE_WAIT_MS,
        };
        let alarm_us = match request.busy.is_empty() {
            true => self.now_us + wait_ms * 1_000,
            false => request.busy_until_us,
        };
        let place = queued.unwrap_or_else(|| self.enter(&request, nowhere));
        let Queued { number, ticket, room_since_us } = place;
        let waiting = Waiting {
            request,
            ticket,
            since_us: self.now_us,
            alarm_us,
            room_since_us,
            for_turn: matches!(nowhere, Nowhere::NotItsTurn(_)),
        };
        waiting.ticket.waits_for_turn(waiting.for_turn);
        self.counts.turns += u64::from(waiting.for_turn);
        self.waiting.insert(number, waiting);
        Ok(())
    }

    fn enter(&mut self, request: &Request, nowhere: &Nowhere) -> Queued {
        let cached = u64::from(nowhere.decision().deepest_blocks) * u64::from(BLOCK_TOKENS);
        let uncached = request.prompt_tokens().saturating_sub(cached);
        let tokens = request.prompt_tokens();
        let waits = Waits { uncached_tokens: uncached, tokens, tenant: None };
        let ticket = self.shards[request.shard].room.enter(waits, self.now());
        let number = self.next_number;
        self.next_number += 1;
        self.counts.waited += 1;
        self.pulse_us = self.pulse_us.max(self.now_us);
        Queued { number, ticket, room_since_us: None }
    }

    /// The client is told no, and will say the same again later.
    fn give_up(&mut self, request: &Request) {
        self.counts.failed += 1;
        self.trace.note("refused", &[self.now_us]);
        self.end_turn(request, false);
    }

    /// Those whose time is up look again.
    pub(crate) fn ring_alarms(&mut self) -> Checked {
        let due = |waiting: &Waiting| waiting.alarm_us <= self.now_us;
        let due: Vec<u64> =
            self.waiting.iter().filter(|(_, waiting)| due(waiting)).map(|(at, _)| *at).collect();
        due.into_iter().try_for_each(|number| self.look_again(number))
    }

    /// Those who were called look again.
    pub(crate) fn answer_calls(&mut self) -> Checked {
        let called = |waiting: &Waiting| {
            let mut nobody = Context::from_waker(Waker::noop());
            pin!(waiting.ticket.called()).poll(&mut nobody).is_ready()
        };
        let called: Vec<u64> =
            self.waiting.iter().filter(|(_, waiting)| called(waiting)).map(|(at, _)| *at).collect();
        called.into_iter().try_for_each(|number| self.look_again(number))
    }

    fn look_again(&mut self, number: u64) -> Checked {
        if self.planted(Plant::LostWaiter) && number.is_multiple_of(3) {
            if let Some(waiting) = self.waiting.get_mut(&number) {
                waiting.alarm_us = u64::MAX;
            }
            return Ok(());
        }
        let Some(waiting) = self.waiting.remove(&number) else { return Ok(()) };
        let Waiting { mut request, ticket, since_us, room_since_us, .. } = waiting;
        request.waited_ms += (self.now_us - since_us).div_ceil(1_000);
        if self.now_us >= request.busy_until_us {
            request.busy.clear();
        }
        self.route(request, Some(Queued { number, ticket, room_since_us }))
    }
}

pub(crate) fn engine_request(request: &Request, block_tokens: u32) -> EngineRequest {
    EngineRequest {
        prompt_blocks: engine_blocks(&request.blocks, block_tokens),
        prompt_tokens: request.prompt_tokens() as u32,
        reply_blocks: engine_blocks(&request.reply, block_tokens),
        reply_tokens: request.reply.len() as u32 * BLOCK_TOKENS,
        slot: None,
    }
}
