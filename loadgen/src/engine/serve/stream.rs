//! A streamed reply: events as tokens come, in chunks, with the head at the moment this engine sends it, and the faults that
//! break streams.

use std::io;
use std::sync::Arc;

use tokio::time::Duration;

use super::super::clock::{unix_ms, unix_us};
use super::super::core::Progress;
use super::super::errors::Failure;
use super::super::faults::CutHow;
use super::super::http::{Conn, Framing, Head, Reply, push_chunk, push_head};
use super::super::persona::{HeadTiming, Persona};
use super::super::shapes::events::Events;
use super::super::shapes::{self, Facts};
use super::super::shared::{Phase, Shared, Ticket};
use super::super::text::words::push_token;
use super::session::{Next, hold_head};

/// A request on its way to being answered.
pub(super) struct StreamJob {
    pub(super) facts: Facts,
    /// Tokens of the complete reply.
    pub(super) total: u32,
    pub(super) prompt_hash: u64,
}

/// Why a stream does not go on.
enum Stop {
    /// The client is gone, or the engine was restarted under it.
    Gone,
    /// A fault.
    Cut(CutHow),
    /// A fault: nothing more comes, and nothing ends.
    Stalled,
}

impl From<io::Error> for Stop {
    fn from(_: io::Error) -> Self {
        Stop::Gone
    }
}

/// The wire side of one stream.
struct Wire<'a> {
    conn: &'a mut Conn,
    shared: &'a Arc<Shared>,
    framing: Framing,
    close: bool,
    head_sent: bool,
    /// Events written.
    sent: u32,
    pending: Vec<u8>,
}

/// Streams a reply.
pub(super) async fn stream(
    conn: &mut Conn,
    shared: &Arc<Shared>,
    head: &Head,
    job: StreamJob,
    mut ticket: Ticket,
    last: bool,
) -> Next {
    let mut wire = Wire::new(conn, shared, head, last);
    let ended = relay(&mut wire, job, &mut ticket).await;
    if matches!(ended, Err(Stop::Stalled)) {
        // The request stays where it is until the client gives up.
        wire.conn.gone().await;
        return Next::Drop;
    }
    drop(ticket);
    wire.end(ended).await
}

/// Refuses a stream in the stream: status 200, then an error event.
pub(super) async fn refuse_stream(
    conn: &mut Conn,
    shared: &Arc<Shared>,
    head: &Head,
    job: StreamJob,
    last: bool,
) -> Next {
    let mut wire = Wire::new(conn, shared, head, last);
    let mut events = Events::default();
    Failure::Busy.push_events(&job.facts, &mut events);
    let ended = wire.write(&events).await;
    wire.end(ended).await
}

async fn relay(wire: &mut Wire<'_>, job: StreamJob, ticket: &mut Ticket) -> Result<(), Stop> {
    let timing = wire.shared.options.persona.head_timing();
    let mut tokens = Tokens::new(job, wire.shared.options.stamp_events);
    loop {
        let progress = *ticket.progress.borrow_and_update();
        let due = match timing {
            HeadTiming::AtOnce => true,
            HeadTiming::WithSlot => progress.started,
            HeadTiming::WithFirstEvent => false,
        };
        if due {
            wire.head().await?;
        }
        let events = tokens.events(&progress);
        if !events.is_empty() {
            wire.write(&events).await?;
        }
        if progress.ended {
            return Ok(());
        }
        tokio::select! {
            changed = ticket.progress.changed() => changed.map_err(|_| Stop::Gone)?,
            _ = wire.conn.gone() => return Err(Stop::Gone),
        }
    }
}

/// From progress to events.
struct Tokens {
    shape: Box<dyn shapes::Stream>,
    facts: Facts,
    prompt_hash: u64,
    total: u32,
    opened: bool,
    told: u32,
    stamped: bool,
}

impl Tokens {
    fn new(job: StreamJob, stamped: bool) -> Self {
        let StreamJob { facts, total, prompt_hash } = job;
        let shape = shapes::stream(facts.clone());
        Self { shape, facts, prompt_hash, total, opened: false, told: 0, stamped }
    }

