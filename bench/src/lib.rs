//! The stop-watch of the micro-benchmarks, which knows nothing of what it measures, and the [`arena`].
//!
//! Each case is run in batches; printed are the median and the fastest batch, in nanoseconds an operation,
//! and a checksum that keeps the compiler honest. With `--smoke` every case runs once, to show that it does.
//! Absolute times mean little on a busy machine: compare cases of one run.
#![forbid(unsafe_code)]

pub mod arena;
mod clock;
mod facts;
mod memory;
mod output;
pub mod sample;
mod spread;

pub use clock::Stopwatch;
pub use facts::facts;
pub use memory::resident_bytes;
pub use spread::Spread;

use std::cell::RefCell;
use std::path::PathBuf;

use clock::timed;
use serde_json::Value;

pub use output::{complain, print};

/// Batches of a measured run.
const BATCHES: usize = 31;
/// Time a batch should take, nanoseconds: long against the clock's resolution, short against a scheduler's.
const BATCH_NS: u128 = 5_000_000;

/// A running set of benchmarks.
#[derive(Debug, Default)]
pub struct Bench {
    smoke: bool,
    filter: Option<String>,
    /// Where the rows go in the end.
    json: Option<PathBuf>,
    rows: RefCell<Vec<Value>>,
}

impl Bench {
    /// Reads the command line: `--smoke`, `--json FILE`, or a part of the names to run.
    pub fn from_args() -> Bench {
        let mut bench = Bench::default();
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--smoke" => bench.smoke = true,
                "--json" => bench.json = args.next().map(PathBuf::from),
                // What cargo itself adds.
                flag if flag.starts_with("--") => {}
                name => bench.filter = Some(name.to_owned()),
            }
        }
        bench
    }

    /// Whether everything is to be tiny, and run only to show that it does.
    pub fn is_smoke(&self) -> bool {
        self.smoke
    }

    /// Whether a part of this name was asked for.
    pub fn wants(&self, name: &str) -> bool {
        self.filter.as_ref().is_none_or(|filter| name.contains(filter.as_str()))
    }

    /// Prints a line of results that were measured by other means.
    pub fn line(&self, text: &str) {
        print(text);
    }

    /// Keeps a row of results for [`finish`](Self::finish).
    pub fn row(&self, row: Value) {
        self.rows.borrow_mut().push(row);
    }

    /// The rows kept so far; none are kept afterwards.
    pub fn take_rows(&self) -> Vec<Value> {
        self.rows.take()
    }

    /// Writes the rows where `--json` said, with the facts of machine and commit.
    pub fn finish(&self) {
        let Some(path) = &self.json else { return };
        let kept = serde_json::json!({ "facts": facts(), "rows": self.take_rows() });
        let text = serde_json::to_string_pretty(&kept).unwrap_or_default() + "\n";
        if let Err(error) = std::fs::write(path, text) {
            complain(&format!("the rows cannot be written to {}: {error}", path.display()));
        }
    }

    /// Measures `operation`, which returns something of its result.
    pub fn case(&self, name: &str, mut operation: impl FnMut() -> u64) {
        if !self.wants(name) {
            return;
        }
        if self.smoke {
            let checksum = operation();
            return print(&format!("{name:44} ran, checksum {checksum:016x}"));
        }
        let count = calibrate(&mut operation);
        let mut checksum = 0;
        let mut batches: Vec<u128> = (0..BATCHES)
            .map(|_| timed(count, &mut operation, &mut checksum) / u128::from(count))
            .collect();
        batches.sort_unstable();
        let (median, fastest) = (batches[BATCHES / 2], batches[0]);
        let (median_ns, fastest_ns) = (median as u64, fastest as u64);
        self.row(
            serde_json::json!({ "case": name, "median_ns": median_ns, "fastest_ns": fastest_ns }),
        );
        print(&format!("{name:44} {median:9} ns median {fastest:9} ns fastest  {checksum:016x}"));
    }
}

/// How many operations make a batch.
fn calibrate(operation: &mut impl FnMut() -> u64) -> u64 {
    let mut count = 1;
    loop {
        let took = timed(count, operation, &mut 0);
        if took * 4 >= BATCH_NS {
            let wanted = u128::from(count) * BATCH_NS / took.max(1);
            return u64::try_from(wanted).unwrap_or(u64::MAX).max(1);
        }
        count *= 4;
    }
}
