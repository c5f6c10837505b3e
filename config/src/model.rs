//! The checked configuration: plain values whose names carry their units.
//!
//! A value of these types has passed every check; nothing downstream has to check it again.
//! A zero that means "off" or "find out yourself" in the file is `None` here.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The whole configuration, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Addresses clients connect to. Never empty.
    pub listen: Vec<SocketAddr>,
    /// Address of health, metrics, explanations and the dashboard.
    pub admin: SocketAddr,
    /// The socket over which a successor asks for the listening sockets; `None` means nobody may.
    pub takeover_socket: Option<PathBuf>,
    /// Data-path threads; `None` means one per core this process may use.
    pub shards: Option<u32>,
    /// Whether requests that are no chat or completion (embeddings, model lists, anything else)
    /// are forwarded as they are instead of being answered 404.
    pub passthrough: bool,
    /// What happens to a request for a model no backend names.
    pub unknown_model: UnknownModel,
    /// Whether replies carry `x-shearwater-backend` and `x-shearwater-request-id`.
    pub response_headers: bool,
    /// The fleet, in file order. Never empty; names and addresses are unique.
    pub backends: Vec<Backend>,
    /// How a backend is chosen.
    pub routing: Routing,
    /// What is mended in bodies on their way.
    pub repair: Repair,
    /// What one client may send, and how many may connect.
    pub limits: Limits,
    /// How long each phase may take.
    pub timeouts: Timeouts,
    /// What clients are told while a stream is silent.
    pub stream: Stream,
    /// Probing and scraping of the backends.
    pub health: Health,
    /// What is written, where.
    pub log: Log,
    /// How many decisions stay explainable.
    pub explain: Explain,
}

/// What happens to a request for a model no backend names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownModel {
    /// Answered 404 with the list of known models.
    Reject,
    /// Sent to any backend: the engine decides.
    Any,
}

/// One model server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Unique name, used in metrics, explanations and response headers. Default `host:port`.
    pub name: String,
    /// Where it listens.
    pub origin: Origin,
    /// Which engine it runs.
    pub kind: Kind,
    /// Models it serves; empty means they are learned from the engine.
    pub models: Vec<String>,
    /// Labels a request may ask for.
    pub tags: Vec<String>,
    /// Requests it runs at once; `None` means the engine says.
    pub slots: Option<u32>,
    /// Tokens its KV cache holds; `None` means the engine says.
    pub kv_tokens: Option<u64>,
    /// Data-parallel engines behind its address, each with a prefill of its own; `None` means the engine says.
    pub ranks: Option<u32>,
    /// Whether it takes requests at all.
    pub enabled: bool,
}

/// Scheme, host and port of a backend; the scheme is always `http`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Host name, IPv4 address, or IPv6 address without brackets. Lower case.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl Origin {
    /// `host:port` as it stands in a `Host` header: IPv6 addresses get their brackets back.
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.authority())
    }
}

/// The engine a backend runs, which decides how its capacity and load are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Found out by asking.
    Auto,
    /// vLLM: `/metrics`, `/v1/models`.
    Vllm,
    /// SGLang: `/server_info`, `/metrics`.
    Sglang,
    /// llama.cpp's server: `/props`, `/slots`.
    LlamaCpp,
    /// Anything that speaks the OpenAI interface and says nothing about its capacity.
    OpenAi,
}

/// The rule that ranks the backends left by the filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// In turn.
    RoundRobin,
    /// At random.
    Random,
    /// Fewest requests in flight.
    LeastRequests,
    /// The less loaded of two drawn at random.
    PowerOfTwo,
    /// Shortest time to first token seen, times the requests there.
    Ewma,
    /// Where the hash of the conversation says, unless that is far busier than the mean.
    ConsistentHash,
    /// Where the conversation was last.
    Session,
    /// Weighted sum of overlap, queue and cache pressure.
    Prefix,
    /// Least expected prefill work, everything counted in tokens.
    Cost,
}

