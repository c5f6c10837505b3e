//! The search for a reply: backends are tried until one's reply may go to the client.
//!
//! Before the first byte to the client a failure is retried elsewhere, once per backend and within a budget;
//! a full engine is passed over without thinking worse of it. After the first byte nothing is retried, and
//! nothing here is called.

use std::pin::Pin;

use bytes::Bytes;
use index::BackendId;

use crate::answer::Situation;
use crate::breaker::Pass;
use crate::classify::ReplyClass;
use crate::clock;
use crate::edits::Edits;
use crate::exchange::Exchange;
use crate::http::{RequestFraming, Version, write_request_head};
use crate::limits::ATTEMPTS_MAX;
use crate::metrics::Count;
use crate::pins::Wish;
use crate::place::{Excluded, Placement, Slot, Unplaced, place};
use crate::plan::{Mending, Plan};
use crate::published::{EngineKind, Phase, Upstream};
use crate::record::Note;
use crate::upstream::{Attempt, Failed, Held, Outgoing};

/// How the search for a reply ended.
pub(crate) enum Found {
    Reply(Box<Held>, Option<Slot>, BackendId),
    Answer(Situation),
    ClientGone,
}

/// What a search has learned so far.
#[derive(Default)]
struct Search {
    excluded: Excluded,
    attempts: u32,
    failed: bool,
    last: Option<(Box<Held>, BackendId)>,
}

impl Search {
    /// Nothing is left to try: an engine's own error if there was one, else ours.
    fn give_up(&mut self, situation: Situation) -> Found {
        match self.last.take() {
            Some((held, backend)) => Found::Reply(held, None, backend),
            None if self.failed => Found::Answer(Situation::UpstreamFailed),
            None => Found::Answer(situation),
        }
    }
}

