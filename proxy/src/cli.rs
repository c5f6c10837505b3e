//! The command line, as typed. What it means is decided in `main`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

const AFTER: &str = "\
Examples:
  shearwater demo                                   try it: four simulated engines behind the real proxy
  shearwater --backend http://10.0.0.1:8000 --backend http://10.0.0.2:8000
                                                    put it before two engines; no file needed
  shearwater --config shearwater.toml               the same with everything adjustable
  shearwater check --config shearwater.toml         what that file means, without starting

Clients talk to --listen as they would to an engine. --admin serves /metrics, /readyz, /admin/backends,
/admin/decisions and POST /admin/explain; keep it private.
Exit status: 0 after a drain, 64 for a wrong command line or configuration, 70 when it could not start.";

/// An L7 ingress for LLM inference fleets: every conversation goes to the backend that already holds its
/// prefix in KV cache.
#[derive(Debug, Parser)]
#[command(name = "shearwater", version, after_help = AFTER)]
pub struct Cli {
    /// Serve when no subcommand is given.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// What to serve.
    #[command(flatten)]
    pub serve: ServeArgs,
}

/// Serving: from a file, or from a list of backends.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Configuration file (TOML). The example in the repository, config/example.toml, names every key.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["backend", "listen", "admin"])]
    pub config: Option<PathBuf>,
    /// Take the listening sockets over from the process that runs with this configuration's takeover_socket:
    /// nobody is refused, and the other drains once this one is ready. If this one fails, the other goes on.
    #[arg(long, requires = "config")]
    pub takeover: bool,
    /// A backend; repeat it for each. Its engine and models are found out by asking it.
    #[arg(long, value_name = "http://HOST:PORT")]
    pub backend: Vec<String>,
    /// Where clients connect; may be repeated [default: 127.0.0.1:8080].
    #[arg(long, value_name = "ADDR")]
    pub listen: Vec<SocketAddr>,
    /// Where operators connect [default: 127.0.0.1:8081].
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<SocketAddr>,
}

/// Other things it does.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check a configuration file and print what it comes to, with every default.
    Check(CheckArgs),
    /// Run on an embedded fleet of simulated engines: no engine, no GPU, no file needed.
    Demo(DemoArgs),
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The file to check.
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
}

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// How many simulated engines.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub backends: u16,
    /// Where clients connect.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// Where operators connect.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8081")]
    pub admin: SocketAddr,
    /// Also drive conversations through it and show hit ratio, time to first token and the load of each
    /// backend, until interrupted.
    #[arg(long)]
    pub load: bool,
    /// Routing policy, to compare: cost, prefix, session, consistent_hash, ewma, power_of_two,
    /// least_requests, random, round_robin.
    #[arg(long, default_value = "cost")]
    pub policy: String,
}
