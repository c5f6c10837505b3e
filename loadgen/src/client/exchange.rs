//! One request and its reply, from the intended send time to the last byte.
//!
//! Measures and judges; every way out is an [`Outcome`] in the recorder. Nothing is sent twice.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request};
use tokio::time::{Instant, timeout};
use xxhash_rust::xxh3::xxh3_64;

use super::Error;
use super::body::{Rendered, Renderer};
use super::cancel::{self, Cancel};
use super::fault::{Fault, FaultKind};
use super::http::{Pool, Target};
use super::options::Options;
use super::reading::{Ended, Progress, Reading};
use super::recorder::Recorder;
use super::seed::{self, Stream};
use super::silence::Silence;
use super::tally::{End, Outcome};
use crate::engine::clock::unix_us;

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
    /// The wall clock's times, in microseconds, at which an event is written whose age counts.
    pub(crate) ages_within: Range<u64>,
    pools: Vec<Pool>,
    /// Headers of every request.
    headers: HeaderMap,
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
            ages_within: from_now(&options.ages_within),
            options,
        })
    }

    /// Sends `ask`, which the caller has counted as begun, and reads its reply. Returns the
    /// assistant's text of a whole reply.
    pub(crate) async fn exchange(&self, mut ask: Ask) -> Option<String> {
        let begin = Instant::now();
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
            digest: progress.digest,
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
        progress.digest = xxh3_64(ask.rendered.body.as_bytes());
        let request = self.request(&pool.target, &mut ask.rendered)?;
        let response = silence.bound(lease.connection.send(request)).await;
        let response = response.ok_or_else(|| self.silent("reply"))??;
        progress.head_seen(&response);
        let mut reading = Reading { client: self, ask, progress, silence, plan };
        let ended = reading.read(&mut lease.connection, response).await?;
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

    pub(super) fn silent(&self, waited_for: &str) -> Fault {
        let limit_s = self.options.silence.as_secs_f64();
        Fault::new(FaultKind::Timeout, format!("{limit_s} s without a {waited_for}"))
    }
}

/// A span of time from the start as times of the wall clock, microseconds.
fn from_now(span: &Range<Duration>) -> Range<u64> {
    let now = unix_us();
    let at =
        |after: Duration| now.saturating_add(u64::try_from(after.as_micros()).unwrap_or(u64::MAX));
    at(span.start)..at(span.end)
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
