//! `shearwater-counted`: the product with every allocation counted.
//!
//! It serves as the product does. For each line on its standard input it prints how many allocations the whole process has
//! made so far, so that whoever asks twice knows how many a known amount of work took.

mod counting;

use std::io::BufRead;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use config::Config;
use counting::Counting;
use proxy::start::{StartOptions, start};

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

/// The product with every allocation counted: a line on standard input asks for the count.
#[derive(Debug, Parser)]
#[command(name = "shearwater-counted", version)]
struct Args {
    /// Configuration file of the product.
    #[arg(long)]
    config: PathBuf,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let config = match Config::load(&args.config) {
        Ok(config) => config,
        Err(error) => return failed(&error.to_string()),
    };
    std::thread::spawn(answer);
    match start(config, StartOptions { take_signals: true, take_over: false }) {
        Ok(running) => running.wait(),
        Err(error) => return failed(&error.to_string()),
    }
    ExitCode::SUCCESS
}

fn failed(why: &str) -> ExitCode {
    bench::complain(why);
    ExitCode::FAILURE
}

fn answer() {
    for line in std::io::stdin().lock().lines() {
        if line.is_err() {
            return;
        }
        bench::print(&ALLOCATOR.count().to_string());
    }
}
