//! The command line, as typed.

use std::path::PathBuf;

use clap::Parser;

use super::engine::EngineOptions;
use super::routers::product::{GIVE_WAY_MAX, TURN_WAIT_MS};
use super::sim::Outage;

/// Runs placement policies against workloads and prints what they come to.
#[derive(Clone, Debug, Parser)]
#[command(name = "shearwater-arena", version)]
pub struct Args {
    /// Workloads: Mooncake JSONL, the session growth format, Azure CSV, the proxy's JSON access log, each plain or .gz; or
    /// `generated`.
    #[arg(long, num_args = 1.., required_unless_present = "list")]
    pub trace: Vec<PathBuf>,
    /// Engines in the fleet; several sizes run one after the other.
    #[arg(long, value_delimiter = ',', default_value = "8")]
    pub backends: Vec<usize>,
    /// Blocks of 512 tokens an engine's cache holds.
    #[arg(long, default_value_t = 4000)]
    pub capacity: usize,
    /// Policies by name, `peers`, or `all`.
    #[arg(long, default_value = "all")]
    pub policy: String,
    /// Names the policies and ends.
    #[arg(long)]
    pub list: bool,
    /// Adds the policy of a configuration, as `configured`.
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// Writes the rows as JSON.
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// Writes machine and commit beside the results, as JSON.
    #[arg(long)]
    pub facts: Option<PathBuf>,
    /// Writes a page to look at.
    #[arg(long)]
    pub html: Option<PathBuf>,
    /// The page carries no grid of weights.
    #[arg(long)]
    pub no_grid: bool,
    /// Load: prompt tokens of the trace against what the fleet could prefill with nothing cached.
    #[arg(long, default_value_t = 1.0)]
    pub rho: f64,
    /// Time compression instead of a load.
    #[arg(long)]
    pub compression: Option<f64>,
    /// Copies of the trace at once, templates shared.
    #[arg(long, default_value_t = 1)]
    pub copies: usize,
    /// One copy for so many engines, instead of a number of copies.
    #[arg(long)]
    pub backends_per_copy: Option<usize>,
    /// Closed loop: sessions for each engine.
    #[arg(long, default_value_t = 16)]
    pub sessions_per_backend: usize,
    /// Closed loop: ends after so many simulated seconds.
    #[arg(long, default_value_t = 1800.0)]
    pub until: f64,
    /// Closed loop: the first sessions start spread over so many seconds.
    #[arg(long, default_value_t = 300.0)]
    pub ramp: f64,
    /// Closed loop: longer think times count as this, in seconds.
    #[arg(long, default_value_t = 300.0)]
    pub think_max: f64,
    /// Closed loop: seed of the order of sessions.
    #[arg(long, default_value_t = 7)]
    pub order_seed: u32,
    /// Seed of ties and of the generator.
    #[arg(long, default_value_t = 1)]
    pub seed: u32,
    /// Uncached tokens an engine prefills a second.
    #[arg(long, default_value_t = 8000.0)]
    pub prefill_rate: f64,
    /// Tokens a second of one running request.
    #[arg(long, default_value_t = 40.0)]
    pub decode_rate: f64,
    /// Requests an engine runs at once.
    #[arg(long, default_value_t = 64)]
    pub slots: usize,
    /// Engines serve the least uncached work first, a second of waiting counting as so many tokens; 0 is FIFO.
    #[arg(long, default_value_t = 0.0)]
    pub sched: f64,
    /// Prefill in chunks of so many tokens slows decoding beside it; 0 keeps them apart.
    #[arg(long, default_value_t = 0.0)]
    pub chunk_tokens: f64,
    /// How much each further request of a batch slows decoding.
    #[arg(long, default_value_t = 0.0)]
    pub batch_slowdown: f64,
    /// Prompt tokens an engine computes in one step. Of a prompt that is ended, whole steps stay cached; 0: nothing does.
    #[arg(long, default_value_t = EngineOptions::default().step_tokens)]
    pub step_tokens: u64,
    /// Factors on the engines' speed, used over and over: 1,0.5 makes every second engine half as fast.
    #[arg(long, value_delimiter = ',')]
    pub speeds: Vec<f64>,
    /// Factors on the engines' cache, likewise.
    #[arg(long, value_delimiter = ',')]
    pub sizes: Vec<f64>,
    /// `ENGINE:FROM:TO` in simulated seconds: it does not run then and comes back cold; without `TO` it is gone for good.
    #[arg(long, value_parser = outage)]
    pub outage: Vec<Outage>,
    /// Our policies: proxies side by side that share nothing.
    #[arg(long, default_value_t = 1)]
    pub replicas: usize,
    /// Our policies: the router holds requests back, with at most so many on a backend.
    #[arg(long)]
    pub hold_requests: Option<u32>,
    /// Our policies: what a second of waiting takes off a held request's work, in tokens, when those held are ranked.
    #[arg(long, default_value_t = 1000.0)]
    pub hold_ageing: f64,
    /// Our policies: how long a conversation waits for its full home, in ms.
    #[arg(long, default_value_t = 0)]
    pub home_wait_ms: u64,
    /// Our policies: how long a long prompt waits for its turn before it stands in line at a busy engine, in ms.
    #[arg(long, default_value_t = TURN_WAIT_MS)]
    pub turn_wait_ms: u64,
    /// Our policies: how often a long prompt gives way, while it is prefilled, to conversations that come home.
    #[arg(long, default_value_t = GIVE_WAY_MAX)]
    pub give_way_max: u32,
    /// Our policies: the index assumes so many times the real capacity.
    #[arg(long, default_value_t = 1.0)]
    pub assumed_capacity: f64,
    /// Our policies: observations are published so many seconds late.
    #[arg(long, default_value_t = 0.0)]
    pub publish_delay: f64,
    /// Our policies: shards requests come to.
    #[arg(long, default_value_t = 1)]
    pub shards: usize,
    /// Our policies: engines do not report cached tokens.
    #[arg(long)]
    pub no_reports: bool,
    /// Our policies: requests do not name their conversations.
    #[arg(long)]
    pub no_conversations: bool,
    /// Runs at once.
    #[arg(long, default_value_t = 2)]
    pub jobs: usize,
}

fn outage(text: &str) -> Result<Outage, String> {
    let wrong = || format!("\"{text}\" is not ENGINE:FROM or ENGINE:FROM:TO");
    let mut parts = text.split(':');
    let engine = parts.next().and_then(|part| part.parse().ok()).ok_or_else(wrong)?;
    let mut seconds = parts.map(|part| part.parse::<f64>().ok().filter(|at| at.is_finite()));
    let at_s = seconds.next().flatten().ok_or_else(wrong)?;
    let back_s = match seconds.next() {
        Some(back) => Some(back.filter(|back| *back > at_s).ok_or_else(wrong)?),
        None => None,
    };
    Ok(Outage { engine, at_s, back_s })
}
