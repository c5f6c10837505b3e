//! An inference request: gates, admission, and the reply in one piece. Streams are in `stream`.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::{Duration, Instant};

use super::super::ask::Api;
use super::super::core::Progress;
use super::super::errors::Failure;
use super::super::faults::{Faults, RateLimit};
use super::super::http::{Conn, Gone, Head};
use super::super::info;
use super::super::model::Refusal;
use super::super::persona::Persona;
use super::super::shapes::{Done, whole};
use super::super::shared::{Shared, Ticket};
use super::super::text::expected_text;
use super::super::text::words::HASH_TOKENS;
use super::plain::Answer;
use super::prepare::{Prepared, prepare};
use super::session::{Next, send, send_half};
use super::stream::{StreamJob, refuse_stream, stream};

/// Answers an inference request.
pub(super) async fn infer(
    conn: &mut Conn,
    shared: &Arc<Shared>,
    head: &Head,
    body: Bytes,
    api: Api,
    last: bool,
) -> Next {
    if let Some(next) = gate(shared) {
        return next;
    }
    let prepared = prepare(shared, api, head, &body);
    drop(body);
    let admitted = prepared.and_then(|prepared| admit(shared, prepared));
    match admitted {
        Ok(Admitted::Taken(ticket, job)) if job.facts.ask.stream => {
            stream(conn, shared, head, *job, ticket, last).await
        }
        Ok(Admitted::Taken(ticket, job)) => unary(conn, shared, head, *job, ticket, last).await,
        Ok(Admitted::RefusedLate(job)) => refuse_stream(conn, shared, head, *job, last).await,
        Err(failure) => {
            let answer = Answer::failure(shared.options.persona, Some(api), &failure);
            send(conn, shared, head, &answer, last).await
        }
    }
}

/// Faults that end the connection instead of answering.
fn gate(shared: &Shared) -> Option<Next> {
    let mut next = None;
    shared.faults.send_if_modified(|faults| {
        let mut counted = false;
        if let Some(left) = faults.reset_on {
            counted = true;
            faults.reset_on = left.checked_sub(1).filter(|left| *left > 0);
            if faults.reset_on.is_none() {
                next = Some(Next::Reset);
            }
        }
        counted
    });
    if next.is_none() && shared.due_to_drop() {
        next = Some(Next::Drop);
    }
    next
}

/// Faults that answer with a status.
fn refused_on_demand(faults: &Faults) -> Result<(), Failure> {
    if faults.key_refused {
        return Err(Failure::KeyRefused);
    }
    if let Some(RateLimit { retry_after_s }) = faults.rate_limited {
        return Err(Failure::RateLimited { retry_after_s });
    }
    if faults.internal_error { Err(Failure::Internal) } else { Ok(()) }
}

enum Admitted {
    Taken(Ticket, Box<StreamJob>),
    /// Busy, told in a stream that has begun.
    RefusedLate(Box<StreamJob>),
}

fn admit(shared: &Arc<Shared>, prepared: Prepared) -> Result<Admitted, Failure> {
    let faults = shared.faults.borrow().clone();
    refused_on_demand(&faults)?;
    let persona = shared.options.persona;
    let Prepared { facts, request, prompt_hash } = prepared;
    let job = StreamJob { total: request.reply_tokens, facts, prompt_hash };
    // llama.cpp never refuses: there the model stops admitting and the request waits.
    let full = faults.full && persona != Persona::LlamaCpp;
    let refusal = if full {
        shared.count_refusal();
        Refusal::Busy
    } else {
        match shared.submit(request) {
            Ok(ticket) => {
                shared.ledger.note_taken(prompt_hash);
                return Ok(Admitted::Taken(ticket, Box::new(job)));
            }
            Err(refusal) => refusal,
        }
    };
    let late =
        persona == Persona::Sglang || persona == Persona::Vllm && shared.options.late_refusal;
    match refusal {
        Refusal::TooLong { tokens, limit } => Err(Failure::TooLong { tokens, limit }),
        Refusal::Busy if late && job.facts.ask.stream => Ok(Admitted::RefusedLate(Box::new(job))),
        Refusal::Busy => Err(Failure::Busy),
    }
}

/// A reply in one piece.
async fn unary(
    conn: &mut Conn,
    shared: &Arc<Shared>,
    head: &Head,
    job: StreamJob,
    mut ticket: Ticket,
    last: bool,
) -> Next {
    let persona = shared.options.persona;
    let ended = match shared.options.works_for_nobody {
        true => finished_for_nobody(&mut ticket).await,
        false => finished(conn, persona, &mut ticket).await,
    };
    let Some(progress) = ended else { return Next::Drop };
    drop(ticket);
    let api = job.facts.ask.api;
    let answer = if progress.overflowed {
        Answer::failure(persona, Some(api), &Failure::PoolExhausted)
    } else {
        complete(shared, head, &job, &progress.done)
    };
    if shared.faults.borrow().cut_whole {
        return send_half(conn, shared, &answer).await;
    }
    send(conn, shared, head, &answer, last).await
}

fn complete(shared: &Shared, head: &Head, job: &StreamJob, done: &Done) -> Answer {
    let persona = shared.options.persona;
    let shown = if job.facts.ask.api == Api::Embeddings { HASH_TOKENS } else { done.produced };
    let text = expected_text(job.prompt_hash, shown);
    let mut answer = Answer::json(persona, &whole(&job.facts, done, &text));
    if head.wants_load && persona == Persona::Vllm {
        let load = info::vllm_load_header(&shared.options, &shared.snapshot());
        answer.extra.push(("endpoint-load-metrics", load));
    }
    answer
}

/// Waits for the end of a request; none if the client left, or the engine went away under it.
async fn finished(conn: &mut Conn, persona: Persona, ticket: &mut Ticket) -> Option<Progress> {
    let mut left_at = None;
    loop {
        let progress = *ticket.progress.borrow_and_update();
        if progress.ended {
            return Some(progress);
        }
        tokio::select! {
            changed = ticket.progress.changed() => changed.ok()?,
            gone = conn.gone(), if left_at.is_none() => match (gone, persona.half_closed_grace_ms()) {
                (Gone::HalfClosed, grace_ms @ 1..) => {
                    left_at = Some(Instant::now() + Duration::from_millis(grace_ms));
                }
                _ => return None,
            },
            () = until(left_at) => return None,
        }
    }
}

/// The same without a look at the client.
async fn finished_for_nobody(ticket: &mut Ticket) -> Option<Progress> {
    ticket.progress.wait_for(|progress| progress.ended).await.ok().map(|progress| *progress)
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
