//! Reading one reply: times, counts, the verdict.
//!
//! It reads what comes, as fast as it is allowed to, and never asks for anything again.

use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Response, StatusCode};
use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::cancel::Cancel;
use super::exchange::{Ask, Client};
use super::fault::{Fault, FaultKind};
use super::http::Connection;
use super::reply::{Reply, error_body_text, read_whole};
use super::silence::{Pace, Silence};
use super::sse::{Event, Parser};
use crate::engine::clock::unix_us;
use crate::report::{ByteCounts, TokenCounts};

/// Largest reply kept that does not come as a stream.
const WHOLE_BYTES_MAX: usize = 64 << 20;

/// Gaps between tokens are handed to the recorder in batches of this many.
const GAPS_MAX: usize = 256;

/// Names the backend that answered; set by the proxy under test.
const BACKEND_HEADER: &str = "x-shearwater-backend";

/// What is known of a request while it runs, so that a hang-up or a failure loses nothing.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) status: Option<u16>,
    pub(super) backend: Option<String>,
    pub(super) first_token: Option<Duration>,
    pub(super) connect: Option<Duration>,
    pub(super) tokens: Option<TokenCounts>,
    pub(super) bytes: ByteCounts,
    pub(super) text: String,
    /// Hash of the request's body, then of the reply's text chained to it.
    pub(super) digest: u64,
}

impl Progress {
    pub(super) fn head_seen(&mut self, response: &Response<Incoming>) {
        self.status = Some(response.status().as_u16());
        let backend = response.headers().get(BACKEND_HEADER);
        self.backend = backend.and_then(|name| name.to_str().ok()).map(str::to_owned);
    }
}

/// How an attempt that did not fail came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Whole,
    HungUp,
}

/// A reply being read.
pub(super) struct Reading<'a> {
    pub(super) client: &'a Client,
    pub(super) ask: &'a Ask,
    pub(super) progress: &'a mut Progress,
    pub(super) silence: Silence,
    pub(super) plan: Cancel,
}

impl Reading<'_> {
    /// Reads the reply to its end, or to the event at which the client hangs up.
    pub(super) async fn read(
        &mut self,
        connection: &mut Connection,
        response: Response<Incoming>,
    ) -> Result<Ended, Fault> {
        let (status, options) = (response.status(), &self.client.options);
        let events = is_event_stream(response.headers());
        let mut body = response.into_body();
        if status != StatusCode::OK {
            let text = self.whole(connection, &mut body).await.unwrap_or_default();
            let reason = format!("{}: {}", status.as_u16(), error_body_text(&text));
            return Err(Fault::new(FaultKind::Status, reason));
        }
        if options.stream && !events {
            return Err(Fault::new(FaultKind::BadEvent, "the reply is no event stream"));
        }
        if options.stream {
            return self.stream(connection, &mut body).await;
        }
        let whole = self.whole(connection, &mut body).await?;
        let (text, tokens) = read_whole(options.dialect, &whole)?;
        self.progress.tokens = tokens;
        self.progress.digest = xxh3_64_with_seed(text.as_bytes(), self.progress.digest);
        self.progress.text = text;
        Ok(Ended::Whole)
    }

    async fn stream(
        &mut self,
        connection: &mut Connection,
        body: &mut Incoming,
    ) -> Result<Ended, Fault> {
        let mut reply =
            Reply::new(self.client.options.dialect, self.ask.keep_text, self.progress.digest);
        let mut parser = Parser::default();
        let (mut gaps, mut delays) = (Gaps::default(), Vec::new());
        let counts = |written: &u64| self.client.ages_within.contains(written);
        let mut pace = self.client.options.slow_reader_bytes_per_s.map(Pace::new);
        let ended = loop {
            let piece = match self.piece(connection, body).await {
                Some(Ok(piece)) => piece,
                // A fault told by the stream itself says more than the way the connection ended.
                Some(Err(fault)) => break Err(reply.fault().unwrap_or(fault)),
                None => break reply.judge(parser.has_rest()).map(|()| Ended::Whole),
            };
            let events_before = reply.content_events;
            let take = |event: Event<'_>| {
                delays.extend(event.written_us.filter(counts).map(delay));
                reply.take(event);
            };
            if parser.feed(&piece, take).is_err() {
                break Err(Fault::new(FaultKind::BadEvent, "an event of unbounded size"));
            }
            self.content_seen(&mut gaps, reply.content_events - events_before);
            self.delays_seen(&mut delays, GAPS_MAX);
            if matches!(self.plan, Cancel::AfterEvents(last) if reply.content_events >= last) {
                break Ok(Ended::HungUp);
            }
            if let Some(pace) = &mut pace {
                pace.after(piece.len()).await;
            }
        };
        self.client.recorder.gaps(self.ask.number, &gaps.micros);
        self.delays_seen(&mut delays, 0);
        self.progress.tokens = reply.tokens;
        self.progress.digest = reply.digest;
        self.progress.text = reply.text;
        ended
    }

    /// Hands the ages of events on once there are more than `held_max`.
    fn delays_seen(&self, delays: &mut Vec<u32>, held_max: usize) {
        if delays.len() > held_max {
            self.client.recorder.delays(self.ask.number, delays);
            delays.clear();
        }
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

/// How old an event is now, microseconds. 0 if the wall clock was set back meanwhile.
fn delay(written_us: u64) -> u32 {
    u32::try_from(unix_us().saturating_sub(written_us)).unwrap_or(u32::MAX)
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    content_type.is_some_and(|value| value.starts_with(b"text/event-stream"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_arrive_together_have_no_time_between_them() {
        let (mut gaps, begin) = (Gaps::default(), Instant::now());
        gaps.add(begin, 2);
        gaps.add(begin + Duration::from_micros(70), 3);
        assert_eq!(gaps.micros, [0, 70, 0, 0], "one gap less than events");
    }

    #[test]
    fn an_event_stream_is_known_by_its_type_whatever_its_charset() {
        let with = |value| HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(value))]);
        assert!(is_event_stream(&with("text/event-stream; charset=utf-8")));
        assert!(!is_event_stream(&with("application/json")));
        assert!(!is_event_stream(&HeaderMap::new()));
    }
}
