//! One request and its reply, from the intended send time to the last byte.
//!
//! Measures and judges; every way out is an [`Outcome`] in the recorder. Nothing is sent twice.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::time::{Instant, timeout};

use super::Error;
use super::body::{Rendered, Renderer};
use super::cancel::{self, Cancel};
use super::fault::{Fault, FaultKind};
use super::http::{Connection, Lease, Pool, Target};
use super::options::Options;
use super::reply::{Reply, error_body_text, read_whole};
use super::seed::{self, Stream};
use super::silence::{Pace, Silence};
use super::sse::Parser;
use super::stats::{End, Outcome, Recorder};
use crate::report::{ByteCounts, TokenCounts};

/// Largest reply kept that does not come as a stream.
const WHOLE_BYTES_MAX: usize = 64 << 20;

/// Gaps between tokens are handed to the recorder in batches of this many.
const GAPS_MAX: usize = 256;

/// Names the backend that answered; set by the proxy under test.
const BACKEND_HEADER: &str = "x-shearwater-backend";

/// One request about to be sent.
#[derive(Debug)]
pub(crate) struct Ask {
    /// Position among all requests of the workload.
    pub(crate) number: u64,
    /// Turn of its conversation, from 0.
    pub(crate) turn: u32,
    /// Intended send time, from which latency counts.
    pub(crate) due: Instant,
    pub(crate) rendered: Rendered,
    pub(crate) max_tokens: u32,
    /// Whether the reply's text is wanted for a next turn.
    pub(crate) keep_text: bool,
}

/// All that requests share: connections, prompts, measurements.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) options: Options,
    pub(crate) renderer: Renderer,
    pub(crate) recorder: Recorder,
    pools: Vec<Pool>,
    /// Headers of every request.
    headers: HeaderMap,
}

/// What is known of a request while it runs, so that a hang-up or a failure loses nothing.
#[derive(Debug, Default)]
struct Progress {
    status: Option<u16>,
    backend: Option<String>,
    first_token: Option<Duration>,
    connect: Option<Duration>,
    tokens: Option<TokenCounts>,
    bytes: ByteCounts,
    text: String,
}

impl Client {
    /// Resolves the addresses; everything else is already known.
    pub(crate) fn new(options: Options) -> Result<Client, Error> {
        let slow = options.slow_reader_bytes_per_s.is_some();
        let pool = |url: &String| Ok(Pool::new(Target::resolve(url)?, &options.connections, slow));
        Ok(Client {
            pools: options.urls.iter().map(pool).collect::<Result<_, Error>>()?,
            headers: common_headers(&options)?,
            renderer: Renderer::new(&options),
            recorder: Recorder::new(Instant::now()),
            options,
        })
    }

    /// Sends `ask` and reads its reply. Returns the assistant's text of a whole reply.
    pub(crate) async fn exchange(&self, mut ask: Ask) -> Option<String> {
        let begin = Instant::now();
        self.recorder.began(ask.number, begin);
        let mut progress = Progress::default();
        let end = self.run(&mut ask, &mut progress).await;
        let outcome = Outcome {
            end,
            turn: ask.turn,
            status: progress.status,
            backend: progress.backend,
            first_token: progress.first_token,
            total: ask.due.elapsed(),
            issue_lag: begin.saturating_duration_since(ask.due),
            connect: progress.connect,
            tokens: progress.tokens,
            bytes: progress.bytes,
        };
        self.recorder.ended(ask.number, &outcome);
        (outcome.end == End::Complete).then_some(progress.text)
    }

    /// Runs the attempt under the plan of its client to hang up. Dropping the attempt closes the
    /// connection.
    async fn run(&self, ask: &mut Ask, progress: &mut Progress) -> End {
        let mut rng = seed::rng(self.options.seed, Stream::Request, ask.number);
        let (fraction, prefill_max) = (self.options.cancel_fraction, self.options.cancel_prefill);
        let plan = cancel::plan(&mut rng, fraction, prefill_max, ask.max_tokens);
        let attempt = self.attempt(ask, progress, plan);
        let ended = match plan {
            Cancel::AfterDelay(delay) => timeout(delay, attempt).await.unwrap_or(Ok(Ended::HungUp)),
            _ => attempt.await,
        };
        match ended {
            Ok(Ended::Whole) => End::Complete,
            Ok(Ended::HungUp) if progress.first_token.is_some() => End::CancelledMidStream,
            Ok(Ended::HungUp) => End::CancelledInPrefill,
            Err(fault) => End::Failed(fault),
        }
    }

