//! `shearwater-loadgen engine`: one simulated engine as a process.

use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};

use super::faults::{Cut, CutHow, Faults};
use super::model::Prefill;
use super::options::{EngineOptions, ReplyLength};
use super::persona::Persona;
use super::sim::{SimEngine, StartError};
use super::state::EngineState;

/// Arguments of `shearwater-loadgen engine`.
#[derive(Debug, Clone, Args)]
pub struct EngineArgs {
    /// The engine to speak as.
    #[arg(long, value_enum, default_value = "vllm")]
    pub persona: Persona,
    /// Address to listen on; port 0 lets the system choose.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Model name.
    #[arg(long, default_value = "sim")]
    pub model: String,
    /// Requests that run at once (64).
    #[arg(long)]
    pub slots: Option<usize>,
    /// KV pool, tokens (512000).
    #[arg(long)]
    pub kv_tokens: Option<u64>,
    /// Tokens a KV block (llamacpp 8, sglang 16, vllm 32).
    #[arg(long)]
    pub block_tokens: Option<u32>,
    /// Tokens one request may hold, prompt and reply.
    #[arg(long)]
    pub sequence_tokens: Option<u32>,
    /// Prompt tokens computed a second (8000).
    #[arg(long)]
    pub prefill_tps: Option<f64>,
    /// Tokens a second of one request (40).
    #[arg(long)]
    pub decode_tps: Option<f64>,
    /// Extra running requests at which the rate of each has halved; 0 = no slowing.
    #[arg(long)]
    pub batch_half: Option<f64>,
    /// Compute prompts in chunks of so many tokens, with a token for every running request in between.
    #[arg(long)]
    pub prefill_chunk_tokens: Option<u32>,
    /// All running requests get their tokens at the same moment, as from an engine that steps its whole batch.
    #[arg(long)]
    pub lockstep: bool,
    /// Put the time of writing behind each event of a stream, as a comment; clients of this machine measure each event by it.
    #[arg(long)]
    pub stamp_events: bool,
    /// Factor on both speeds.
    #[arg(long, default_value_t = 1.0)]
    pub speed: f64,
    /// Requests that may wait before others are refused.
    #[arg(long)]
    pub queue_max: Option<usize>,
    /// Requests that may be here, running or waiting, before others are refused.
    #[arg(long)]
    pub in_flight_max: Option<usize>,
    /// Shortest reply, tokens.
    #[arg(long, default_value_t = 32)]
    pub reply_min: u32,
    /// Longest reply, tokens.
    #[arg(long, default_value_t = 256)]
    pub reply_max: u32,
    /// Do not report cached tokens (vllm, sglang: their default in earnest).
    #[arg(long)]
    pub hide_cached: bool,
    /// vllm: refuse streams with status 200 and an error event.
    #[arg(long)]
    pub late_refusal: bool,
    /// llamacpp: every slot owns its share of the pool, instead of all sharing it.
    #[arg(long)]
    pub split_kv: bool,
    /// llamacpp: every slot keeps its own cache, as the real one's do, instead of all sharing one.
    #[arg(long)]
    pub slot_caches: bool,
    /// Close idle connections after so long, milliseconds.
    #[arg(long, default_value_t = 5_000)]
    pub idle_close_ms: u64,
    /// Append the hash of each prompt that is taken to this file, a line each: what was worked on twice stands there twice.
    #[arg(long, value_name = "FILE")]
    pub ledger: Option<PathBuf>,
    /// Engines to run in this process. The others listen on the ports after the first one's, or all on free ones.
    #[arg(long, default_value_t = 1)]
    pub count: u16,
    /// Faults from the start.
    #[command(flatten)]
    pub faults: FaultArgs,
}

/// Faults from the start. All of them, and more, can be set live: `POST /sim/faults`.
#[derive(Debug, Clone, Default, Args)]
pub struct FaultArgs {
    /// Cut every stream after so many events.
    #[arg(long)]
    pub fault_cut_after: Option<u32>,
    /// How streams are cut.
    #[arg(long, value_enum, default_value = "close")]
    pub fault_cut_how: CutHow,
    /// Stop streams after so many events, without closing.
    #[arg(long)]
    pub fault_stall_after: Option<u32>,
    /// Hold back every reply's head, milliseconds.
    #[arg(long, default_value_t = 0)]
    pub fault_slow_head_ms: u64,
    /// Reset the connection at the so many-th inference request.
    #[arg(long)]
    pub fault_reset_on: Option<u32>,
    /// Close the connection at every so many-th inference request.
    #[arg(long)]
    pub fault_drop_every: Option<u32>,
    /// Compute so many times slower.
    #[arg(long, default_value_t = 1.0)]
    pub fault_slow_factor: f64,
    /// Have no room for anyone.
    #[arg(long)]
    pub fault_full: bool,
    /// Accept everything and compute nothing.
    #[arg(long)]
    pub fault_wedge: bool,
    /// Refuse connections.
    #[arg(long)]
    pub fault_refuse: bool,
}

impl FaultArgs {
    fn faults(&self) -> Faults {
        let cut = self.fault_cut_after.map(|after_events| Cut {
            after_events,
            how: self.fault_cut_how,
            times: None,
        });
        Faults {
            cut,
            stall_after_events: self.fault_stall_after,
            refuse: self.fault_refuse,
            slow_head_ms: self.fault_slow_head_ms,
            reset_on: self.fault_reset_on,
            drop_every: self.fault_drop_every,
            slow_factor: self.fault_slow_factor,
            full: self.fault_full,
            wedge: self.fault_wedge,
            ..Faults::default()
        }
    }
}

