//! The command line of `run`, as typed, and its translation into [`Options`].
//!
//! Defaults that depend on other options are filled in here; whether the result can be run is for
//! [`Options::check`] to say.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::options::{
    Arrivals, Connections, Dialect, Load, Options, Shape, Sizes, TraceOptions, Until,
};

const ABOUT: &str = "\
Sends chat requests like real clients do, and reports latency, cache reuse and errors.

There are three ways to say when requests go out:

  closed loop   --conversations N: each conversation asks, waits for the whole answer, thinks, and
                asks again with the answer appended. Load falls when the server is slow. Good for
                cache reuse over turns, and for holding many streams open.
  open loop     --rate R: requests go out at their times, whatever the answers do. Latency counts
                from the intended send time, so a stall is charged to every request it delayed.
                Good for latency under a given load.
  trace         --trace FILE: requests at the times, with the lengths and the shared prefixes of a
                Mooncake-format trace (JSON lines, gzip or not).";

const EXAMPLES: &str = "\
Examples:
  # Does the second turn find the first one's cache? 20 conversations of 6 turns.
  shearwater-loadgen run --url http://127.0.0.1:8080 --conversations 20 --turns 6

  # Latency at 50 requests a second for a minute, every request a new conversation.
  shearwater-loadgen run --url http://127.0.0.1:8080 --rate 50 --duration 60s

  # 200 coding agents as Claude Code sends them, 15 s between turns, for ten minutes.
  shearwater-loadgen run --url http://127.0.0.1:8080 --shape claude-code \\
      --conversations 200 --turns 40 --think-ms 15000 --duration 10m --model house-coder

  # 8,000 streams read at 200 bytes a second over two threads. Each stream is an open file:
  # raise the limit first (ulimit -n).
  shearwater-loadgen run --url http://127.0.0.1:8080 --conversations 8000 --turns 1 \\
      --slow-reader 200 --max-tokens 500 --threads 2

  # A recorded hour in a quarter of an hour, figures as JSON.
  shearwater-loadgen run --url http://127.0.0.1:8080 --trace conversation.jsonl.gz \\
      --trace-speed 4 --json report.json

  # Clients that leave: a tenth of all requests, half of these before the first token.
  shearwater-loadgen run --url http://127.0.0.1:8080 --rate 20 --duration 30s \\
      --cancel-fraction 0.1

Errors are counted by kind: connect, dead_connection (a reused connection was closed already; never
retried), reset, cut_short (closed before the end), no_terminator (ended cleanly without the
dialect's end marker), http_status, error_event, aborted, timeout, malformed_framing,
malformed_event, overrun (too many requests in flight to send another).";

/// Options of `shearwater-loadgen run`.
#[derive(Args, Clone, Debug)]
#[command(about = "Send a client workload and report on it", long_about = ABOUT, after_long_help = EXAMPLES)]
pub struct RunArgs {
    /// Base address of the server, with or without `/v1`; several are used in turn.
    #[arg(long = "url", value_name = "URL", required = true, value_delimiter = ',')]
    pub urls: Vec<String>,

    /// Model name to ask for.
    #[arg(long, default_value = "default")]
    pub model: String,

    /// API key, sent as `Authorization: Bearer` or, in the anthropic dialect, as `x-api-key`.
    #[arg(long, value_name = "KEY")]
    pub api_key: Option<String>,

    /// A further request header; may be given several times.
    #[arg(long = "header", value_name = "NAME:VALUE", value_parser = parse_header)]
    pub headers: Vec<(String, String)>,

    /// Wire format [default: the shape's, or openai].
    #[arg(long, value_enum)]
    pub dialect: Option<Dialect>,

    /// Which client to look like.
    #[arg(long, value_enum, default_value = "plain")]
    pub shape: Shape,

    /// Ask for streams; `--stream=false` asks for whole replies.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1,
          default_missing_value = "true", require_equals = true)]
    pub stream: bool,

    #[command(flatten)]
    #[allow(missing_docs, reason = "the group's options are documented one by one")]
    pub when: WhenArgs,

    #[command(flatten)]
    #[allow(missing_docs, reason = "the group's options are documented one by one")]
    pub prompts: PromptArgs,

    #[command(flatten)]
    #[allow(missing_docs, reason = "the group's options are documented one by one")]
    pub behaviour: BehaviourArgs,

    #[command(flatten)]
    #[allow(missing_docs, reason = "the group's options are documented one by one")]
    pub output: OutputArgs,
}

/// When requests are sent.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Load")]
pub struct WhenArgs {
    /// Open loop: requests a second.
    #[arg(long, value_name = "PER_S", conflicts_with = "trace")]
    pub rate: Option<f64>,

    /// Spacing of the requests of an open loop.
    #[arg(long, value_enum, default_value = "poisson")]
    pub arrivals: Arrivals,