impl Exchange<'_> {
    /// Tries backends until one's reply may go to the client or nothing is left to try.
    pub(crate) async fn find<W: Future<Output = ()>>(
        &mut self,
        plan: &Plan,
        body: &Bytes,
        mut gone: Pin<&mut W>,
    ) -> Found {
        let mut search = Search::default();
        loop {
            let waited = &mut self.record.waited_ms;
            let alarm = &self.client.alarm;
            let placed =
                place(self.shard, plan, &mut search.excluded, waited, alarm, gone.as_mut()).await;
            let placement = match placed {
                Ok(placement) => placement,
                Err(Unplaced::ClientGone) => return Found::ClientGone,
                Err(Unplaced::Answer(situation, decision)) => {
                    self.record.decision = decision.or(self.record.decision.take());
                    self.to.keep_alive &= self.shard.shared.phase() < Phase::Leaving;
                    return search.give_up(situation);
                }
            };
            if let Some(found) =
                self.attempt(plan, body, placement, &mut search, gone.as_mut()).await
            {
                return found;
            }
            self.shard.stats.add(Count::Retries, 1);
        }
    }

    /// One attempt. `None`: try another backend.
    async fn attempt<W: Future<Output = ()>>(
        &mut self,
        plan: &Plan,
        body: &Bytes,
        mut placement: Placement,
        search: &mut Search,
        gone: Pin<&mut W>,
    ) -> Option<Found> {
        let backend = placement.backend;
        let Some(pass) = self.shard.shared.enter(backend) else {
            // Its breaker opened, or its last trial was taken, while this was decided.
            search.excluded.note_busy(backend);
            return None;
        };
        if !self.find_slot(plan, &mut placement) {
            // A moment later those on their way to its slots will have arrived.
            search.excluded.note_busy(backend);
            return None;
        }
        self.note_placed(plan, placement.decision, backend, placement.prompt_tokens);
        let outgoing = self.outgoing(plan, body, backend, placement.slot.as_ref());
        let mut attempt = Attempt { shard: self.shard, alarm: &self.client.alarm, gone };
        match attempt.run(backend, &outgoing).await {
            Ok(held) => self.judge(held, placement.slot, pass, search),
            Err(Failed::ClientGone) => Some(Found::ClientGone),
            Err(_) if self.shard.shared.phase() == Phase::Stopping => {
                // Every deadline was rung: the backend is not to blame.
                self.to.keep_alive = false;
                Some(Found::Answer(Situation::Draining))
            }
            Err(Failed::Exhausted) => Some(Found::Answer(Situation::NoRoom)),
            Err(Failed::Silent) => {
                // A long prefill is no failure; on trial silence is no success either.
                if pass.is_trial() {
                    pass.failed(clock::now().millis(), 0);
                }
                Some(Found::Answer(Situation::FirstByteTimeout))
            }
            Err(Failed::Connect | Failed::NoReply | Failed::BadReply) => {
                self.note_broken(search, pass, 0);
                if self.may_retry(search) {
                    return None;
                }
                Some(search.give_up(Situation::UpstreamFailed))
            }
        }
    }

    /// Decides what a held reply means: it goes to the client, or another backend is tried.
    fn judge(
        &mut self,
        held: Box<Held>,
        slot: Option<Slot>,
        pass: Pass<'_>,
        search: &mut Search,
    ) -> Option<Found> {
        let backend = pass.backend();
        if let Some(slot) = slot.as_ref().filter(|_| held.reply.is_done()) {
            slot.note_whole();
        }
        match held.reply.class() {
            ReplyClass::Busy => {
                self.shard.stats.add(Count::BusyAnswers, 1);
                search.excluded.note_busy(backend);
                None
            }
            ReplyClass::Broken => {
                self.note_broken(search, pass, retry_after_ms(&held));
                if self.may_retry(search) {
                    // Kept without its slot: if nothing better comes, the engine's own words are the answer.
                    search.last = Some((held, backend));
                    return None;
                }
                Some(Found::Reply(held, slot, backend))
            }
            ReplyClass::Served | ReplyClass::CallersFault => {
                let now = clock::recent().millis();
                if !held.undecided {
                    pass.succeeded(now);
                }
                self.shard.shared.note_alive(backend, now);
                Some(Found::Reply(held, slot, backend))
            }
        }
    }

    /// The backend failed this request: it counts against it, and it is not asked again.
    fn note_broken(&self, search: &mut Search, pass: Pass<'_>, retry_after_ms: u64) {
        self.shard.stats.add(Count::UpstreamFailures, 1);
        search.excluded.broken.insert(pass.backend());
        pass.failed(clock::now().millis(), retry_after_ms);
        search.failed = true;
    }

    fn may_retry(&self, search: &mut Search) -> bool {
        search.attempts += 1;
        search.attempts < ATTEMPTS_MAX && self.shard.retries.take()
    }

    fn note_placed(
        &mut self,
        plan: &Plan,
        decision: Option<Box<index::Decision>>,
        backend: BackendId,
        prompt_tokens: u64,
    ) {
        let now = clock::now();
        self.record.attempts += 1;
        self.record.times.placed = Some(now);
        self.record.backend = Some(backend);
        self.record.prompt_tokens_estimate = prompt_tokens;
        self.record.decision = decision;
        if !plan.blocks.is_empty() {
            self.shard.shared.note(Note::Routed { backend, blocks: plan.blocks.clone(), at: now });
        }
    }

    /// Finds the request its slot within a llama.cpp server whose slots are kept track of. False: not now.
    fn find_slot(&self, plan: &Plan, placement: &mut Placement) -> bool {
        let Some(upstream) = self.shard.shared.upstream(placement.backend) else { return true };
        let Some(slot) = &mut placement.slot else { return true };
        let places = plan.mending.as_ref().map(|mending| &mending.repairs.id_slot);
        let wish = match places.filter(|places| places.single) {
            Some(places) if places.may_name() && upstream.kind() == EngineKind::Llamacpp => {
                Wish::Named
            }
            Some(_) => Wish::Any,
            None => Wish::Several,
        };
        let Ok(using) = upstream.pins.set_out(plan.conversation, wish) else { return false };
        slot.runs_in(using);
        true
    }

    /// What is changed in the body for an engine of this kind, and whether its usage is hidden in exchange.
    fn edits(&self, plan: &Plan, kind: EngineKind, slot: Option<u32>) -> (Edits, bool) {
        let mut edits = Edits::default();
        let Some(Mending { repairs, .. }) = plan.mending.as_deref() else { return (edits, false) };
        edits.add_all(&repairs.always);
        // llama.cpp tells its tokens in the last chunk of every stream, and would take them from there if asked.
        let asks = kind != EngineKind::Llamacpp && !repairs.usage.is_empty();
        if asks {
            edits.add_all(&repairs.usage);
        }
        if !edits.is_empty() {
            self.shard.stats.add(Count::BodiesRepaired, 1);
        }
        if kind == EngineKind::Llamacpp {
            edits.add_all(&repairs.id_slot.edits(slot));
            self.shard.stats.add(Count::SlotsNamed, u64::from(slot.is_some()));
        }
        (edits, asks)
    }

    fn outgoing<'b>(
        &self,
        plan: &'b Plan,
        body: &'b Bytes,
        backend: BackendId,
        slot: Option<&'b Slot>,
    ) -> Outgoing<'b> {
        let has_body = self.head.framing() != RequestFraming::None;
        let mut head = Vec::with_capacity(1024);
        let upstream = self.shard.shared.upstream(backend);
        let kind = upstream.map_or(EngineKind::Unknown, Upstream::kind);
        let authority = upstream.map_or("", |upstream| &upstream.authority);
        let (edits, hides_usage) = self.edits(plan, kind, slot.and_then(Slot::named));
        let unpacked = plan.mending.as_ref().and_then(|mending| mending.unpacked.as_ref());
        let unpacked = unpacked.filter(|_| !edits.is_empty());
        let body = unpacked.unwrap_or(body);
        let extra = [
            ("x-shearwater-request-id", self.request_id.as_bytes()),
            // Only where the client, of HTTP/1.0, named no host; else its own is kept.
            ("host", self.head.host().unwrap_or(authority.as_bytes())),
            // What was unpacked is not encoded any more.
            ("content-encoding", b""),
        ];
        let extra = extra.get(..if unpacked.is_some() { 3 } else { 2 }).unwrap_or_default();
        let len = edits.len_of(body.len()) as u64;
        write_request_head(&mut head, self.head, has_body.then_some(len), extra);
        Outgoing {
            head,
            body,
            edits,
            hides_usage,
            slot,
            method: self.head.method(),
            dialect: self.api.dialect(),
            unwrap_chunks: self.to.version == Version::Http10,
        }
    }
}

/// How long a broken backend asks to be left alone; 0 when it does not say so in seconds.
fn retry_after_ms(held: &Held) -> u64 {
    let seconds = held.head.header("retry-after").and_then(|value| std::str::from_utf8(value).ok());
    seconds.and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0).saturating_mul(1000)
}
