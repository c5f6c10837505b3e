//! What a shard tells the learn thread about a request: one note when it is routed, one when it ended.
//!
//! A record holds times, sizes, hashes and names. It never holds a byte of a prompt or a reply.

use index::{BackendId, ConversationKey, Decision, SequenceHash};

use crate::api::Api;
use crate::clock::Micros;
use crate::usage::Usage;

/// A message to the learn thread.
#[derive(Debug)]
pub enum Note {
    /// A request was sent to `backend`, which will hold its blocks from now on.
    Routed {
        /// Where it went.
        backend: BackendId,
        /// Its fingerprint.
        blocks: Vec<SequenceHash>,
        /// When.
        at: Micros,
    },
    /// A request ended.
    Ended(Box<Record>),
}

/// Who or what ended a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The whole reply was delivered.
    Complete,
    /// The client left first.
    ClientGone,
    /// The client stopped reading for too long.
    ClientStalled,
    /// The client's request could not be read or was refused by us.
    Refused,
    /// We answered because no backend could.
    OwnAnswer,
    /// The backend broke after its reply had begun.
    UpstreamBroke,
    /// The backend was silent for too long after its reply had begun.
    UpstreamStalled,
    /// The reply carried the engine's own error event after content.
    EngineError,
    /// The reply came to a proper end whose reason is that the engine gave up: it sleeps, shrinks or leaves.
    EngineAborted,
}

impl End {
    /// Whether the backend said all it had to say.
    pub fn is_whole(self) -> bool {
        matches!(self, End::Complete | End::EngineError | End::EngineAborted)
    }

    /// The word in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            End::Complete => "complete",
            End::ClientGone => "client_gone",
            End::ClientStalled => "client_stalled",
            End::Refused => "refused",
            End::OwnAnswer => "own_answer",
            End::UpstreamBroke => "upstream_broke",
            End::UpstreamStalled => "upstream_stalled",
            End::EngineError => "engine_error",
            End::EngineAborted => "engine_aborted",
        }
    }

    /// All of them, for metrics.
    pub const ALL: [End; 9] = [
        End::Complete,
        End::ClientGone,
        End::ClientStalled,
        End::Refused,
        End::OwnAnswer,
        End::UpstreamBroke,
        End::UpstreamStalled,
        End::EngineError,
        End::EngineAborted,
    ];
}

/// Moments of a request; a phase that was not reached is `None`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Times {
    /// The head was complete.
    pub head: Micros,
    /// The body was complete.
    pub body: Option<Micros>,
    /// A backend was chosen and its slot reserved, for the attempt that counted.
    pub placed: Option<Micros>,
    /// A connection to it was there.
    pub connected: Option<Micros>,
    /// The request had been sent.
    pub sent: Option<Micros>,
    /// The reply's head arrived.
    pub reply_head: Option<Micros>,
    /// The first event or body byte arrived.
    pub first_byte: Option<Micros>,
    /// The end.
    pub end: Micros,
}

/// One request, from its head to its end.
#[derive(Debug)]
pub struct Record {
    /// Number shown as `x-shearwater-request-id`.
    pub request_id: u64,
    /// Shard that served it.
    pub shard: u16,
    /// Endpoint.
    pub api: Api,
    /// Method, upper case, bounded.
    pub method: &'static str,
    /// Path without query, bounded.
    pub path: Box<str>,
    /// Model asked for, bounded; never prompt text.
    pub model: Option<Box<str>>,
    /// Where it went last.
    pub backend: Option<BackendId>,
    /// Status sent to the client; 0 when none was.
    pub status: u16,
    /// Who ended it.
    pub end: End,
    /// Backends tried.
    pub attempts: u32,
    /// How often it was ended in its prefill and sent again to the same backend.
    pub gave_way: u32,
    /// Moments.
    pub times: Times,
    /// Milliseconds spent waiting for room.
    pub waited_ms: u64,
    /// Bytes of the request's body as sent.
    pub request_bytes: u64,
    /// Bytes sent to the client.
    pub reply_bytes: u64,
    /// Whether the reply was streamed as events.
    pub streamed: bool,
    /// Events relayed.
    pub events: u64,
    /// Canonical bytes of the prompt.
    pub canonical_bytes: u64,
    /// Prompt tokens estimated before it was sent.
    pub prompt_tokens_estimate: u64,
    /// What the engine reported.
    pub usage: Option<Usage>,
    /// The choice and its reasons.
    pub decision: Option<Box<Decision>>,
    /// Hash of the conversation's id.
    pub conversation: Option<ConversationKey>,
    /// Fingerprint, for correcting evidence.
    pub blocks: Vec<SequenceHash>,
}

impl Record {
    /// A request of which only its head is known yet. Whatever becomes of it, so far the proxy answers it.
    pub fn of_head(
        request_id: u64,
        shard: u16,
        (api, method, path): (Api, &'static str, Box<str>),
        head: Micros,
    ) -> Record {
        Record {
            request_id,
            shard,
            api,
            method,
            path,
            model: None,
            backend: None,
            status: 0,
            end: End::OwnAnswer,
            attempts: 0,
            gave_way: 0,
            times: Times { head, ..Times::default() },
            waited_ms: 0,
            request_bytes: 0,
            reply_bytes: 0,
            streamed: false,
            events: 0,
            canonical_bytes: 0,
            prompt_tokens_estimate: 0,
            usage: None,
            decision: None,
            conversation: None,
            blocks: Vec::new(),
        }
    }
}
