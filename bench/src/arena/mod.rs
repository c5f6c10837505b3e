//! The arena: a deterministic discrete-event simulator that runs the product's own decision core, and models of other
//! routers, against workloads, so that a policy is chosen and tuned on an operator's own traffic before it is deployed.
//!
//! It makes no claim about a real engine beyond its model (see [`engine`]): prefill cost is linear in uncached tokens, and
//! there are no KV tiers and no batching gain. Nothing here reads a clock.

pub mod args;
pub mod bars;
pub mod cells;
pub mod decode;
pub mod engine;
mod error;
mod hashing;
pub mod holders;
pub mod job;
pub mod memory;
pub mod mersenne;
mod page;
pub mod results;
pub mod routers;
pub mod scene;
pub mod sim;
pub mod source;
pub mod table;
pub mod time;
pub mod workload;

use std::path::Path;

use args::Args;
use cells::{Cell, Scale};
use results::Row;
use routers::{CONFIGURED, Entry, Kind};

pub use error::ArenaError;

use crate::output::print;

/// Does what the command line asks.
pub fn main(args: &Args) -> Result<(), ArenaError> {
    if args.list {
        routers::all().iter().for_each(|entry| print(&entry.name));
        return Ok(());
    }
    let entries = entries(args)?;
    let scales = cells::scales(args)?;
    print(&table::head());
    let show = |cell: &Cell<'_>| print(&table::line(&row(args, cell)));
    let cells = cells::run_all(args, &scales, &entries, show);
    let rows: Vec<Row> = cells.iter().map(|cell| row(args, cell)).collect();
    bars::compared(&rows).iter().for_each(|line| print(line));
    if let Some(path) = &args.json {
        write(path, &table::json(&rows)?)?;
    }
    if let Some(path) = &args.html {
        write(path, &page::page(args, &scales, &cells)?)?;
    }
    if let Some(path) = &args.facts {
        write(path, &format!("{:#}\n", crate::facts()))?;
    }
    Ok(())
}

/// The routers asked for, and the configured one.
fn entries(args: &Args) -> Result<Vec<Entry>, ArenaError> {
    let mut entries = routers::named(&args.policy)?;
    if let Some(path) = &args.config {
        let config =
            config::Config::load(path).map_err(|error| ArenaError::Config(error.to_string()))?;
        let kind = Kind::Product(proxy::start::policy_of(&config));
        entries.push(Entry { name: CONFIGURED.to_owned(), kind });
    }
    Ok(entries)
}

fn row(args: &Args, cell: &Cell<'_>) -> Row {
    let Scale { trace, setting, .. } = cell.scale;
    cell.outcome.row(trace, &cell.entry.name, args.capacity, setting)
}

fn write(path: &Path, text: &str) -> Result<(), ArenaError> {
    std::fs::write(path, text).map_err(ArenaError::file(path))
}
