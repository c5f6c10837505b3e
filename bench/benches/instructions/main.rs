//! How many instructions the hot functions take, counted by callgrind: the same on a busy machine as on an idle one.
//!
//! The counts stand in `baseline.txt`; one that grew by more than five in a hundred fails the run. A change that is worth
//! it is accepted by `cargo bench -p bench --bench instructions -- --update`, with the reason in the commit that changes
//! the file. A guard that cannot fail guards nothing: every run also counts the same cases slowed down on purpose, by an
//! operation in sixteen done twice, and fails if one of them would have passed. Needs `valgrind`; `--smoke` runs the cases once without it. A count depends on the compiler, the C library and
//! the vector units of the machine, too: after a change of those the baseline is taken anew.

mod baseline;
mod cases;
mod count;
mod profile;

use std::process::ExitCode;

use bench::{Bench, complain};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The argument of the process that is counted; the number of rounds comes behind it.
const COUNTED: &str = "--counted";

/// Rounds that a case slowed down on purpose takes: six in a hundred more.
const SLOWED_ROUNDS: u64 = cases::ROUNDS + cases::ROUNDS / 16;

const HOW_TO_GO_ON: &str = "Instruction counts are not those of bench/benches/instructions/baseline.txt. Make the code \
    cheaper, or, if what it buys is worth it, run `cargo bench -p bench --bench instructions -- --update` and commit the \
    file with the reason.";

fn main() -> ExitCode {
    let bench = Bench::from_args();
    let asked = |flag: &str| std::env::args().any(|arg| arg == flag);
    if let Some(rounds) = counted_rounds().or(bench.is_smoke().then_some(1)) {
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

/// The rounds asked for, in the process that is counted.
fn counted_rounds() -> Option<u64> {
    std::env::args().skip_while(|arg| arg != COUNTED).nth(1)?.parse().ok()
}

/// Counts, and compares or, to `update` it, replaces the baseline. Returns whether all is well.
fn check(bench: &Bench, update: bool) -> std::io::Result<bool> {
    let counts = count::count(&cases::NAMES, cases::ROUNDS)?;
    let verdict = baseline::compare(&counts)?;
    verdict.lines.iter().for_each(|line| bench.line(line));
    if update {
        baseline::write(&counts)?;
    }
    let is_awake = sees_a_slow_down(bench, &counts)?;
    Ok(is_awake && (verdict.is_fine || update))
}

/// Whether each case, slowed down on purpose, would have failed beside what it takes now.
fn sees_a_slow_down(bench: &Bench, counts: &baseline::Counts) -> std::io::Result<bool> {
    let slowed = count::count(&cases::NAMES, SLOWED_ROUNDS)?;
    let passed = baseline::unseen(counts, &slowed);
    if passed.is_empty() {
        bench.line(
            "slowed down on purpose, an operation in sixteen done twice: every case is refused",
        );
    } else {
        complain(&format!("slowed down on purpose and not refused: {}", passed.join(", ")));
    }
    Ok(passed.is_empty())
}
