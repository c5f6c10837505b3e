//! A held place on one backend: what was charged, given back exactly once on every way out, because dropping is the only
//! way out. It never decides whom to admit.

use std::cell::Cell;

use crate::line::Place;
use crate::way::Ticket;
use crate::{Backend, BackendId, Millis};

/// What one request takes from a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    /// Prompt and expected output, in tokens, against the token pool.
    pub tokens: u64,
    /// The part of the prompt believed not cached there: the prefill work the request brings.
    pub uncached_tokens: u64,
}

/// Which limit refused. Full is busy, never broken: it says nothing about the backend's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rejected {
    /// As many requests in flight as the backend runs at once.
    Requests,
    /// The token pool, less its spare tenth, has no room.
    Tokens,
}

/// One request's place on one backend. Dropping it gives everything back.
#[derive(Debug)]
#[must_use = "dropping a reservation gives the place back"]
pub struct Reservation<'f> {
    backend: &'f Backend,
    id: BackendId,
    tokens: u64,
    /// Prefill work not given back yet. A cell: a reservation belongs to one request, on one thread at a time.
    uncached: Cell<u64>,
    /// When the request was placed, for one whose wait for a first token is to be learned.
    placed_at: Option<Millis>,
    /// Its first token comes when its prefill ends.
    streams: bool,
    /// Where it stands among the streams there.
    place: Cell<Option<Place>>,
    /// All of its prompt.
    prompt_tokens: u64,
    /// What the pace is learned from when its first token comes: the prefill work it was believed to bring. `None` when
    /// that was wrong and nobody knows what is right.
    teaches: Cell<Option<u64>>,
    /// How often it may still give way.
    ways: Cell<u32>,
    /// It is long, and may give way in its prefill.
    ticket: Cell<Option<Ticket>>,
    /// Tokens computed of it before it gave way.
    computed: Cell<u64>,
    /// It was placed in the hope that whoever is being prefilled there gives way.
    asks_way: bool,
}

impl<'f> Reservation<'f> {
    pub(crate) fn take(
        backend: &'f Backend,
        id: BackendId,
        charge: Charge,
    ) -> Result<Self, Rejected> {
        let (tokens, uncached) = backend.take(charge)?;
        Ok(Self {
            backend,
            id,
            tokens,
            uncached: Cell::new(uncached),
            placed_at: None,
            streams: false,
            place: Cell::new(None),
            prompt_tokens: 0,
            teaches: Cell::new(Some(uncached)),
            ways: Cell::new(0),
            ticket: Cell::new(None),
            computed: Cell::new(0),
            asks_way: false,
        })
    }

    /// The same, of a request placed at this time, whose first token comes when its prefill ends if it `streams`.
    pub(crate) fn placed_at(mut self, now: Millis, streams: bool) -> Self {
        (self.placed_at, self.streams) = (Some(now), streams);
        if streams {
            self.backend.load.turn.began(self.uncached.get(), now);
            self.place.set(Some(self.backend.load.turn.line.join()));
        }
        self
    }

    /// The same, of a request with a prompt this long that may give way so often while it is prefilled, or asks whoever is
    /// prefilled there to.
    pub(crate) fn with_way(mut self, prompt_tokens: u64, times: u32, asks: bool) -> Self {
        self.ways = Cell::new(if self.streams { times } else { 0 });
        (self.prompt_tokens, self.asks_way) = (prompt_tokens, asks);
        self.take_ticket();
        self
    }

    fn take_ticket(&self) {
        let turn = &self.backend.load.turn;
        self.ticket.set(turn.may_give_way(self.uncached.get(), self.ways.get()));
    }

    /// Whether it may turn out to be a long one, if its engine has less of it cached than was believed: to be
    /// [looked after](Self::look_after) until its first token comes.
    pub fn may_be_found_long(&self) -> bool {
        self.ways.get() > 0 && self.backend.load.turn.is_long(self.prompt_tokens)
    }

    /// Its first token has not come by `now`. One that is being prefilled for longer than it should take is reckoned with
    /// as a long one from then on, and may have to give way.
    pub fn look_after(&self, now: Millis) {
        let (uncached, load) = (self.uncached.get(), &self.backend.load);
        let Some(place) = self.place.get().filter(|_| uncached > 0 && self.ways.get() > 0) else {
            return;
        };
        let pending = load.uncached_tokens();
        let found = load.turn.found_long(place, uncached, self.prompt_tokens, pending, now);
        if let Some(tokens) = found {
            self.uncached.set(tokens);
            load.turn.grew(self.ticket.get(), tokens - uncached, tokens);
            self.backend.has_more_to_prefill(tokens - uncached);
        }
        if self.is_found_long() && self.ticket.get().is_none() && load.turn.line.is_first(place) {
            self.take_ticket();
        }
    }