    /// Events for what is new in `progress`.
    fn events(&mut self, progress: &Progress) -> Events {
        let mut events = Events::written_at(self.stamped.then(unix_us));
        let done = progress.done;
        if progress.prefilled && !self.opened {
            self.opened = true;
            self.shape.open(&done, &mut events);
        }
        let mut text = String::with_capacity(8);
        while self.told < done.produced {
            text.clear();
            push_token(self.prompt_hash, self.told, &mut text);
            let last = self.told + 1 == self.total;
            self.shape.token(self.told, &text, last, &mut events);
            self.told += 1;
        }
        if progress.overflowed {
            Failure::PoolExhausted.push_events(&self.facts, &mut events);
        } else if progress.ended {
            self.shape.close(&done, &mut events);
        }
        events
    }
}

impl<'a> Wire<'a> {
    fn new(conn: &'a mut Conn, shared: &'a Arc<Shared>, head: &Head, last: bool) -> Self {
        let stopping = shared.life.borrow().phase != Phase::Running;
        let framing = if head.old { Framing::UntilClose } else { Framing::Chunked };
        let close = last || stopping;
        Self { conn, shared, framing, close, head_sent: false, sent: 0, pending: Vec::new() }
    }

    /// Writes the head unless it was written.
    async fn head(&mut self) -> Result<(), Stop> {
        if self.head_sent {
            return Ok(());
        }
        self.head_sent = true;
        hold_head(self.shared).await;
        let persona = self.shared.options.persona;
        let content_type = match persona {
            Persona::LlamaCpp => "text/event-stream",
            Persona::Vllm | Persona::Sglang | Persona::OpenAi => "text/event-stream; charset=utf-8",
        };
        let mut bytes = Vec::with_capacity(256);
        push_head(
            &Reply {
                persona,
                status: 200,
                content_type,
                framing: self.framing,
                extra: &[],
                close: self.close,
                now: unix_ms() / 1_000,
            },
            &mut bytes,
        );
        Ok(self.conn.write(&bytes).await?)
    }

    /// Writes events, the head before them, until a fault stops it.
    async fn write(&mut self, events: &Events) -> Result<(), Stop> {
        self.head().await?;
        for event in events.iter() {
            if let Some(how) = self.shared.take_cut(self.sent) {
                if how == CutHow::InsideEvent {
                    self.push_half(event);
                }
                self.flush().await?;
                return Err(Stop::Cut(how));
            }
            if self
                .shared
                .faults
                .borrow()
                .stall_after_events
                .is_some_and(|after| self.sent >= after)
            {
                self.flush().await?;
                return Err(Stop::Stalled);
            }
            match self.framing {
                Framing::Chunked => push_chunk(event, &mut self.pending),
                Framing::Length(_) | Framing::UntilClose => self.pending.extend_from_slice(event),
            }
            self.sent += 1;
        }
        self.flush().await
    }

    /// Half an event in a chunk that promised a whole one.
    fn push_half(&mut self, event: &[u8]) {
        if self.framing == Framing::Chunked {
            self.pending.extend_from_slice(format!("{:x}\r\n", event.len()).as_bytes());
        }
        self.pending.extend_from_slice(&event[..event.len() / 2]);
    }

    async fn flush(&mut self) -> Result<(), Stop> {
        // The buffer is not kept: a slow stream should cost nothing between its tokens.
        let bytes = std::mem::take(&mut self.pending);
        Ok(self.conn.write(&bytes).await?)
    }

    /// Ends the body, and says what becomes of the connection.
    async fn end(self, ended: Result<(), Stop>) -> Next {
        match ended {
            Err(Stop::Gone | Stop::Stalled) => return Next::Drop,
            Err(Stop::Cut(CutHow::Reset)) => return Next::Reset,
            Err(Stop::Cut(CutHow::Close | CutHow::InsideEvent)) => return Next::Close,
            Ok(()) => {}
        }
        if self.framing == Framing::Chunked && self.conn.write(b"0\r\n\r\n").await.is_err() {
            return Next::Drop;
        }
        if self.shared.options.persona.closes_after_stream() {
            tokio::time::sleep(Duration::from_micros(fastrand::u64(500..4_000))).await;
            return Next::Drop;
        }
        let stopping = self.shared.life.borrow().phase != Phase::Running;
        if self.close || stopping || self.framing == Framing::UntilClose {
            Next::Close
        } else {
            Next::Keep
        }
    }
}