    /// Conversations at once; in an open loop, those that requests are drawn from
    /// [default: 8, open loop 64].
    #[arg(long, value_name = "N", conflicts_with = "trace")]
    pub conversations: Option<usize>,

    /// Turns of one conversation [default: 5, open loop 1].
    #[arg(long, value_name = "T", conflicts_with = "trace")]
    pub turns: Option<u32>,

    /// Closed loop: mean of the exponential pause between an answer and the next question.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub think_ms: u64,

    /// Closed loop: time over which the conversations start
    /// [default: one millisecond for each].
    #[arg(long, value_name = "MS")]
    pub ramp_ms: Option<u64>,

    /// Replay this Mooncake-format trace.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,

    /// Replay this much faster than recorded.
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    pub trace_speed: f64,

    /// Tokens one hash id of the trace stands for.
    #[arg(long, value_name = "N", default_value_t = 512)]
    pub trace_block_tokens: u32,

    /// Bytes of text to generate for one token of the trace.
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub trace_token_bytes: u32,

    /// Send nothing further after this time: 30s, 500ms, 10m. A closed loop without a limit ends
    /// after one conversation in each place.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,

    /// Send nothing further after this many requests.
    #[arg(long, value_name = "N")]
    pub requests: Option<u64>,

    /// Seed of everything random; the same seed sends the same prompts.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// What is sent.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Prompts")]
pub struct PromptArgs {
    /// Bytes of prompt shared within a group, tools included
    /// [default: 4000; claude-code 120000, codex 47000].
    #[arg(long, value_name = "BYTES")]
    pub system_bytes: Option<usize>,

    /// Bytes of each user message.
    #[arg(long, value_name = "BYTES", default_value_t = 400)]
    pub user_bytes: usize,

    /// Longest reply to ask for, in tokens.
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub max_tokens: u32,

    /// Groups of conversations; each group shares a system prompt.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub groups: usize,

    /// Zipf exponent of the groups' popularity; 0 makes all equally likely.
    #[arg(long, value_name = "S", default_value_t = 0.6)]
    pub zipf: f64,
}

/// How the client behaves.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Behaviour")]
pub struct BehaviourArgs {
    /// Most connections in use at once over each address [default: no bound].
    #[arg(long, value_name = "N")]
    pub connections: Option<usize>,

    /// Open a connection for each request instead of keeping connections alive.
    #[arg(long)]
    pub new_connections: bool,

    /// Read replies no faster than this.
    #[arg(long, value_name = "BYTES_PER_S")]
    pub slow_reader: Option<u64>,

    /// Share of requests on which the client hangs up: half of them before the first token, the
    /// others at a random token.
    #[arg(long, value_name = "F", default_value_t = 0.0)]
    pub cancel_fraction: f64,

    /// Longest wait of a client that hangs up before the first token.
    #[arg(long, value_name = "MS", default_value_t = 200)]
    pub cancel_prefill_ms: u64,

    /// Give a request up after this long without a byte. There is no limit on the whole.
    #[arg(long, value_name = "MS", default_value_t = 300_000)]
    pub silence_ms: u64,

    /// Leave out of the ages of events those written earlier than this after the start …
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub ages_from: u64,

    /// … or later than this: while connections are opened, or something else is measured.
    #[arg(long, value_name = "MS")]
    pub ages_until: Option<u64>,

    /// Longest wait for late replies after the last request of a run limited by time or rate.
    #[arg(long, value_name = "MS", default_value_t = 30_000)]
    pub drain_ms: u64,

    /// Open loop: requests in flight beyond which an arrival is counted as overrun, not sent.
    #[arg(long, value_name = "N", default_value_t = 50_000)]
    pub in_flight_max: usize,

    /// Threads that send and receive.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: usize,
}

/// Where the figures go.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Write the report as JSON to this file; `-` prints it instead of the table.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Show a line of progress each second even if standard error is no terminal.
    #[arg(long)]
    pub progress: bool,

    /// Exit with status 1 if a request failed.
    #[arg(long)]
    pub check: bool,
}

