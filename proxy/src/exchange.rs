//! One request and its reply: read the body, plan, find a backend, hold, relay, record.
//!
//! The order here is the data's way through the proxy. Each step either hands on or ends the exchange
//! with an answer in the caller's dialect; whatever happens, one record is left behind.

use std::pin::{Pin, pin};
use std::rc::Rc;

use bytes::Bytes;
use index::BackendId;
use index::breaker::Pass;

use crate::answer::{self, RequestId, Situation};
use crate::api::Api;
use crate::body::{self, BodyBounds, BodyError};
use crate::classify::ReplyClass;
use crate::client::{Client, ClientLost};
use crate::clock;
use crate::http::{
    CONTINUE, Downstream, RequestFraming, RequestHead, Version, write_response_head,
};
use crate::limits::{MODEL_NAME_BYTES_MAX, PATH_BYTES_MAX};
use crate::memory::Charge;
use crate::metrics::Count;
use crate::place::Slot;
use crate::plan::{self, Plan, Planned, Views};
use crate::published::Phase;
use crate::record::{End, Note, Record};
use crate::relay::{Relay, Relayed, Silence};
use crate::reply::Reply;
use crate::search::Found;
use crate::session::Next;
use crate::shard::Shard;
use crate::upstream::{Held, Moments};

/// Serves the request whose head was read.
pub async fn serve(shard: &Rc<Shard>, client: &Client, head: &RequestHead) -> Next {
    let mut exchange = Exchange::begin(shard, client, head);
    let next = exchange.run().await;
    exchange.finish();
    next
}

pub(crate) struct Exchange<'s> {
    pub(crate) shard: &'s Rc<Shard>,
    pub(crate) client: &'s Client,
    pub(crate) head: &'s RequestHead,
    pub(crate) api: Api,
    pub(crate) to: Downstream,
    pub(crate) request_id: RequestId,
    pub(crate) record: Box<Record>,
    /// The memory its body takes.
    memory: Charge,
}

