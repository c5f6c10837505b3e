//! What a workload is asked to do: load shape, prompts, transport, limits.
//!
//! Plain data with defaults, the same for the command line and for callers of the library.
//! It never reads a file or opens a socket; [`Options::check`] only looks at the values.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use super::Error;

/// Wire format of requests and replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Dialect {
    /// `POST /v1/chat/completions`, `data:` events, `[DONE]` at the end.
    Openai,
    /// `POST /v1/messages`, named events, `message_stop` at the end.
    Anthropic,
    /// `POST /v1/responses`, named events, `response.completed` at the end.
    Responses,
    /// `POST /v1/completions` with one prompt string, `[DONE]` at the end.
    Completions,
}

/// Which client the requests look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Shape {
    /// System prompt and messages, no tools, no session headers.
    Plain,
    /// Claude Code: billing line that changes with each request, a `cache_control` that moves,
    /// tools, session header, `?beta=true`. Needs the anthropic dialect.
    ClaudeCode,
    /// Codex CLI: instructions, tools, `session-id` and `thread-id` headers, `prompt_cache_key`.
    /// Needs the responses dialect.
    Codex,
}

/// Distribution of the time between two arrivals of an open loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Arrivals {
    /// Exponential gaps, as from many independent callers.
    Poisson,
    /// Equal gaps.
    Constant,
}

/// When requests are sent.
#[derive(Clone, Debug, PartialEq)]
pub enum Load {
    /// At a fixed rate, whatever the answers do.
    Open {
        /// Requests a second.
        rate_per_s: f64,
        /// Spacing of the arrivals.
        arrivals: Arrivals,
        /// Conversations that arrivals are drawn from at random.
        conversations: usize,
        /// Turns after which a conversation is replaced by a new one.
        turns: u32,
    },
    /// By conversations that each wait for their answer, think, and ask again.
    Closed {
        /// Conversations at once.
        conversations: usize,
        /// Turns of one conversation.
        turns: u32,
        /// Mean of the exponential pause between an answer and the next question.
        think: Duration,
        /// Time over which the conversations start.
        ramp: Duration,
    },
    /// At the times of a Mooncake-format trace.
    Trace(TraceOptions),
}

/// How a trace is replayed.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceOptions {
    /// JSON lines, gzip if the bytes say so.
    pub file: PathBuf,
    /// Time compression: 2.0 replays an hour in half an hour.
    pub speed: f64,
    /// Tokens one hash id stands for.
    pub block_tokens: u32,
    /// Bytes of text generated for one token.
    pub token_bytes: u32,
}

/// Sizes of generated prompts and replies.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    /// Bytes shared by all conversations of one group: system prompt and tools.
    pub system_bytes: usize,
    /// Bytes of each user message.
    pub user_bytes: usize,
    /// Upper limit of the reply, in tokens, as sent to the engine.
    pub max_tokens: u32,
    /// Groups of conversations that share a system prompt.
    pub groups: usize,
    /// Zipf exponent of the groups' popularity; 0 makes all equally likely.
    pub zipf_exponent: f64,
}

/// What connections a workload uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connections {
    /// Most connections in use at once; `None` opens as many as there are requests in flight.
    pub max: Option<usize>,
    /// Whether a connection carries a second request.
    pub keep_alive: bool,
}

/// When no further request is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Until {
    /// After this many requests.
    pub requests: Option<u64>,
    /// After this much time.
    pub duration: Option<Duration>,
}

/// A whole workload. [`Options::new`] gives every field a usable value.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Base addresses (`http://host:port[/prefix]`), used in turn.
    pub urls: Vec<String>,
    /// Model name sent in each request.
    pub model: String,
    /// Sent as `Authorization: Bearer`, or as `x-api-key` in the anthropic dialect.
    pub api_key: Option<String>,
    /// Further request headers.
    pub headers: Vec<(String, String)>,
    /// Wire format.
    pub dialect: Dialect,
    /// Client imitated.
    pub shape: Shape,
    /// Whether replies are asked for as a stream.
    pub stream: bool,
    /// When requests are sent.
    pub load: Load,
    /// When it ends.
    pub until: Until,
    /// Sizes of prompts.
    pub sizes: Sizes,
    /// Connections.
    pub connections: Connections,
    /// Reads no faster than this, in bytes a second.
    pub slow_reader_bytes_per_s: Option<u64>,
    /// Share of requests, 0 to 1, on which the client hangs up.
    pub cancel_fraction: f64,
    /// Longest hang-up delay of a client that leaves before the first token.
    pub cancel_prefill: Duration,
    /// Longest time without a byte before a request is given up.
    pub silence: Duration,
    /// Longest wait for replies after the last request was sent.
    pub drain: Duration,
    /// Events whose age on arrival counts: those written within this, from the start.
    pub ages_within: Range<Duration>,
    /// Requests in flight beyond which an open loop counts an arrival as overrun.
    pub in_flight_max: usize,
    /// Seed of everything random.
    pub seed: u64,
    /// Threads of the runtime that runs the requests.
    pub threads: usize,
}

impl Sizes {
    /// Sizes typical of the client imitated: a Claude Code body is about 126 kB for a one-line
    /// prompt, Codex sends about 47,000 characters of instructions and tools.
    pub fn of(shape: Shape) -> Sizes {
        let system_bytes = match shape {
            Shape::Plain => 4_000,
            Shape::ClaudeCode => 120_000,
            Shape::Codex => 47_000,
        };
        Sizes { system_bytes, user_bytes: 400, max_tokens: 64, groups: 8, zipf_exponent: 0.6 }
    }
}