impl RunArgs {
    /// The workload these arguments describe.
    pub fn options(&self) -> Options {
        let (when, prompts, behaviour) = (&self.when, &self.prompts, &self.behaviour);
        let default_sizes = Sizes::of(self.shape);
        Options {
            urls: self.urls.clone(),
            model: self.model.clone(),
            api_key: self.api_key.clone(),
            headers: self.headers.clone(),
            dialect: self.dialect.unwrap_or(native_dialect(self.shape)),
            shape: self.shape,
            stream: self.stream,
            load: when.load(),
            until: Until { requests: when.requests, duration: when.duration },
            sizes: Sizes {
                system_bytes: prompts.system_bytes.unwrap_or(default_sizes.system_bytes),
                user_bytes: prompts.user_bytes,
                max_tokens: prompts.max_tokens,
                groups: prompts.groups,
                zipf_exponent: prompts.zipf,
            },
            connections: Connections {
                max: behaviour.connections,
                keep_alive: !behaviour.new_connections,
            },
            slow_reader_bytes_per_s: behaviour.slow_reader,
            cancel_fraction: behaviour.cancel_fraction,
            cancel_prefill: Duration::from_millis(behaviour.cancel_prefill_ms),
            silence: Duration::from_millis(behaviour.silence_ms),
            drain: Duration::from_millis(behaviour.drain_ms),
            ages_within: behaviour.ages_within(),
            in_flight_max: behaviour.in_flight_max,
            seed: when.seed,
            threads: behaviour.threads,
        }
    }
}

impl BehaviourArgs {
    fn ages_within(&self) -> Range<Duration> {
        let until = self.ages_until.map_or(Duration::MAX, Duration::from_millis);
        Duration::from_millis(self.ages_from)..until
    }
}

impl WhenArgs {
    fn load(&self) -> Load {
        if let Some(file) = &self.trace {
            return Load::Trace(TraceOptions {
                file: file.clone(),
                speed: self.trace_speed,
                block_tokens: self.trace_block_tokens,
                token_bytes: self.trace_token_bytes,
            });
        }
        if let Some(rate_per_s) = self.rate {
            return Load::Open {
                rate_per_s,
                arrivals: self.arrivals,
                conversations: self.conversations.unwrap_or(64),
                turns: self.turns.unwrap_or(1),
            };
        }
        let conversations = self.conversations.unwrap_or(8);
        Load::Closed {
            conversations,
            turns: self.turns.unwrap_or(5),
            think: Duration::from_millis(self.think_ms),
            ramp: Duration::from_millis(self.ramp_ms.unwrap_or(conversations as u64)),
        }
    }
}

fn native_dialect(shape: Shape) -> Dialect {
    match shape {
        Shape::Plain => Dialect::Openai,
        Shape::ClaudeCode => Dialect::Anthropic,
        Shape::Codex => Dialect::Responses,
    }
}

fn parse_header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("must be NAME:VALUE")?;
    Ok((name.trim().to_ascii_lowercase(), value.trim().to_owned()))
}

/// `500ms`, `30s`, `10m`, or a number of seconds.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let number: f64 = digits.parse().map_err(|_| format!("{text:?} holds no number"))?;
    let seconds = match text.strip_prefix(digits).unwrap_or_default() {
        "ms" => number / 1e3,
        "s" | "" => number,
        "m" => number * 60.0,
        "h" => number * 3_600.0,
        unit => return Err(format!("unknown unit {unit:?}: use ms, s, m or h")),
    };
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        run: RunArgs,
    }

    fn options(line: &str) -> Options {
        let words = ["run", "--url", "http://h:1"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).expect("valid arguments").run.options()
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Line::command().debug_assert();
    }

    #[test]
    fn a_rate_makes_an_open_loop_of_single_turns() {
        let load = options("--rate 12.5 --duration 30s").load;
        let expected = Load::Open {
            rate_per_s: 12.5,
            arrivals: Arrivals::Poisson,
            conversations: 64,
            turns: 1,
        };
        assert_eq!(load, expected);
    }

    #[test]
    fn a_shape_brings_its_dialect_and_its_sizes() {
        let claude = options("--shape claude-code");
        assert_eq!((claude.dialect, claude.sizes.system_bytes), (Dialect::Anthropic, 120_000));
        assert_eq!(options("--shape codex").dialect, Dialect::Responses);
        assert_eq!(options("--dialect completions").dialect, Dialect::Completions);
    }

    #[test]
    fn streams_are_asked_for_unless_refused() {
        assert!(options("").stream);
        assert!(options("--stream").stream);
        assert!(!options("--stream=false").stream);
    }

    #[test]
    fn headers_and_several_addresses_are_taken() {
        let options = options("--url http://h:2,http://h:3 --header X-Team:a:b");
        assert_eq!(options.urls, ["http://h:1", "http://h:2", "http://h:3"]);
        assert_eq!(options.headers, [("x-team".to_owned(), "a:b".to_owned())]);
    }

    #[test]
    fn durations_carry_their_unit() {
        let millis = |text| parse_duration(text).map(|duration| duration.as_millis());
        assert_eq!(millis("500ms"), Ok(500));
        assert_eq!(millis("1.5s"), Ok(1_500));
        assert_eq!(millis("2m"), Ok(120_000));
        assert_eq!(millis("3"), Ok(3_000));
        assert!(millis("5 parsecs").is_err() && millis("s").is_err() && millis("-1s").is_err());
    }
}