impl EngineArgs {
    /// The options these arguments describe.
    pub fn options(&self) -> Result<EngineOptions, EngineCliError> {
        let mut options = EngineOptions::new(self.persona);
        options.listen = self.listen;
        options.model.clone_from(&self.model);
        options.reply =
            ReplyLength { min: self.reply_min, max: self.reply_max.max(self.reply_min) };
        options.report_cached = !self.hide_cached;
        options.late_refusal = self.late_refusal;
        options.kv_unified = !self.split_kv;
        options.idle_close_ms = self.idle_close_ms;
        options.stamp_events = self.stamp_events;
        options.ledger.clone_from(&self.ledger);
        options.faults = self.faults.faults();
        self.set_params(&mut options);
        let params = &options.params;
        let numbers = [
            ("--speed", self.speed),
            ("--prefill-tps", params.prefill_tps),
            ("--decode-tps", params.decode_tps),
            ("--fault-slow-factor", self.faults.fault_slow_factor),
        ];
        match numbers.iter().find(|(_, value)| !(value.is_finite() && *value > 0.0)) {
            Some((name, _)) => Err(EngineCliError::NotPositive(name)),
            None => Ok(options.speed(self.speed)),
        }
    }

    fn set_params(&self, options: &mut EngineOptions) {
        let params = &mut options.params;
        let pool = self.kv_tokens.unwrap_or_else(|| params.kv_tokens());
        params.block_tokens = self.block_tokens.unwrap_or(params.block_tokens).max(1);
        params.slots = self.slots.unwrap_or(params.slots).max(1);
        params.prefill_tps = self.prefill_tps.unwrap_or(params.prefill_tps);
        params.decode_tps = self.decode_tps.unwrap_or(params.decode_tps);
        params.batch_half = self.batch_half.unwrap_or(params.batch_half);
        params.lockstep = self.lockstep;
        params.slot_caches = self.slot_caches;
        params.queue_max = self.queue_max;
        params.in_flight_max = self.in_flight_max;
        if let Some(tokens) = self.prefill_chunk_tokens {
            params.prefill = Prefill::Chunked { tokens };
        }
        *params = params.clone().with_kv_tokens(pool);
        params.sequence_tokens_max = self.sequence_tokens.unwrap_or(params.sequence_tokens_max);
    }
}

/// Why the command failed.
#[derive(Debug)]
pub enum EngineCliError {
    /// This argument must be a number above 0.
    NotPositive(&'static str),
    /// There are not as many ports after the first one.
    NoPort,
    /// The engine did not start.
    Start(StartError),
    /// The system refused something.
    Io(io::Error),
}

impl fmt::Display for EngineCliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EngineCliError::NotPositive(name) => write!(f, "{name} must be a number above 0"),
            EngineCliError::NoPort => f.write_str("--count goes beyond port 65535"),
            EngineCliError::Start(error) => error.fmt(f),
            EngineCliError::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for EngineCliError {}

impl From<io::Error> for EngineCliError {
    fn from(error: io::Error) -> Self {
        EngineCliError::Io(error)
    }
}

/// Runs engines until SIGTERM or ctrl-c. Writes one line for each to `out` when it listens: `listening on http://ADDRESS`;
/// and for each SIGUSR1 one with what all of them did and do, summed up, as JSON.
pub fn run(args: &EngineArgs, out: &mut dyn Write) -> Result<(), EngineCliError> {
    let options = args.options()?;
    // One engine is served well by one thread; a fleet gets one for each core.
    let mut builder = match args.count {
        0 | 1 => runtime::Builder::new_current_thread(),
        _ => runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.enable_all().build()?;
    runtime.block_on(async {
        // First, so that an early signal does not end the process.
        let mut asked = signal(SignalKind::user_defined1())?;
        let engines = start_all(&options, args.count.max(1))?;
        for engine in &engines {
            writeln!(out, "listening on {}", engine.url())?;
        }
        out.flush()?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        loop {
            tokio::select! {
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                _ = asked.recv() => writeln!(out, "{}", sums(&engines)).and_then(|()| out.flush())?,
            }
        }
        for engine in engines {
            engine.kill().await;
        }
        Ok(())
    })
}

/// What a measuring script counts work by: exact at the moment it asks, whatever the clients know.
fn sums(engines: &[SimEngine]) -> serde_json::Value {
    let states: Vec<EngineState> = engines.iter().map(SimEngine::state).collect();
    let sum = |of: fn(&EngineState) -> u64| states.iter().map(of).sum::<u64>();
    serde_json::json!({
        "generated_tokens": sum(|state| state.generated_tokens),
        "running": sum(|state| state.running),
        "waiting": sum(|state| state.waiting),
        "requests": sum(|state| state.requests),
        "finished": sum(|state| state.finished),
        "aborted": sum(|state| state.aborted),
    })
}

fn start_all(options: &EngineOptions, count: u16) -> Result<Vec<SimEngine>, EngineCliError> {
    let first = options.listen.port();
    let start = |number: u16| {
        let mut options = options.clone();
        if first != 0 {
            options.listen.set_port(first.checked_add(number).ok_or(EngineCliError::NoPort)?);
        }
        SimEngine::start(options).map_err(EngineCliError::Start)
    };
    (0..count).map(start).collect()
}