    async fn attempt(
        &self,
        ask: &mut Ask,
        progress: &mut Progress,
        plan: Cancel,
    ) -> Result<Ended, Fault> {
        let begin = Instant::now();
        let mut silence = Silence::new(self.options.silence);
        let pool = &self.pools[ask.number as usize % self.pools.len()];
        let lease = silence.bound(pool.lease(&self.recorder, ask.number)).await;
        let mut lease = lease.ok_or_else(|| self.silent("connection"))??;
        progress.connect = Some(begin.elapsed());
        progress.bytes.sent = ask.rendered.body.len() as u64;
        let request = self.request(&pool.target, &mut ask.rendered)?;
        let response = silence.bound(lease.connection.send(request)).await;
        let response = response.ok_or_else(|| self.silent("reply"))??;
        progress.head_seen(&response);
        let mut reading = Reading { client: self, ask, progress, silence, plan };
        let ended = reading.read(&mut lease, response).await?;
        if ended == Ended::Whole {
            pool.give_back(lease).await;
        }
        Ok(ended)
    }

    fn request(
        &self,
        target: &Target,
        rendered: &mut Rendered,
    ) -> Result<Request<Full<Bytes>>, Fault> {
        let body = Full::new(Bytes::from(std::mem::take(&mut rendered.body)));
        let mut request = Request::new(body);
        let path = format!("{}{}", target.prefix, rendered.path);
        *request.method_mut() = Method::POST;
        *request.uri_mut() =
            path.parse().map_err(|_| Fault::new(FaultKind::Connect, "the path is no URI"))?;
        *request.headers_mut() = self.headers.clone();
        request.headers_mut().insert(HOST, target.host.clone());
        for (name, value) in &rendered.headers {
            // A header given on the command line takes the place of the generated one.
            if let (Ok(value), false) =
                (HeaderValue::from_str(value), request.headers().contains_key(*name))
            {
                request.headers_mut().insert(HeaderName::from_static(name), value);
            }
        }
        Ok(request)
    }

    fn silent(&self, waited_for: &str) -> Fault {
        let limit_s = self.options.silence.as_secs_f64();
        Fault::new(FaultKind::Timeout, format!("{limit_s} s without a {waited_for}"))
    }
}

/// How an attempt that did not fail came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Whole,
    HungUp,
}

impl Progress {
    fn head_seen(&mut self, response: &Response<Incoming>) {
        self.status = Some(response.status().as_u16());
        let backend = response.headers().get(BACKEND_HEADER);
        self.backend = backend.and_then(|name| name.to_str().ok()).map(str::to_owned);
    }
}

/// A reply being read.
struct Reading<'a> {
    client: &'a Client,
    ask: &'a Ask,
    progress: &'a mut Progress,
    silence: Silence,
    plan: Cancel,
}

