//! Finding a request its backend: decide, reserve, and wait, bounded, while everything is full or it is not its turn.
//!
//! The decision itself is the index crate's; this module brings it its inputs and does the waiting. A
//! slot is always held before anything is sent, and given back exactly once, by dropping [`Slot`].

mod hope;

use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};

use index::{Ask, BackendId, BackendSet, Decision, Nowhere, Reservation};

use crate::alarm::{Alarm, Raced, race};
use crate::answer::Situation;
use crate::clock::{self, Micros};
use crate::limits::{PREFILL_TOKENS_PER_S_MIN, PROMPT_TOO_LARGE_TIMES};
use crate::orphans::{Handed, Orphan};
use crate::pins::SlotUse;
use crate::plan::{self, Plan};
use crate::published::Phase;
use crate::shard::Shard;
use crate::wait::Waits;
use hope::Hope;

/// A held slot, given back when dropped; whoever waits on this shard is then called.
#[derive(Debug)]
pub struct Slot {
    reservation: Option<Reservation<'static>>,
    /// Where on a llama.cpp server the request runs, if that is kept track of.
    using: Option<SlotUse<'static>>,
    shard: Rc<Shard>,
}

impl Slot {
    /// The first token came: the prefill work is done and no longer counts.
    pub fn prefill_done(&self) {
        if let Some(reservation) = &self.reservation {
            reservation.prefill_done_at(clock::recent().millis());
        }
    }

    /// The whole request was sent: who is being prefilled there may have to give way.
    pub fn note_sent(&self) {
        if let Some(reservation) = &self.reservation {
            reservation.sent();
        }
    }

    /// Whether it may have to give way itself before its reply begins.
    pub fn may_give_way(&self) -> bool {
        self.reservation.as_ref().is_some_and(Reservation::may_give_way)
    }

    /// Whether it may be found to be one that may, once it is late.
    pub fn may_be_found_long(&self) -> bool {
        self.reservation.as_ref().is_some_and(Reservation::may_be_found_long)
    }

    /// Its first token has not come yet, which may tell that it is a long one.
    pub fn look_after(&self) {
        if let Some(reservation) = &self.reservation {
            reservation.look_after(clock::now().millis());
        }
    }

    /// Whether it has to.
    pub fn is_asked_to_give_way(&self) -> bool {
        self.reservation.as_ref().is_some_and(Reservation::is_asked_to_give_way)
    }

    /// It was ended at its backend and is sent there again.
    pub fn gave_way(&self) {
        if let Some(reservation) = &self.reservation {
            reservation.gave_way(clock::now().millis());
        }
    }

    /// Its reply has begun: it gives way no more.
    pub fn stays(&self) {
        if let Some(reservation) = &self.reservation {
            reservation.stays();
        }
    }

    /// Of so many prompt tokens that were predicted to be cached, so many were.
    pub fn note_cached(&self, predicted: u64, cached: u64) {
        if let Some(reservation) = &self.reservation {
            reservation.note_cached(predicted, cached);
        }
    }

    /// The request was left, with a reply of so many tokens to come: where the engine may work on for nobody, the place
    /// stays taken.
    pub fn orphan(mut self, output_tokens: u64) {
        let Some(handed) = self.orphanage() else { return };
        let Some(place) = self.reservation.take() else { return };
        let load = &self.shard.shared.fleet.backend(place.backend()).load;
        let slowest = || place.uncached_tokens().saturating_mul(1_000) / PREFILL_TOKENS_PER_S_MIN;
        let prefill_ms = load.prefill_ms().unwrap_or_else(slowest);
        handed.push(Orphan::new(place, prefill_ms, output_tokens, clock::now().millis()));
    }

