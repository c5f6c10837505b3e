//! The search for a reply: backends are tried until one's reply may go to the client.
//!
//! Before the first byte to the client a failure is retried elsewhere, once per backend and within a budget, unless the
//! request may have been carried out and must not be twice. A backend that is full, or refuses this caller's quota or
//! key, is passed over without thinking worse of it. After the first byte nothing is retried, and nothing here is called.

use std::pin::Pin;

use bytes::Bytes;
use index::BackendId;
use index::breaker::Pass;
use index::limits::RETRY_AFTER_MAX_MS;

use crate::answer::Situation;
use crate::classify::{ReplyClass, classify_failure};
use crate::clock::{self, Micros};
use crate::conversation;
use crate::credentials::CredentialKey;
use crate::edits::Edits;
use crate::exchange::Exchange;
use crate::http::{RequestFraming, Version, write_request_head};
use crate::limits::{ATTEMPTS_MAX, BUSY_PAUSE_MAX_MS, BUSY_PAUSE_MS, RATE_LIMIT_PAUSE_MS};
use crate::metrics::Count;
use crate::pins::Wish;
use crate::place::{Excluded, Placement, Slot, Unplaced, place};
use crate::plan::{Mending, Plan};
use crate::published::{EngineKind, Phase, Upstream};
use crate::record::Note;
use crate::retry::may_repeat;
use crate::upstream::{Attempt, Failed, Held, Outgoing};

/// How the search for a reply ended.
pub(crate) enum Found {
    Reply(Box<Held>, Option<Slot>, BackendId),
    Answer(Situation),
    /// The engine's own words of an error, told in a stream that has not reached the client.
    Told(Situation, String),
    ClientGone,
}

/// What a search has learned so far.
struct Search {
    excluded: Excluded,
    /// Whether the request may be sent again although an engine may have begun on it.
    repeatable: bool,
    attempts: u32,
    failed: bool,
    /// Somebody said it was full.
    busy: bool,
    /// Somebody who might take it could not be asked.
    unheard: bool,
    /// The error of an engine that is the answer if nothing better comes.
    last: Option<Kept>,
}

struct Kept {
    held: Box<Held>,
    backend: BackendId,
    class: ReplyClass,
    pause_ms: u64,
}

impl Kept {
    /// Whether it tells the client more than `other`: a failure most, then the shortest pause, then a refused key.
    fn outranks(&self, other: &Kept) -> bool {
        let rank = |kept: &Kept| match kept.class {
            ReplyClass::Broken => (0, 0),
            ReplyClass::RateLimited => (1, kept.pause_ms),
            _ => (2, 0),
        };
        rank(self) <= rank(other)
    }
}

impl Search {
    fn new(repeatable: bool) -> Search {
        Search {
            excluded: Excluded::default(),
            repeatable,
            attempts: 0,
            failed: false,
            busy: false,
            unheard: false,
            last: None,
        }
    }

    /// A backend has no room now.
    fn pass_over(&mut self, backend: BackendId, pause_ms: u64) {
        self.excluded.pause(backend, pause_ms);
        self.busy = true;
    }

    fn keep(&mut self, kept: Kept) {
        if self.last.as_ref().is_none_or(|last| kept.outranks(last)) {
            self.last = Some(kept);
        }
    }

    /// Nothing is left to try: an engine's own error if there was one, else ours. That a quota or a key is refused is the
    /// answer only if everybody says so, and of a key that is likely good only if everybody could be asked.
    fn give_up(&mut self, situation: Situation) -> Found {
        let nobody = situation == Situation::NoHealthyBackend;
        let all_say_so = nobody && !self.busy && !self.failed;
        let last = self.last.take().filter(|kept| match kept.class {
            ReplyClass::Broken => true,
            ReplyClass::KeyRefused => {
                all_say_so && (self.excluded.is_a_strangers() || !self.unheard)
            }
            _ => all_say_so,
        });
        match last {
            Some(kept) => found(kept.held, None, kept.backend),
            None if self.failed => Found::Answer(Situation::UpstreamFailed),
            None if nobody && self.busy => Found::Answer(Situation::NoRoom),
            None => Found::Answer(situation),
        }
    }
}

