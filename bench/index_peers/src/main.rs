//! The index beside the indexes of other routers, in one process: Dynamo's compressed radix tree and positional table,
//! and SMG's chain index. All replay the same requests at the same deadlines on the same cores, in turns.
//!
//! What is compared is the index as a router uses it: find every backend's overlap, and take in what engines store and
//! evict. Neither hashing nor the choice of a backend is part of it.

mod agreement;
mod args;
mod clock;
mod contenders;
mod cores;
#[path = "../../src/facts.rs"]
mod facts;
mod holdings;
#[path = "../../src/memory.rs"]
mod memory;
mod output;
mod plan;
mod results;
mod rounds;
#[expect(dead_code, reason = "shared with the other benchmarks")]
#[path = "../../src/spread.rs"]
mod spread;
mod table;
mod trace;
mod trial;

use clap::Parser;

use args::Args;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), String> {
    let args = Args::parse();
    let Some(path) = args.trace_path() else {
        output::complain(
            "SKIPPED: no trace. Give --trace FILE, or TRACES, the folder of mooncake_conversation.jsonl.gz.",
        );
        return Ok(());
    };
    let arrivals = trace::read(&path)?;
    if let Some(name) = &args.memory_of {
        return rounds::print_memory(&args, &arrivals, name);
    }
    rounds::compare(&args, &arrivals)
}