    /// Whether it has more to prefill than it was believed to bring.
    fn is_found_long(&self) -> bool {
        self.teaches.get() != Some(self.uncached.get())
    }

    /// The engine has the request: whoever is being prefilled there is asked to give way, if that was counted on when
    /// this one was placed.
    pub fn sent(&self) {
        if self.asks_way {
            self.backend.load.turn.ask_way();
        }
    }

    /// Whether it may be asked to give way.
    pub fn may_give_way(&self) -> bool {
        self.ticket.get().is_some()
    }

    /// Whether it is to be ended at its engine and sent there again, because somebody waits behind it who should not.
    pub fn is_asked_to_give_way(&self) -> bool {
        self.ticket.get().is_some_and(|ticket| self.backend.load.turn.is_asked(ticket))
    }

    /// It was ended at its engine and is sent there again, behind whoever asked for it. Of its prefill as much counts as
    /// should be left, by what the engine is known to keep.
    pub fn gave_way(&self, now: Millis) {
        let Some(ticket) = self.ticket.get() else { return };
        let (uncached, load) = (self.uncached.get(), &self.backend.load);
        let (done, left) = load.turn.done_and_left(uncached, now);
        self.computed.set(self.computed.get() + done);
        load.turn.gave_way(ticket, uncached, left, now);
        load.pace.started(now);
        self.backend.prefilled(uncached - left);
        self.teaches.set(if self.is_found_long() { None } else { Some(left) });
        self.uncached.set(left);
        self.ways.set(self.ways.get().saturating_sub(1));
        if let Some(place) = self.place.get() {
            load.turn.line.left(place);
            self.place.set(Some(load.turn.line.join()));
        }
    }

    /// Its engine found so many tokens of the prompt cached, where `predicted` were expected when it was placed: what is more
    /// was kept when it gave way.
    pub fn note_cached(&self, predicted: u64, cached: u64) {
        let computed = self.computed.take();
        if computed > 0 {
            self.backend.load.turn.note_kept(cached.saturating_sub(predicted), computed);
        }
    }

    /// It must not be ended any more: its reply has begun.
    pub fn stays(&self) {
        self.ways.set(0);
        if let Some(ticket) = self.ticket.take() {
            self.backend.load.turn.stays(ticket);
        }
    }

    /// Where the place is.
    pub fn backend(&self) -> BackendId {
        self.id
    }

    /// The prompt has been prefilled (the first token came): its prefill work no longer counts there. Calling it again
    /// changes nothing.
    pub fn prefill_done(&self) {
        self.backend.prefilled(self.take_uncached());
    }

    /// The same, seen at `now`: the backend's prefill rate and its time to a first token are learned from it.
    pub fn prefill_done_at(&self, now: Millis) {
        let (uncached, load) = (self.uncached.get(), &self.backend.load);
        if uncached > 0 {
            self.teach_pace(now);
            self.place.get().into_iter().for_each(|place| load.turn.line.served(place));
            let since = self.placed_at.into_iter();
            since.for_each(|placed| load.note_first_token(now.since(placed), now));
        }
        self.prefill_done();
    }

    /// Its prefill ended, and the next one begins.
    fn teach_pace(&self, now: Millis) {
        let load = &self.backend.load;
        let Some(tokens) = self.teaches.get() else {
            // Only a stream is ever found to be long.
            load.pace.started(now);
            return load.turn.learn_nothing(now);
        };
        load.pace.prefilled(tokens, now);
        if self.streams {
            load.turn.learn(tokens, now);
        }
    }

    /// Takes the prefill work out of what streams wait behind, and returns it for whoever else counts it.
    fn take_uncached(&self) -> u64 {
        let uncached = self.uncached.take();
        self.stays();
        if self.streams {
            self.backend.load.turn.left(uncached);
        }
        if let Some(place) = self.place.take() {
            self.backend.load.turn.line.left(place);
        }
        uncached
    }

    /// Prefill work still counted for this request, in tokens.
    pub fn uncached_tokens(&self) -> u64 {
        self.uncached.get()
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.backend.give_back(self.tokens, self.take_uncached());
    }
}