impl<'s> Exchange<'s> {
    fn begin(shard: &'s Rc<Shard>, client: &'s Client, head: &'s RequestHead) -> Exchange<'s> {
        let api = Api::of(head.method_bytes(), head.target());
        let id = shard.next_request_id();
        shard.retries.note_request();
        // A process that is leaving tells its clients to connect elsewhere next time.
        let keep_alive = head.keep_alive() && shard.shared.phase() < Phase::Leaving;
        Exchange {
            shard,
            client,
            head,
            api,
            to: Downstream { version: head.version(), keep_alive },
            request_id: RequestId::of(id),
            record: Box::new(new_record(shard, head, api, id)),
            memory: Charge::new(&shard.memory),
        }
    }

    async fn run(&mut self) -> Next {
        let body = match self.read_body().await {
            Ok(body) => body,
            Err(error) => return self.without_body(error).await,
        };
        self.record.request_bytes = body.len() as u64;
        if self.api == Api::Models {
            return self.list_models().await;
        }
        match self.plan(&body) {
            Planned::Forward(plan) if !self.holds(&plan, body.len()) => {
                self.answer(Situation::NoMemory).await
            }
            Planned::Forward(plan) => self.forward(plan, Bytes::from(body)).await,
            Planned::Answer(situation) => self.answer(situation).await,
        }
    }

    /// Whether there is memory for what a compressed body was unpacked to, if that is what is sent.
    fn holds(&mut self, plan: &Plan, body_bytes: usize) -> bool {
        let unpacked = plan.mending.as_ref().and_then(|mending| mending.unpacked.as_ref());
        unpacked.is_none_or(|unpacked| self.memory.resize(body_bytes + unpacked.len()))
    }

    fn plan(&self, body: &[u8]) -> Planned {
        let mut routes = self.shard.routes.borrow_mut();
        let mut views = Views {
            shared: self.shard.shared,
            routes: routes.load(),
            scratch: &mut self.shard.scratch.borrow_mut(),
        };
        plan::plan(&mut views, self.api, &|name| self.head.header(name), body)
    }

    /// Reads the body and notes when it was whole.
    async fn read_body(&mut self) -> Result<Vec<u8>, BodyError> {
        let reads = self.client.reads();
        let body = self.read_framed().await?;
        // A body that came with its head was whole at the same moment.
        let waited = self.client.reads() != reads;
        self.record.times.body = Some(if waited { clock::now() } else { self.record.times.head });
        Ok(body)
    }

    async fn read_framed(&mut self) -> Result<Vec<u8>, BodyError> {
        let config = &self.shard.shared.config;
        let framing = self.head.framing();
        let bytes_max = self.shard.shared.body_bytes_max();
        if let RequestFraming::Length(length) = framing {
            // Said before the client is told to go on.
            body::check_length(length, bytes_max, &self.memory)?;
        }
        if self.head.expects_continue() && framing != RequestFraming::None {
            self.say_continue().await.map_err(BodyError::Lost)?;
        }
        let bounds = BodyBounds { bytes_max, idle_ms: config.timeouts.body_idle_ms };
        let spare = &self.shard.spare_bodies;
        body::read(self.client, framing, bounds, &mut self.memory, spare).await
    }

    /// A client that already sent its body does not wait to be told to.
    async fn say_continue(&self) -> Result<(), ClientLost> {
        if !self.client.inbox_is_empty() || self.head.version() == Version::Http10 {
            return Ok(());
        }
        let stall = self.shard.shared.config.timeouts.write_stall_ms;
        self.client.write(CONTINUE, stall).await.map(drop)
    }

    async fn without_body(&mut self, error: BodyError) -> Next {
        let situation = match error {
            BodyError::Lost(lost) => {
                self.record.end = end_of(lost);
                return Next::Close;
            }
            BodyError::NoMemory => Situation::NoMemory,
            BodyError::TooLarge => Situation::BodyTooLarge,
            BodyError::Malformed => Situation::BadRequest,
        };
        self.memory.clear();
        self.to.keep_alive = false;
        self.answer(situation).await;
        Next::Linger
    }

    /// Answers by ourselves. The record says so.
    async fn answer(&mut self, situation: Situation) -> Next {
        if situation == Situation::NoMemory {
            self.shard.stats.add(Count::BodiesRefused, 1);
        }
        self.tell(situation, "").await
    }

    /// The same in an engine's own words, as far as it had any.
    async fn tell(&mut self, situation: Situation, words: &str) -> Next {
        let head_only = self.head.method_bytes() == b"HEAD";
        let id = self.request_id.as_str();
        let answer = answer::told(situation, self.api.dialect(), id, words);
        self.record.status = answer.status;
        let callers = answer::status::is_callers(answer.status);
        self.record.end = if callers { End::Refused } else { End::OwnAnswer };
        let mut out = Vec::new();
        answer.write(&mut out, self.to, head_only);
        self.write_out(out).await
    }

    async fn list_models(&mut self) -> Next {
        let anthropic = self.head.header("anthropic-version").is_some();
        let mut out = Vec::new();
        {
            let mut routes = self.shard.routes.borrow_mut();
            let routes = routes.load();
            let body = if anthropic { &routes.models_anthropic } else { &routes.models_openai };
            let head_only = self.head.method_bytes() == b"HEAD";
            answer::write_models(&mut out, body, self.to, self.request_id.as_str(), head_only);
        }
        self.record.status = answer::status::OK;
        self.record.end = End::Complete;
        self.write_out(out).await
    }

    async fn write_out(&mut self, out: Vec<u8>) -> Next {
        let stall = self.shard.shared.config.timeouts.write_stall_ms;
        self.record.reply_bytes = out.len() as u64;
        match self.client.write(out, stall).await {
            Ok(_) if self.to.keep_alive => Next::Request,
            Ok(_) => Next::Close,
            Err(lost) => {
                self.record.end = end_of(lost);
                Next::Close
            }
        }
    }

    async fn forward(&mut self, plan: Plan, body: Bytes) -> Next {
        self.record.model = plan.model.as_deref().map(|model| bounded(model, MODEL_NAME_BYTES_MAX));
        self.record.canonical_bytes = plan.canonical_bytes;
        self.record.conversation = plan.conversation;
        if plan.opaque && plan::wanted(self.shard.shared).any() {
            self.shard.stats.add(Count::BodiesOpaque, 1);
        }
        let mut gone = pin!(self.client.left());
        let found = self.find(&plan, &body, gone.as_mut()).await;
        // From here on nothing is sent again, so the body's memory is given back before the reply.
        self.shard.spare_bodies.keep(body, clock::recent().millis());
        self.memory.clear();
        self.record.blocks = plan.blocks;
        match found {
            Found::Reply(held, slot, backend) => self.relay(held, slot, backend, gone).await,
            Found::Answer(situation) => self.answer(situation).await,
            Found::Told(situation, words) => self.tell(situation, &words).await,
            Found::ClientGone => {
                self.record.end = End::ClientGone;
                Next::Close
            }
        }
    }

    async fn relay<W: Future<Output = ()>>(
        &mut self,
        mut held: Box<Held>,
        slot: Option<Slot>,
        backend: BackendId,
        gone: Pin<&mut W>,
    ) -> Next {
        let raw = std::mem::take(&mut held.raw);
        let Held { socket, head, reply, moments, memory, undecided, .. } = &mut *held;
        self.note_moments(*moments);
        self.record.status = head.status();
        self.record.streamed = reply.is_event_stream();
        let framing = self.to.framing_for(head.framing());
        if framing == crate::http::ReplyFraming::UntilClose {
            self.to.keep_alive = false;
        }
        let out = self.reply_head(head, &raw, backend, framing);
        let rewriting = reply.hides();
        let config = &self.shard.shared.config;
        let every_ms = config.stream.keepalive_ms.filter(|_| reply.bears_signs_of_life(head));
        let idle_ms = config.timeouts.stream_idle_ms;
        let relay = Relay {
            silence: Silence::new(every_ms, idle_ms, reply.events(), clock::recent()),
            shard: self.shard,
            client: self.client,
            gone,
            upstream: socket,
            backend,
            reply,
            framing,
            dialect: self.api.dialect(),
            memory,
            rewriting,
            bytes: 0,
            first_event: None,
        };
        // What a caller did wrong was not prefilled, and how soon that was said tells nothing of the engine's speed.
        let prefilled = slot.as_ref().filter(|_| !answer::status::is_callers(head.status()));
        let relayed = relay.run(out, raw, prefilled, *undecided).await;
        if let Some(slot) = slot.as_ref().filter(|_| relayed.end.is_whole()) {
            slot.note_whole();
        }
        self.note_if_ran_out(backend, &held.reply);
        if let Some(pass) = held.pass.take() {
            tell_breaker(pass, relayed.end, &held.reply);
        }
        let reply = &held.reply;
        self.note_cached(slot.as_ref(), reply);
        drop(slot);
        self.record.events = reply.events();
        self.record.usage = reply.usage();
        self.pool(*held, backend, &relayed);
        self.note_end(relayed)
    }

    /// While the request still holds its place: what is in flight is what was too much.
    pub(crate) fn note_if_ran_out(&self, backend: BackendId, reply: &Reply) {
        let placed = self.record.times.placed;
        if let Some(placed) = placed.filter(|_| reply.says_pool_ran_out()) {
            self.shard.shared.note_ran_out(backend, placed.millis(), clock::now().millis());
        }
    }

    /// What was found of a prompt that gave way tells what its engine keeps.
    fn note_cached(&self, slot: Option<&Slot>, reply: &Reply) {
        let predicted = self.record.decision.as_ref().map(|it| it.predicted_cached_tokens);
        let cached = reply.usage().and_then(|usage| usage.cached_tokens);
        if let (Some(slot), Some(predicted), Some(cached)) = (slot, predicted, cached) {
            slot.note_cached(predicted, cached);
        }
    }

    fn reply_head(
        &self,
        head: &crate::http::ResponseHead,
        held: &[u8],
        backend: BackendId,
        framing: crate::http::ReplyFraming,
    ) -> Vec<u8> {
        // What is held goes out behind it in one piece.
        let mut out = Vec::with_capacity(1024 + held.len());
        let name = self.shard.shared.upstream(backend).map_or("", |upstream| &upstream.name);
        let extra = [
            ("x-shearwater-backend", name.as_bytes()),
            ("x-shearwater-request-id", self.request_id.as_bytes()),
        ];
        let extra = if self.shard.shared.config.response_headers { &extra[..] } else { &[] };
        write_response_head(&mut out, head, self.to, framing, extra);
        out
    }

    /// Keeps the upstream connection if nothing speaks against using it again.
    fn pool(&self, held: Held, backend: BackendId, relayed: &Relayed) {
        let Held { socket, head, .. } = held;
        let Some(upstream) = self.shard.shared.upstream(backend) else { return };
        let kept = !self.record.streamed || upstream.kind().keeps_connection_after_stream();
        if relayed.upstream_reusable
            && kept
            && head.keep_alive()
            && head.keep_alive_max() != Some(0)
        {
            let ours = self.shard.shared.config.timeouts.upstream_idle_ms;
            // An engine that announces a shorter time is believed, with a second of margin.
            let theirs = head
                .keep_alive_timeout_s()
                .map_or(u64::MAX, |s| u64::from(s.saturating_sub(1)) * 1000);
            self.shard.pools.put(backend, socket, clock::recent().millis(), ours.min(theirs));
            self.shard.pools.keep_at_most(self.shard.idle_room());
        }
        self.shard.keep_head(head);
    }

    fn note_moments(&mut self, moments: Moments) {
        let times = &mut self.record.times;
        times.connected = moments.connected;
        times.sent = moments.sent;
        times.reply_head = moments.reply_head;
        times.first_byte = moments.first_byte;
    }

    fn note_end(&mut self, relayed: Relayed) -> Next {
        let times = &mut self.record.times;
        times.first_byte = times.first_byte.or(relayed.first_event);
        self.record.end = relayed.end;
        self.record.reply_bytes = relayed.bytes;
        if relayed.client_reusable && self.to.keep_alive { Next::Request } else { Next::Close }
    }

    fn finish(mut self) {
        self.record.times.end = clock::now();
        self.shard.shared.note(Note::Ended(self.record));
    }
}

/// What a reply came to that had begun when its request was judged.
fn tell_breaker(pass: Pass<'_>, end: End, reply: &Reply) {
    let now = clock::recent().millis();
    match end {
        End::Complete => pass.succeeded(now),
        End::UpstreamBroke | End::UpstreamStalled => pass.failed(now, 0),
        End::EngineError if reply.class() == ReplyClass::Broken => pass.failed(now, 0),
        // Being full, giving up and losing a client say nothing of it.
        _ => {}
    }
}

fn method_name(method: crate::http::Method) -> &'static str {
    use crate::http::Method;
    match method {
        Method::Get => "GET",
        Method::Head => "HEAD",
        Method::Post => "POST",
        Method::Put => "PUT",
        Method::Patch => "PATCH",
        Method::Delete => "DELETE",
        Method::Options => "OPTIONS",
        _ => "OTHER",
    }
}

fn end_of(lost: ClientLost) -> End {
    match lost {
        ClientLost::Gone => End::ClientGone,
        ClientLost::Stalled => End::ClientStalled,
    }
}

fn bounded(text: &str, bytes_max: usize) -> Box<str> {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().into()
}

fn new_record(shard: &Shard, head: &RequestHead, api: Api, request_id: u64) -> Record {
    // A target of other bytes was refused; nothing is lost here.
    let path = str::from_utf8(head.path()).unwrap_or_default();
    let path = bounded(path, PATH_BYTES_MAX);
    let what = (api, method_name(head.method()), path);
    Record::of_head(request_id, shard.number, what, clock::now())
}
