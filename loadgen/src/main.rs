//! Command line of the load generator: reads arguments, runs, reports. It measures nothing itself.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use loadgen::client::args::RunArgs;
use loadgen::client::{Error, Handle, LiveStats, Workload};
use loadgen::engine::cli::{self, EngineArgs};
use loadgen::report::Report;
use loadgen::report::output::{ProgressLine, complain, write_report};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, getrlimit};

/// More than any load here opens.
const DESCRIPTORS_ROOM: u64 = 131_072;

/// Exit status for arguments that cannot be run (`EX_USAGE` of sysexits.h).
const EXIT_USAGE: u8 = 64;

/// Client workloads and simulated inference engines.
#[derive(Debug, Parser)]
#[command(name = "shearwater-loadgen", version)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

/// One variant for each thing the binary does; each carries its own arguments.
#[derive(Debug, Subcommand)]
enum Command {
    /// Send a workload and report what came back: conversations, open-loop arrivals or a trace
    Run(Box<RunArgs>),
    /// Run simulated inference engines: vLLM, SGLang or llama.cpp on the wire, with faults on demand
    Engine(Box<EngineArgs>),
}

fn main() -> ExitCode {
    make_room();
    match CommandLine::parse().command {
        Command::Run(args) => run(&args),
        Command::Engine(args) => simulate(&args),
    }
}

/// Has the table of descriptors hold all that may be open. Else the kernel doubles it under way, and connections made
/// meanwhile wait for that, 10 to 25 ms: that would be told of whatever is measured.
fn make_room() {
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let last = i32::try_from(allowed.min(DESCRIPTORS_ROOM).saturating_sub(1)).unwrap_or(i32::MAX);
    // Refused, it costs those waits and nothing else.
    drop(fcntl_dupfd_cloexec(std::io::stdin(), last));
}

fn simulate(args: &EngineArgs) -> ExitCode {
    match cli::run(args, &mut std::io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::from(EXIT_USAGE)
        }
    }
}

fn run(args: &RunArgs) -> ExitCode {
    let report = match measure(args) {
        Ok(report) => report,
        Err(error) => {
            complain(&error);
            return ExitCode::from(EXIT_USAGE);
        }
    };
    if let Err(error) = write_report(&report, args.output.json.as_deref()) {
        complain(&format_args!("the report could not be written: {error}"));
        return ExitCode::FAILURE;
    }
    let failed = args.output.check && report.requests.failed > 0;
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Runs the workload to its end, or to an interrupt, whichever comes first.
fn measure(args: &RunArgs) -> Result<Report, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Error::Start)?;
    let handle = Workload::start(args.options())?;
    let progress = ProgressLine::new(args.output.progress);
    runtime.block_on(watch(&handle, progress.as_ref()));
    if let Some(progress) = &progress {
        progress.end();
    }
    Ok(handle.wait())
}

async fn watch(handle: &Handle, progress: Option<&ProgressLine>) {
    let mut every_second = tokio::time::interval(Duration::from_secs(1));
    let mut earlier = LiveStats::default();
    loop {
        tokio::select! {
            () = handle.ended() => return,
            _ = tokio::signal::ctrl_c() => handle.stop(),
            _ = every_second.tick() => if let Some(progress) = progress {
                let now = handle.snapshot();
                progress.show(&earlier, &now);
                earlier = now;
            },
        }
    }
}
