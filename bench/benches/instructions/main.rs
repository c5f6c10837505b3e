//! How many instructions the hot functions take, counted by callgrind: the same on a busy machine as on an idle one.
//!
//! The counts stand in `baseline.txt`; one that grew by more than five in a hundred fails the run. A change that is worth
//! it is accepted by `cargo bench -p bench --bench instructions -- --update`, with the reason in the commit that changes
//! the file. Needs `valgrind`; `--smoke` runs the cases once without it. A count depends on the compiler, the C library and
//! the vector units of the machine, too: after a change of those the baseline is taken anew.

mod baseline;
mod cases;
mod count;
mod profile;

use std::process::ExitCode;

use bench::{Bench, complain};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The argument of the process that is counted.
const COUNTED: &str = "--counted";

const HOW_TO_GO_ON: &str = "Instruction counts are not those of bench/benches/instructions/baseline.txt. Make the code \
    cheaper, or, if what it buys is worth it, run `cargo bench -p bench --bench instructions -- --update` and commit the \
    file with the reason.";

fn main() -> ExitCode {
    let bench = Bench::from_args();
    let asked = |flag: &str| std::env::args().any(|arg| arg == flag);
    if asked(COUNTED) || bench.is_smoke() {
        let rounds = if bench.is_smoke() { 1 } else { cases::ROUNDS };
        bench.line(&format!("instructions: every case ran, checksum {:016x}", cases::run(rounds)));
        return ExitCode::SUCCESS;
    }
    match check(&bench, asked("--update")) {
        Ok(true) => return ExitCode::SUCCESS,
        Ok(false) => complain(HOW_TO_GO_ON),
        Err(error) => complain(&format!("instructions cannot be counted: {error}")),
    }
    ExitCode::FAILURE
}

/// Counts, and compares or, to `update` it, replaces the baseline. Returns whether all is well.
fn check(bench: &Bench, update: bool) -> std::io::Result<bool> {
    let counts = count::count(&cases::NAMES)?;
    let verdict = baseline::compare(&counts)?;
    verdict.lines.iter().for_each(|line| bench.line(line));
    if update {
        baseline::write(&counts)?;
    }
    Ok(verdict.is_fine || update)
}
