//! What a reply says, judged as a strict client of its dialect would.
//!
//! Streams are read event by event without copying their text unless the conversation goes on.
//! Every event must be JSON, and the stream must end as its dialect prescribes; the first fault
//! stays. It never decides what to do about a fault.

mod chat;
mod messages;
mod parse;
mod responses;
mod whole;

use std::borrow::Cow;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::fault::{Fault, FaultKind};
use super::options::Dialect;
use super::sse::Event;
use crate::report::TokenCounts;

pub(crate) use whole::{error_body_text, read_whole};

/// A reply being read.
#[derive(Debug)]
pub(crate) struct Reply {
    dialect: Dialect,
    /// The assistant's text so far, if it is wanted.
    pub(crate) text: String,
    keep_text: bool,
    /// Chained hash of the pieces of text, in order; begins with what the reply answers.
    pub(crate) digest: u64,
    /// Content events seen: pieces of text, reasoning or tool calls.
    pub(crate) content_events: u32,
    /// Counts from the last event that had any.
    pub(crate) tokens: Option<TokenCounts>,
    /// Sums of `/v1/messages`, which reports in two events.
    messages_usage: Option<parse::MessagesUsage>,
    /// The end marker was seen.
    ended: bool,
    /// The engine said why it stopped.
    finished: bool,
    fault: Option<Fault>,
}

/// What one event meant.
#[derive(Debug)]
enum Meaning<'a> {
    /// A piece of the reply; text that belongs to the assistant's message, if any.
    Content(Option<Cow<'a, str>>),
    /// Nothing a client shows.
    Other,
    /// The reply is over.
    End,
    Fault(Fault),
}

impl Reply {
    /// A reply to a request whose body hashes to `asked`.
    pub(crate) fn new(dialect: Dialect, keep_text: bool, asked: u64) -> Reply {
        Reply {
            dialect,
            text: String::new(),
            keep_text,
            digest: asked,
            content_events: 0,
            tokens: None,
            messages_usage: None,
            ended: false,
            finished: false,
            fault: None,
        }
    }

    /// Takes the next event of the stream.
    pub(crate) fn take(&mut self, event: Event<'_>) {
        let meaning = match self.dialect {
            Dialect::Openai | Dialect::Completions => chat::meaning(self, event),
            Dialect::Anthropic => messages::meaning(self, event),
            Dialect::Responses => responses::meaning(self, event),
        };
        match meaning {
            Meaning::Fault(fault) => self.failed(fault),
            // Some engines close every dialect with `[DONE]`; nothing else may follow the end.
            _ if self.ended && event.data != b"[DONE]" => {
                self.failed(Fault::new(FaultKind::BadEvent, "an event after the end marker"));
            }
            Meaning::Content(text) => {
                self.content_events += 1;
                self.take_text(text.as_deref().unwrap_or_default());
            }
            Meaning::End => self.ended = true,
            Meaning::Other => {}
        }
    }

    fn take_text(&mut self, text: &str) {
        self.digest = xxh3_64_with_seed(text.as_bytes(), self.digest);
        if self.keep_text {
            self.text.push_str(text);
        }
    }

    /// Judges a stream whose body ended cleanly.
    pub(crate) fn judge(&mut self, inside_an_event: bool) -> Result<(), Fault> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        // llama.cpp ends `/v1/completions` after the reason to stop, without `[DONE]`.
        let ended = self.ended || (self.dialect == Dialect::Completions && self.finished);
        match (ended, inside_an_event) {
            (true, false) => Ok(()),
            (true, true) => Err(Fault::new(FaultKind::BadEvent, "bytes after the end marker")),
            (false, _) => Err(Fault::new(FaultKind::NoTerminator, self.missing_end())),
        }
    }

    /// The fault already seen, if any: it says more than the way the connection then ended.
    pub(crate) fn fault(&mut self) -> Option<Fault> {
        self.fault.take()
    }

    fn failed(&mut self, fault: Fault) {
        self.fault.get_or_insert(fault);
    }

    fn missing_end(&self) -> String {
        let marker = match self.dialect {
            Dialect::Openai | Dialect::Completions => "[DONE]",
            Dialect::Anthropic => "message_stop",
            Dialect::Responses => "response.completed",
        };
        format!("ended without {marker} after {} content events", self.content_events)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::sse::Parser;
    use super::*;

    /// Reads a whole stream and judges it.
    pub(crate) fn read(dialect: Dialect, stream: &str) -> (Reply, Result<(), Fault>) {
        let mut reply = Reply::new(dialect, true, 0);
        let mut parser = Parser::default();
        parser.feed(stream.as_bytes(), |event| reply.take(event)).expect("small events");
        let verdict = reply.judge(parser.has_rest());
        (reply, verdict)
    }

    pub(crate) fn kind(verdict: Result<(), Fault>) -> FaultKind {
        verdict.expect_err("must be a fault").kind
    }

    pub(crate) fn counts(reply: &Reply) -> (u64, u64, u64) {
        let tokens = reply.tokens.expect("token counts");
        (tokens.reused, tokens.recomputed, tokens.output)
    }
}