/// A held reply for the client. An error in a stream that has not begun gets the status it should have had, and one that
/// the client could not read is told in its words.
fn found(held: Box<Held>, slot: Option<Slot>, backend: BackendId) -> Found {
    if held.reply.is_foreign_refusal() {
        return Found::Told(Situation::EngineRefused, held.reply.error_words());
    }
    if !held.reply.had_error() {
        return Found::Reply(held, slot, backend);
    }
    let situation = match held.reply.class() {
        ReplyClass::CallersFault => Situation::EngineRefused,
        _ => Situation::UpstreamFailed,
    };
    Found::Told(situation, held.reply.error_words())
}

impl Exchange<'_> {
    /// Tries backends until one's reply may go to the client or nothing is left to try.
    pub(crate) async fn find<W: Future<Output = ()>>(
        &mut self,
        plan: &Plan,
        body: &Bytes,
        mut gone: Pin<&mut W>,
    ) -> Found {
        let repeatable = may_repeat(self.api, &self.head.method(), plan.keeps_state);
        let mut search = Search::new(repeatable);
        loop {
            let waited = &mut self.record.waited_ms;
            let alarm = &self.client.alarm;
            let placed =
                place(self.shard, plan, &mut search.excluded, waited, alarm, gone.as_mut()).await;
            let placement = match placed {
                Ok(placement) => placement,
                Err(Unplaced::ClientGone) => return Found::ClientGone,
                Err(Unplaced::Answer(situation, decision)) => {
                    let refused = decision.as_ref().map(|decision| decision.refused);
                    search.unheard = refused.is_some_and(|it| it.breaker_open + it.unhealthy > 0);
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
            search.pass_over(backend, BUSY_PAUSE_MS);
            return None;
        };
        if !self.find_slot(plan, &mut placement) {
            // A moment later those on their way to its slots will have arrived.
            search.pass_over(backend, BUSY_PAUSE_MS);
            return None;
        }
        self.note_placed(plan, placement.decision, backend, placement.prompt_tokens);
        let slot = placement.slot.as_ref();
        let outgoing = self.outgoing(plan, body, backend, slot, search.repeatable);
        let mut attempt = Attempt::new(self.shard, &self.client.alarm, gone, slot);
        let began = clock::recent();
        let mut ended = attempt.run(backend, &outgoing).await;
        while let (Err(Failed::GaveWay), Some(slot)) = (&ended, slot) {
            slot.gave_way();
            self.record.gave_way += 1;
            self.shard.stats.add(Count::GaveWay, 1);
            ended = attempt.run(backend, &outgoing).await;
        }
        slot.into_iter().for_each(Slot::stays);
        if attempt.was_sent()
            && matches!(ended, Err(Failed::ClientGone | Failed::Silent))
            && let Some(slot) = placement.slot.take()
        {
            slot.orphan(plan.output_tokens);
        }
        match ended {
            Ok(held) => {
                self.note_if_ran_out(backend, &held.reply);
                self.judge(held, placement.slot, pass, search, began)
            }
            Err(Failed::ClientGone) => Some(Found::ClientGone),
            Err(_) if self.shard.shared.phase() == Phase::Stopping => {
                // Every deadline was rung: the backend is not to blame.
                self.to.keep_alive = false;
                Some(Found::Answer(Situation::Draining))
            }
            Err(failed) => self.judge_failure(failed, pass, search),
        }
    }

    /// Decides what an attempt without a reply means. `None`: another backend is tried.
    fn judge_failure(
        &mut self,
        failed: Failed,
        pass: Pass<'_>,
        search: &mut Search,
    ) -> Option<Found> {
        let Some(class) = classify_failure(failed) else {
            return Some(Found::Answer(Situation::NoRoom));
        };
        if failed == Failed::Silent {
            // A long prefill is no failure; on trial silence is no success either.
            if pass.is_trial() {
                pass.failed(clock::now().millis(), 0);
            }
            let late = Situation::FirstByteTimeout;
            let situation = if search.repeatable { late } else { Situation::OutcomeUnknown };
            return Some(Found::Answer(situation));
        }
        // A connection that dies counts against its backend, whatever became of the request.
        self.note_broken(search, pass, 0);
        let begun = class == ReplyClass::UnknownOutcome || failed == Failed::BadReply;
        if begun && !search.repeatable {
            return Some(Found::Answer(Situation::OutcomeUnknown));
        }
        if self.may_retry(search) {
            return None;
        }
        Some(search.give_up(Situation::UpstreamFailed))
    }

    /// Decides what a held reply means: it goes to the client, or another backend is tried.
    fn judge(
        &mut self,
        mut held: Box<Held>,
        slot: Option<Slot>,
        pass: Pass<'static>,
        search: &mut Search,
        began: Micros,
    ) -> Option<Found> {
        let backend = pass.backend();
        if let Some(slot) = slot.as_ref().filter(|_| held.reply.is_done()) {
            slot.note_whole();
        }
        match held.reply.class() {
            class if class.is_refusal() => {
                self.refused(held, class, pass, search);
                // What an engine took to say so was waiting, and is bounded as such.
                self.record.waited_ms += clock::now().since(began) / 1000;
                (search.attempts >= ATTEMPTS_MAX)
                    .then(|| search.give_up(Situation::NoHealthyBackend))
            }
            class @ (ReplyClass::Served | ReplyClass::CallersFault) => {
                let now = clock::recent().millis();
                if class == ReplyClass::Served && self.api.reserves_slot() {
                    self.shard.shared.credentials.note_taken(self.credential(), now);
                }
                // What goes on is served when it has ended. On trial its beginning must do: replies take minutes.
                let begun = pass.is_trial() && !held.undecided;
                if begun || held.reply.is_done() {
                    pass.succeeded(now);
                } else {
                    held.pass = Some(pass);
                }
                self.shard.shared.note_alive(backend, now);
                Some(found(held, slot, backend))
            }
            // `Broken`; the others are refusals, or never come with a reply.
            class => {
                self.note_broken(search, pass, retry_after_ms(&held).unwrap_or(0));
                if search.repeatable && self.may_retry(search) {
                    // Kept without its slot: if nothing better comes, the engine's own words are the answer.
                    search.keep(Kept { held, backend, class, pause_ms: 0 });
                    return None;
                }
                Some(found(held, slot, backend))
            }
        }
    }

    /// The backend did not begin on this request, and is no worse for it: nothing counts against it, and only this request
    /// leaves it alone. Full lasts for moments and is asked again soon; a quota lasts as long as it says; a key for good.
    fn refused(&mut self, held: Box<Held>, class: ReplyClass, pass: Pass<'_>, search: &mut Search) {
        let backend = pass.backend();
        self.shard.shared.note_alive(backend, clock::recent().millis());
        let asked = retry_after_ms(&held);
        let pause_ms = match class {
            ReplyClass::KeyRefused => {
                self.shard.stats.add(Count::KeysRefused, 1);
                search.attempts += 1;
                search.excluded.for_good(backend);
                if !self.refusal_is_doubtful(backend) {
                    search.excluded.note_a_strangers();
                }
                0
            }
            ReplyClass::RateLimited => {
                self.shard.stats.add(Count::RateLimited, 1);
                // Bounded by the request's wait, as being full is.
                let pause = asked.unwrap_or(RATE_LIMIT_PAUSE_MS);
                let pause = pause.clamp(BUSY_PAUSE_MS, RETRY_AFTER_MAX_MS);
                search.excluded.pause(backend, pause);
                pause
            }
            _ => {
                self.shard.stats.add(Count::BusyAnswers, 1);
                let pause = asked.unwrap_or(0).clamp(BUSY_PAUSE_MS, BUSY_PAUSE_MAX_MS);
                search.pass_over(backend, pause);
                return;
            }
        };
        search.keep(Kept { held, backend, class, pause_ms });
    }

    fn refusal_is_doubtful(&self, backend: BackendId) -> bool {
        let shared = self.shard.shared;
        let refusals = shared.upstream(backend).map(|upstream| &upstream.refusals);
        refusals.is_some_and(|refusals| {
            shared.credentials.is_doubtful(self.credential(), refusals, clock::recent().millis())
        })
    }

    fn credential(&self) -> CredentialKey {
        let credential = conversation::credential(&|name| self.head.header(name));
        CredentialKey::of(self.shard.shared.key, credential)
    }

    /// The backend failed this request: it counts against it, and it is not asked again.
    fn note_broken(&self, search: &mut Search, pass: Pass<'_>, retry_after_ms: u64) {
        self.shard.stats.add(Count::UpstreamFailures, 1);
        search.excluded.for_good(pass.backend());
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
        slot: Option<&Slot>,
        repeatable: bool,
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
            method: self.head.method(),
            dialect: self.api.dialect(),
            unwrap_chunks: self.to.version == Version::Http10,
            repeatable,
        }
    }
}

/// How long an engine asks to be left alone; `None` when it does not say so in seconds.
fn retry_after_ms(held: &Held) -> Option<u64> {
    let seconds = std::str::from_utf8(held.head.header("retry-after")?).ok()?;
    seconds.trim().parse::<u64>().ok().map(|seconds| seconds.saturating_mul(1000))
}