impl Options {
    /// Eight plain chat conversations of five turns against `url`, streamed, without pauses.
    pub fn new(url: impl Into<String>) -> Options {
        Options {
            urls: vec![url.into()],
            model: "default".to_owned(),
            api_key: None,
            headers: Vec::new(),
            dialect: Dialect::Openai,
            shape: Shape::Plain,
            stream: true,
            load: Load::Closed {
                conversations: 8,
                turns: 5,
                think: Duration::ZERO,
                ramp: Duration::ZERO,
            },
            until: Until::default(),
            sizes: Sizes::of(Shape::Plain),
            connections: Connections { max: None, keep_alive: true },
            slow_reader_bytes_per_s: None,
            cancel_fraction: 0.0,
            cancel_prefill: Duration::from_millis(200),
            silence: Duration::from_secs(300),
            drain: Duration::from_secs(30),
            ages_within: Duration::ZERO..Duration::MAX,
            in_flight_max: 50_000,
            seed: 1,
            threads: 1,
        }
    }

    /// Looks for values that cannot be run, and says which and why.
    pub fn check(&self) -> Result<(), Error> {
        self.check_shape()?;
        self.check_load()?;
        let cancel_valid = (0.0..=1.0).contains(&self.cancel_fraction);
        ensure(!self.urls.is_empty(), "--url", "at least one is needed")?;
        ensure(cancel_valid, "--cancel-fraction", "is a share between 0 and 1")?;
        ensure(self.threads > 0, "--threads", "must be at least 1")?;
        ensure(self.sizes.groups > 0, "--groups", "must be at least 1")?;
        ensure(finite(self.sizes.zipf_exponent), "--zipf", "must be a number, 0 or more")?;
        ensure(!self.ages_within.is_empty(), "--ages-until", "must be after --ages-from")?;
        ensure(self.slow_reader_bytes_per_s != Some(0), "--slow-reader", "must read something")?;
        ensure(self.connections.max != Some(0), "--connections", "must be at least 1")
    }

    fn check_shape(&self) -> Result<(), Error> {
        let (fits, needs) = match self.shape {
            Shape::Plain => (true, ""),
            Shape::ClaudeCode => (self.dialect == Dialect::Anthropic, "needs --dialect anthropic"),
            Shape::Codex => (self.dialect == Dialect::Responses, "needs --dialect responses"),
        };
        ensure(fits, "--shape", needs)?;
        let replay = matches!(self.load, Load::Trace(_));
        ensure(!replay || self.shape == Shape::Plain, "--shape", "must be plain with --trace")
    }

    fn check_load(&self) -> Result<(), Error> {
        match &self.load {
            Load::Open { rate_per_s, conversations, turns, .. } => {
                let bounded = self.until.requests.is_some() || self.until.duration.is_some();
                ensure(finite(*rate_per_s) && *rate_per_s > 0.0, "--rate", "must be above 0")?;
                ensure(bounded, "--rate", "needs --duration or --requests, or it never ends")?;
                ensure(*conversations > 0, "--conversations", "must be at least 1")?;
                ensure(*turns > 0, "--turns", "must be at least 1")
            }
            Load::Closed { conversations, turns, .. } => {
                ensure(*conversations > 0, "--conversations", "must be at least 1")?;
                ensure(*turns > 0, "--turns", "must be at least 1")
            }
            Load::Trace(trace) => {
                let speed_valid = finite(trace.speed) && trace.speed > 0.0;
                ensure(speed_valid, "--trace-speed", "must be above 0")?;
                ensure(trace.block_tokens > 0, "--trace-block-tokens", "must be at least 1")?;
                ensure(trace.token_bytes > 0, "--trace-token-bytes", "must be at least 1")
            }
        }
    }
}

fn finite(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}

fn ensure(valid: bool, option: &'static str, reason: &'static str) -> Result<(), Error> {
    if valid { Ok(()) } else { Err(Error::Option { option, reason: reason.to_owned() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(options: &Options) -> String {
        options.check().expect_err("must be refused").to_string()
    }

    #[test]
    fn the_defaults_can_be_run() {
        Options::new("http://127.0.0.1:1").check().expect("defaults are valid");
    }

    #[test]
    fn an_open_loop_without_an_end_is_refused() {
        let mut options = Options::new("http://127.0.0.1:1");
        options.load =
            Load::Open { rate_per_s: 5.0, arrivals: Arrivals::Poisson, conversations: 1, turns: 1 };
        assert_eq!(reason(&options), "--rate needs --duration or --requests, or it never ends");
        options.until.requests = Some(10);
        options.check().expect("bounded by requests");
    }

    #[test]
    fn a_shape_needs_its_dialect() {
        let mut options = Options::new("http://127.0.0.1:1");
        options.shape = Shape::ClaudeCode;
        assert_eq!(reason(&options), "--shape needs --dialect anthropic");
        options.dialect = Dialect::Anthropic;
        options.check().expect("claude-code over anthropic");
        options.shape = Shape::Codex;
        assert_eq!(reason(&options), "--shape needs --dialect responses");
    }

    #[test]
    fn a_cancel_fraction_above_one_is_refused() {
        let mut options = Options::new("http://127.0.0.1:1");
        options.cancel_fraction = 1.5;
        assert_eq!(reason(&options), "--cancel-fraction is a share between 0 and 1");
    }
}
