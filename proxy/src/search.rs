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
use crate::exchange::Exchange;
use crate::http::{RequestFraming, Version, write_request_head};
use crate::limits::ATTEMPTS_MAX;
use crate::metrics::Count;
use crate::place::{Excluded, Placement, Slot, Unplaced, place};
use crate::plan::Plan;
use crate::published::Phase;
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
        placement: Placement,
        search: &mut Search,
        gone: Pin<&mut W>,
    ) -> Option<Found> {
        let backend = placement.backend;
        let Some(pass) = self.shard.shared.enter(backend) else {
            // Its breaker opened, or its last trial was taken, while this was decided.
            search.excluded.note_busy(backend);
            return None;
        };
        self.note_placed(plan, placement.decision, backend, placement.prompt_tokens);
        let outgoing = self.outgoing(body, backend);
        let mut attempt = Attempt { shard: self.shard, alarm: &self.client.alarm, gone };
        match attempt.run(backend, &outgoing).await {
            Ok(held) => {
                self.note_if_ran_out(backend, &held.reply);
                self.judge(held, placement.slot, pass, search)
            }
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
                pass.succeeded(now);
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

    fn outgoing<'b>(&self, body: &'b Bytes, backend: BackendId) -> Outgoing<'b> {
        let has_body = self.head.framing() != RequestFraming::None;
        let mut head = Vec::with_capacity(1024);
        let upstream = self.shard.shared.upstream(backend);
        let authority = upstream.map_or("", |upstream| &upstream.authority);
        let extra = [
            ("x-shearwater-request-id", self.request_id.as_bytes()),
            // Only where the client, of HTTP/1.0, named no host; else its own is kept.
            ("host", self.head.host().unwrap_or(authority.as_bytes())),
        ];
        write_request_head(&mut head, self.head, has_body.then_some(body.len() as u64), &extra);
        Outgoing {
            head,
            body,
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