    /// Where its backend may work on for nobody, who keeps the places.
    fn orphanage(&self) -> Option<&'static Handed> {
        let upstream = self.shard.shared.upstream(self.reservation.as_ref()?.backend())?;
        upstream.kind().works_for_nobody().then_some(&upstream.orphans)
    }

    /// Keeps track of where the request runs from here on.
    pub fn runs_in(&mut self, using: Option<SlotUse<'static>>) {
        self.using = using;
    }

    /// The slot its request names.
    pub fn named(&self) -> Option<u32> {
        self.using.as_ref()?.slot()
    }

    /// The backend began to answer.
    pub fn note_begun(&self) {
        if let Some(using) = &self.using {
            using.note_begun();
        }
    }

    /// The reply came whole: the backend has nothing more to do for it.
    pub fn note_whole(&self) {
        if let Some(using) = &self.using {
            using.note_whole();
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // First: whoever gets the place is to find the slot free.
        drop(self.using.take());
        let handed = self.orphanage();
        drop(self.reservation.take());
        if let Some(handed) = handed {
            handed.count_done();
        }
        if !self.shard.room.is_empty() {
            self.shard.room.call(clock::now().millis(), 1);
        }
    }
}

/// A backend found, with its slot.
#[derive(Debug)]
pub struct Placement {
    /// Where to.
    pub backend: BackendId,
    /// Its slot; `None` for side calls.
    pub slot: Option<Slot>,
    /// Why there.
    pub decision: Option<Box<Decision>>,
    /// Prompt tokens as estimated.
    pub prompt_tokens: u64,
}

/// Why a request found none.
#[derive(Debug)]
pub enum Unplaced {
    /// Answer the client this.
    Answer(Situation, Option<Box<Decision>>),
    /// The client left while waiting.
    ClientGone,
}

/// Backends this request must not go to: for good, or for a while. It is this request's own, so that no caller's quota or
/// key is held against another's.
#[derive(Debug, Default)]
pub struct Excluded {
    for_good: BackendSet,
    for_now: Vec<Pause>,
    /// The caller's key was refused, likely with reason: who is asked next will hardly say otherwise.
    stranger: bool,
}

/// A backend left alone for a while.
#[derive(Debug)]
struct Pause {
    backend: BackendId,
    until: Micros,
}

impl Excluded {
    /// It failed this request, or does not take its key.
    pub fn for_good(&mut self, backend: BackendId) {
        self.for_good.insert(backend);
    }

    /// It asked to be left alone for so long, from now on.
    pub fn pause(&mut self, backend: BackendId, pause_ms: u64) {
        let until = Micros(clock::now().0.saturating_add(pause_ms.saturating_mul(1000)));
        self.for_now.push(Pause { backend, until });
    }

    /// Its key was refused, and is likely no good.
    pub fn note_a_strangers(&mut self) {
        self.stranger = true;
    }

    /// Whether somebody refused its key who is to be believed.
    pub fn is_a_strangers(&self) -> bool {
        self.stranger
    }

    /// What to wait for, if those who are left are so full.
    fn hope(&self, full: Full, decision: Option<&Decision>) -> Hope {
        match full {
            Full::Home => Hope::Home,
            Full::NotItsTurn => Hope::Turn,
            Full::Everywhere => Hope::Room,
            Full::Never if self.hopes_for_breakers(decision) => Hope::Trial,
            Full::Never => Hope::Pause,
        }
    }

    /// Whether those who are left take nothing only because their breakers are open, which are tried again within seconds.
    fn hopes_for_breakers(&self, decision: Option<&Decision>) -> bool {
        !self.stranger && decision.is_some_and(|it| it.refused.breaker_open > 0)
    }

    /// How long until the first of them may be asked again, ms; `None` if nobody may.
    fn first_ms(&self) -> Option<u64> {
        let first = self.for_now.iter().map(|pause| pause.until).min()?;
        Some(first.since(clock::now()).div_ceil(1000).max(1))
    }

    /// Takes back those whose pause is over. Only a request that has waited does so: one that goes from backend to backend
    /// asks each of them once.
    fn lapse(&mut self, now: Micros) {
        self.for_now.retain(|pause| now < pause.until);
    }

    fn all(&self) -> BackendSet {
        let mut all = self.for_good.clone();
        for pause in &self.for_now {
            all.insert(pause.backend);
        }
        all
    }
}