impl Reading<'_> {
    async fn read(
        &mut self,
        lease: &mut Lease<'_>,
        response: Response<Incoming>,
    ) -> Result<Ended, Fault> {
        let (status, options) = (response.status(), &self.client.options);
        let events = is_event_stream(response.headers());
        let mut body = response.into_body();
        if status != StatusCode::OK {
            let text = self.whole(&mut lease.connection, &mut body).await.unwrap_or_default();
            let reason = format!("{}: {}", status.as_u16(), error_body_text(&text));
            return Err(Fault::new(FaultKind::Status, reason));
        }
        if options.stream && !events {
            return Err(Fault::new(FaultKind::BadEvent, "the reply is no event stream"));
        }
        if options.stream {
            return self.stream(&mut lease.connection, &mut body).await;
        }
        let whole = self.whole(&mut lease.connection, &mut body).await?;
        let (text, tokens) = read_whole(options.dialect, &whole)?;
        self.progress.tokens = tokens;
        self.progress.text = text;
        Ok(Ended::Whole)
    }

    async fn stream(
        &mut self,
        connection: &mut Connection,
        body: &mut Incoming,
    ) -> Result<Ended, Fault> {
        let mut reply = Reply::new(self.client.options.dialect, self.ask.keep_text);
        let mut parser = Parser::default();
        let mut gaps = Gaps::default();
        let mut pace = self.client.options.slow_reader_bytes_per_s.map(Pace::new);
        let ended = loop {
            let piece = match self.piece(connection, body).await {
                Some(Ok(piece)) => piece,
                // A fault told by the stream itself says more than the way the connection ended.
                Some(Err(fault)) => break Err(reply.fault().unwrap_or(fault)),
                None => break reply.judge(parser.has_rest()).map(|()| Ended::Whole),
            };
            let events_before = reply.content_events;
            if parser.feed(&piece, |event| reply.take(event)).is_err() {
                break Err(Fault::new(FaultKind::BadEvent, "an event of unbounded size"));
            }
            self.content_seen(&mut gaps, reply.content_events - events_before);
            if matches!(self.plan, Cancel::AfterEvents(last) if reply.content_events >= last) {
                break Ok(Ended::HungUp);
            }
            if let Some(pace) = &mut pace {
                pace.after(piece.len()).await;
            }
        };
        self.client.recorder.gaps(self.ask.number, &gaps.micros);
        self.progress.tokens = reply.tokens;
        self.progress.text = reply.text;
        ended
    }

    /// Takes the time of `count` content events that arrived together.
    fn content_seen(&mut self, gaps: &mut Gaps, count: u32) {
        if count == 0 {
            return;
        }
        let now = Instant::now();
        if self.progress.first_token.is_none() {
            self.progress.first_token = Some(now.saturating_duration_since(self.ask.due));
        }
        gaps.add(now, count);
        if gaps.micros.len() >= GAPS_MAX {
            self.client.recorder.gaps(self.ask.number, &gaps.micros);
            gaps.micros.clear();
        }
    }

    async fn whole(
        &mut self,
        connection: &mut Connection,
        body: &mut Incoming,
    ) -> Result<Vec<u8>, Fault> {
        let mut whole = Vec::new();
        while let Some(piece) = self.piece(connection, body).await {
            whole.extend_from_slice(&piece?);
            if whole.len() > WHOLE_BYTES_MAX {
                return Err(Fault::new(FaultKind::Framing, "a reply of unbounded size"));
            }
        }
        Ok(whole)
    }

    async fn piece(
        &mut self,
        connection: &mut Connection,
        body: &mut Incoming,
    ) -> Option<Result<Bytes, Fault>> {
        match self.silence.bound(connection.piece(body)).await {
            Some(piece) => {
                if let Some(Ok(piece)) = &piece {
                    self.progress.bytes.received += piece.len() as u64;
                }
                piece
            }
            None => Some(Err(self.client.silent("byte"))),
        }
    }
}

/// Times between content events, until the recorder takes them.
#[derive(Debug, Default)]
struct Gaps {
    last: Option<Instant>,
    micros: Vec<u32>,
}

impl Gaps {
    /// Events that arrive in one piece have no time between them.
    fn add(&mut self, now: Instant, count: u32) {
        if let Some(last) = self.last.replace(now) {
            let gap = now.saturating_duration_since(last).as_micros();
            self.micros.push(u32::try_from(gap).unwrap_or(u32::MAX));
        }
        self.micros.extend(std::iter::repeat_n(0, count as usize - 1));
    }
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    content_type.is_some_and(|value| value.starts_with(b"text/event-stream"))
}

fn common_headers(options: &Options) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::new();
    for (name, value) in &options.headers {
        let refuse = |reason: String| Error::Option { option: "--header", reason };
        let name_read = HeaderName::from_bytes(name.as_bytes());
        let name = name_read.map_err(|error| refuse(format!("{name:?}: {error}")))?;
        let value = HeaderValue::from_str(value);
        let value = value.map_err(|error| refuse(format!("{name}: {error}")))?;
        headers.append(name, value);
    }
    let json = HeaderValue::from_static("application/json");
    headers.entry(CONTENT_TYPE).or_insert(json);
    if options.api_key.as_deref().is_some_and(|key| HeaderValue::from_str(key).is_err()) {
        let reason = "holds characters a header cannot carry".to_owned();
        return Err(Error::Option { option: "--api-key", reason });
    }
    Ok(headers)
}
