//! The demo: a fleet of simulated engines behind the real proxy, in one process.
//!
//! Nothing here is special to the demo but the engines: the proxy is the one that serves in production, and
//! the load, where asked for, comes through its listening socket like any other.

use std::fmt::Write;
use std::time::Duration;

use config::{Config, Policy};
use loadgen::client::{Handle, LiveStats, Load, Options, Until, Workload};
use loadgen::engine::{EngineOptions, Persona, SimEngine};
use tokio::runtime::Runtime;

use crate::cli::DemoArgs;
use crate::published::{Phase, Published};
use crate::say;
use crate::start::{Running, StartOptions, start};

/// Engines' threads: simulating is cheap, and the shards need the cores.
const FLEET_THREADS: usize = 1;
/// Conversations per engine that `--load` keeps going.
const CONVERSATIONS_PER_BACKEND: usize = 8;

/// Longer than anybody watches a demo.
const LOAD_LASTS: Duration = Duration::from_secs(365 * 24 * 3600);

/// Runs the demo until it is interrupted.
///
/// # Errors
/// In words, when something could not start.
pub fn run(args: &DemoArgs) -> Result<(), String> {
    let policy = Policy::from_name(&args.policy).ok_or_else(|| {
        format!("there is no policy {:?}; there are {}", args.policy, Policy::names().join(", "))
    })?;
    let runtime = fleet_runtime()?;
    let fleet = start_fleet(&runtime, args.backends)?;
    let running = start_proxy(args, &fleet, policy)?;
    say::out(&welcome(&running, args));
    let shared = running.shared;
    let load = if args.load { Some(start_load(&running, args.backends)?) } else { None };
    let watcher = load.map(|load| std::thread::spawn(move || watch(&load, shared)));
    running.wait();
    if let Some(watcher) = watcher {
        // A watcher that panicked has printed why.
        let _ = watcher.join();
    }
    drop(fleet);
    Ok(())
}

fn fleet_runtime() -> Result<Runtime, String> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(FLEET_THREADS).thread_name("engines").enable_all();
    runtime.build().map_err(|error| format!("cannot start the engines' runtime: {error}"))
}

/// Engines of all kinds in turn, all serving the model `sim`.
fn start_fleet(runtime: &Runtime, backends: u16) -> Result<Vec<SimEngine>, String> {
    let _inside = runtime.enter();
    let personas = [Persona::Vllm, Persona::Sglang, Persona::LlamaCpp];
    (personas.into_iter().cycle().take(usize::from(backends)))
        .map(|persona| SimEngine::start(EngineOptions::new(persona)).map_err(|e| e.to_string()))
        .collect()
}

fn start_proxy(args: &DemoArgs, fleet: &[SimEngine], policy: Policy) -> Result<Running, String> {
    let urls: Vec<String> = fleet.iter().map(SimEngine::url).collect();
    let mut config = Config::from_backends(&urls, &[args.listen], Some(args.admin))
        .map_err(|error| error.to_string())?;
    config.routing.policy = policy;
    // Nobody balances in front of a demo.
    config.timeouts.drain_grace_ms = 0;
    config.log.access = config::AccessLog::Off;
    start(config, StartOptions { take_signals: true, take_over: false })
        .map_err(|error| error.to_string())
}

fn welcome(running: &Running, args: &DemoArgs) -> String {
    let listen = running.listen.first().copied().unwrap_or(args.listen);
    let admin = running.admin;
    format!(
        "Shearwater demo: {} simulated engines (vLLM, SGLang, llama.cpp in turn) behind the real proxy.\n\
         {}\n\n\
         Ask it something:\n  \
         curl -N http://{listen}/v1/chat/completions -H 'content-type: application/json' \\\n    \
         -d '{{\"model\":\"sim\",\"stream\":true,\"messages\":[{{\"role\":\"user\",\"content\":\"hello\"}}]}}'\n\n\
         Look at it:\n  \
         curl http://{admin}/admin/backends     load and evidence of each backend\n  \
         curl http://{admin}/admin/decisions    where the last requests went, and why\n  \
         curl http://{admin}/metrics            Prometheus metrics\n\n\
         Ctrl-C ends it.",
        args.backends,
        running.announcement(),
    )
}

fn start_load(running: &Running, backends: u16) -> Result<Handle, String> {
    let listen = running.listen.first().ok_or("the proxy does not listen")?;
    let mut options = Options::new(format!("http://{listen}"));
    options.model = "sim".to_owned();
    options.stream = true;
    options.load = Load::Closed {
        conversations: CONVERSATIONS_PER_BACKEND * usize::from(backends),
        turns: 8,
        think: Duration::from_secs(1),
        ramp: Duration::from_secs(3),
    };
    // Conversations that end are followed by new ones only in a load that has an end; this one's is far off.
    options.until = Until { requests: None, duration: Some(LOAD_LASTS) };
    options.threads = 1;
    Workload::start(options).map_err(|error| error.to_string())
}

/// Prints what the load sees, each second, until the proxy goes away.
fn watch(load: &Handle, shared: &'static Published) {
    say::out("  time  done/s   hit  follow-up hit  ttft p50   p99  errors  in flight by backend");
    let mut before = load.snapshot();
    while shared.phase() < Phase::Leaving {
        std::thread::park_timeout(Duration::from_secs(1));
        let now = load.snapshot();
        say::out(&line(&before, &now, shared));
        before = now;
    }
    load.stop();
}

fn line(before: &LiveStats, now: &LiveStats, shared: &Published) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "{:5.0}s {:7} {:4.0} % {:12.0} % {:6.0} ms {:3.0} ms {:5}  ",
        now.elapsed_ms as f64 / 1000.0,
        now.done - before.done,
        now.hit_ratio * 100.0,
        now.hit_ratio_followup * 100.0,
        now.ttft_p50_ms,
        now.ttft_p99_ms,
        now.errors,
    );
    for number in 0..shared.upstreams.len().min(16) {
        let (requests, _) =
            shared.fleet.backend(crate::start::backend_id(number)).slots.in_flight();
        let _ = write!(text, " {requests}");
    }
    text
}