/// Finds a backend and holds its slot. `waited_ms` accumulates over the attempts of one request.
///
/// # Errors
/// See [`Unplaced`].
pub async fn place<W: Future<Output = ()>>(
    shard: &Rc<Shard>,
    plan: &Plan,
    excluded: &mut Excluded,
    waited_ms: &mut u64,
    alarm: &Alarm,
    mut gone: Pin<&mut W>,
) -> Result<Placement, Unplaced> {
    let mut queued: Option<Queued> = None;
    let mut takes_turns = true;
    // Taken from the clock each time, not added up look by look: roundings of many looks add up too.
    let (waited_before, entered) = (*waited_ms, clock::now());
    loop {
        let look = Look { excluded: &excluded.all(), waited_ms: *waited_ms, takes_turns };
        let (full, decision) = match try_place(shard, plan, &look) {
            Ok(placement) => {
                match queued {
                    Some(place) => place.ticket.served(),
                    None => shard.room.note_passed(plan.tenant, room_tokens(plan)),
                }
                return Ok(placement);
            }
            Err(refused) => refused,
        };
        let hope = excluded.hope(full, decision.as_deref());
        let routing = &shard.shared.config.routing;
        let look = hope.next_look_ms(routing, *waited_ms, excluded.first_ms());
        let waits = look.and_then(|look_ms| {
            let place = match queued.take() {
                Some(place) => place,
                None => Queued::enter(shard, plan, decision.as_deref())?,
            };
            Ok((place, look_ms))
        });
        let (place, look_ms) = match waits {
            Ok(waits) => waits,
            // There is room for it at a backend, only none to wait in.
            Err(_) if full == Full::NotItsTurn => {
                takes_turns = false;
                continue;
            }
            Err(situation) => return Err(Unplaced::Answer(situation, decision)),
        };
        place.ticket.waits_for_turn(full == Full::NotItsTurn);
        alarm.set(clock::now().millis(), look_ms);
        if race(alarm, gone.as_mut(), pin!(place.ticket.called())).await == Raced::Gone {
            return Err(Unplaced::ClientGone);
        }
        if shard.shared.phase() == Phase::Stopping {
            return Err(Unplaced::Answer(Situation::Draining, decision));
        }
        let now = clock::now();
        *waited_ms = waited_before + now.since(entered) / 1000;
        excluded.lapse(now);
        queued = Some(place);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Full {
    /// No backend would take it even when idle.
    Never,
    /// The conversation's home has no room yet.
    Home,
    /// There is room, and the prompt is long and others are being prefilled there.
    NotItsTurn,
    /// Nothing has room yet.
    Everywhere,
}

type Refused = (Full, Option<Box<Decision>>);

/// How a request is looked at this time.
struct Look<'a> {
    excluded: &'a BackendSet,
    waited_ms: u64,
    /// It may be told to wait for its turn.
    takes_turns: bool,
}

fn try_place(shard: &Rc<Shard>, plan: &Plan, look: &Look<'_>) -> Result<Placement, Refused> {
    let Look { excluded, waited_ms, takes_turns } = *look;
    let mut routes = shard.routes.borrow_mut();
    let routes = routes.load();
    let Some(pool) = shard.shared.pool_of(routes, plan.model.as_deref()) else {
        return Err((Full::Never, None));
    };
    if !plan.reserves {
        return any_backend(shard, &pool.backends, excluded).ok_or((Full::Never, None));
    }
    let now = clock::recent().millis();
    let ask = plan::ask(shard.shared, plan, pool, excluded, waited_ms, now, shard.random());
    let turn_wait_ms = if takes_turns { ask.turn_wait_ms } else { 0 };
    let (ask, prompt_tokens) = (Ask { turn_wait_ms, ..ask }, ask.prompt_tokens);
    let mut reader = shard.reader.borrow_mut();
    let picked = shard.picker.borrow_mut().pick(&shard.shared.fleet, reader.load(), &ask);
    match picked {
        Ok(placed) => Ok(Placement {
            backend: placed.reservation.backend(),
            slot: Some(Slot {
                reservation: Some(placed.reservation),
                using: None,
                shard: Rc::clone(shard),
            }),
            decision: Some(Box::new(placed.decision)),
            prompt_tokens,
        }),
        Err(Nowhere::NoBackend(decision)) => Err((Full::Never, Some(Box::new(decision)))),
        Err(Nowhere::HomeFull(decision)) => Err((Full::Home, Some(Box::new(decision)))),
        Err(Nowhere::NotItsTurn(decision)) => Err((Full::NotItsTurn, Some(Box::new(decision)))),
        Err(Nowhere::Busy(decision)) => Err((Full::Everywhere, Some(Box::new(decision)))),
    }
}

/// Whether a prompt that would have to wait waits in vain: every pool of the model is known, and even the estimate's
/// error leaves it larger than each. One that finds an idle backend goes there and is judged by the engine.
fn is_too_large(shard: &Shard, plan: &Plan) -> bool {
    let mut routes = shard.routes.borrow_mut();
    let routes = routes.load();
    let Some(pool) = shard.shared.pool_of(routes, plan.model.as_deref()) else { return false };
    let least = plan::prompt_tokens(plan, pool) / PROMPT_TOO_LARGE_TIMES;
    let held = |id| shard.shared.fleet.backend(id).limits().tokens_max;
    // 0 stands for unknown or unlimited.
    least > 1 && pool.backends.iter().all(|id| (1..least).contains(&held(id)))
}

/// A side call's backend: the least loaded that takes requests, ties at random. It holds no slot.
fn any_backend(shard: &Shard, pool: &BackendSet, excluded: &BackendSet) -> Option<Placement> {
    let fleet = &shard.shared.fleet;
    let salt = shard.random();
    let fit =
        pool.iter().filter(|id| !excluded.contains(*id) && fleet.backend(*id).admits().is_ok());
    let least = fit.min_by_key(|id| {
        (
            fleet.backend(*id).slots.in_flight().0,
            (u64::from(id.0) ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        )
    })?;
    Some(Placement { backend: least, slot: None, decision: None, prompt_tokens: 0 })
}

/// A place in the waiting room and in the process-wide count.
struct Queued {
    ticket: crate::wait::Ticket,
    _counted: Counted,
}

impl Queued {
    /// Takes a place, unless the request would wait in vain or too many wait already.
    fn enter(
        shard: &Rc<Shard>,
        plan: &Plan,
        decision: Option<&Decision>,
    ) -> Result<Queued, Situation> {
        if is_too_large(shard, plan) {
            return Err(Situation::PromptTooLarge);
        }
        let max = usize::try_from(shard.shared.config.routing.queue_max).unwrap_or(usize::MAX);
        let counted = Counted::take(&shard.shared.waiting, max).ok_or(Situation::NoRoom)?;
        // Nobody was chosen, so what counts is what the best of them holds.
        let block_bytes = u64::from(shard.shared.config.routing.block_bytes);
        let held = decision.map_or(0, |decision| u64::from(decision.deepest_blocks) * block_bytes);
        let uncached = plan.canonical_bytes.saturating_sub(held) / BYTES_PER_TOKEN;
        let waits =
            Waits { uncached_tokens: uncached, tokens: room_tokens(plan), tenant: plan.tenant };
        let ticket = shard.room.enter(waits, clock::now().millis());
        shard.keep_pulsing();
        Ok(Queued { ticket, _counted: counted })
    }
}

/// The room a request takes, estimated: what tenants share.
fn room_tokens(plan: &Plan) -> u64 {
    plan.canonical_bytes / BYTES_PER_TOKEN + plan.output_tokens
}

/// Waiting requests are compared with one another, whatever their models: one usual figure for all.
const BYTES_PER_TOKEN: u64 = 4;

struct Counted(&'static AtomicUsize);

impl Counted {
    fn take(count: &'static AtomicUsize, max: usize) -> Option<Counted> {
        // Relaxed: a bound on how many wait; no other memory is published with it.
        if count.fetch_add(1, Ordering::Relaxed) >= max {
            // Relaxed: as above.
            count.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Counted(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // Relaxed: as in `take`.
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