/// How a backend is chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Routing {
    /// The ranking rule.
    pub policy: Policy,
    /// Bytes of canonical prompt in one block: a multiple of 16, from 64 to 240.
    pub block_bytes: u32,
    /// Key of the fingerprints; `None` means a random one for each process.
    pub fingerprint_key: Option<FingerprintKey>,
    /// How long a request waits for the backend holding its prefix before any other will do.
    pub home_wait_ms: u64,
    /// How long a long prompt waits for its turn at a backend that prefills others, ms; 0 is never.
    pub turn_wait_ms: u64,
    /// How often a long prompt gives way, while it is prefilled, to conversations that come home; 0 is never.
    pub give_way_max: u32,
    /// How long a request may wait for room at all.
    pub queue_wait_ms: u64,
    /// Requests of this process that may wait for room at once.
    pub queue_max: u32,
    /// Request header that names the conversation, lower case.
    pub session_header: Option<String>,
    /// Request header that names the tenant, lower case; `None` means that tenants are not told apart.
    pub tenant_header: Option<String>,
    /// Conversations whose last backend is remembered.
    pub affinity_entries: u32,
    /// Seconds after which an idle conversation is forgotten.
    pub affinity_idle_s: u64,
    /// Output tokens assumed for a request that gives no maximum.
    pub output_tokens_default: u32,
    /// How much of a request's declared maximum output is counted.
    pub output_tokens_cap: u32,
    /// Whether conversations keep their slot of a llama.cpp server.
    pub pin_llamacpp_slots: bool,
    /// Cache capacity assumed for an engine that does not say, in blocks.
    pub evidence_blocks_default: u64,
    /// `prefix` policy: weight of the overlap.
    pub weight_hit: f64,
    /// `prefix` policy: weight of the queue.
    pub weight_queue: f64,
    /// `prefix` policy: weight of the cache pressure.
    pub weight_pressure: f64,
    /// `cost` policy: most that one recomputed token is charged for the queue it joins (1 when idle).
    pub a_max: f64,
    /// `cost` policy: price of one request in flight, in tokens.
    pub request_charge_tokens: f64,
}

/// Secret key of the fingerprints. It is never printed: its `Debug` output hides it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FingerprintKey(u64);

impl FingerprintKey {
    /// Wraps the secret.
    pub fn new(key: u64) -> Self {
        Self(key)
    }

    /// The key itself, as the seed of the hash chain.
    pub fn reveal(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for FingerprintKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FingerprintKey(hidden)")
    }
}

/// What is mended in request bodies on their way. Without any of it they are forwarded untouched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    /// Takes the accounting block of Claude Code, which changes with every request, out of `system`.
    pub drop_billing_block: bool,
    /// Asks for `usage` in streams of chat and completions, and hides the answer from a client that did not.
    pub include_usage: bool,
    /// Most tokens a reply may be asked for; `None` leaves it to the client.
    pub max_tokens_cap: Option<u32>,
}

/// What one client may send, and how many may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Request line and headers together.
    pub head_bytes_max: u32,
    /// Number of header lines.
    pub headers_max: u32,
    /// Request body.
    pub body_bytes_max: u64,
    /// Memory for all bodies and replies held at once, bytes; `None` means a share of what the process may use.
    pub body_memory: Option<u64>,
    /// Client connections at once; `None` means derived from the descriptor limit.
    pub connections_max: Option<u32>,
}

/// How long each phase may take. There is no total timer on a reply, on purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From the first byte of a request to the end of its head, in total.
    pub head_ms: u64,
    /// Between two reads of a request body.
    pub body_idle_ms: u64,
    /// A client connection between two requests.
    pub keep_alive_idle_ms: u64,
    /// Connecting to a backend.
    pub connect_ms: u64,
    /// From the request sent to the first byte of the reply; `None` means no limit.
    pub first_byte_ms: Option<u64>,
    /// Between two reads of a reply.
    pub stream_idle_ms: u64,
    /// A client that reads nothing while bytes wait for it.
    pub write_stall_ms: u64,
    /// An unused backend connection; below the 5 s after which engines close theirs.
    pub upstream_idle_ms: u64,
    /// After a stop signal: not ready any more, but still accepting.
    pub drain_grace_ms: u64,
    /// After a stop signal: the longest a running reply may still take.
    pub drain_max_ms: u64,
}

/// What clients are told while a stream is silent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// After so long without an event, and then again and again, a stream that has been promised but not begun is kept
    /// alive; `None` means never.
    pub keepalive_ms: Option<u64>,
}

/// Probing and scraping of the backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Between two probes of one backend.
    pub interval_ms: u64,
    /// How long a probe may take.
    pub timeout_ms: u64,
    /// Failed probes in a row that take a backend out.
    pub failures_to_down: u32,
    /// Good probes in a row that bring it back.
    pub successes_to_up: u32,
    /// Between two readings of an engine's own numbers.
    pub scrape_interval_ms: u64,
    /// How long a backend may have several requests, send no byte and compute nothing, beyond what prefilling them may
    /// take, until it counts as failed; `None` never.
    pub wedged_after_ms: Option<u64>,
}

/// What is written, where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// One line a request.
    pub access: AccessLog,
    /// How a line looks.
    pub format: LogFormat,
    /// The least important message still written.
    pub level: Level,
}

/// Where the access log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLog {
    /// Nowhere.
    Off,
    /// To standard output.
    Stdout,
    /// Appended to this file.
    File(PathBuf),
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// `key=value` pairs.
    Text,
}

/// Importance of a message; a level includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something is lost or refused.
    Error,
    /// Something is wrong but handled.
    Warn,
    /// Changes of state.
    Info,
    /// Everything, for a developer.
    Debug,
}

/// How many decisions stay explainable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explain {
    /// Newest decisions kept in memory.
    pub decisions_max: u32,
}
