//! The only place of this crate that prints.

/// One line of results.
#[expect(clippy::print_stdout, reason = "a benchmark's output is its result")]
pub fn print(line: &str) {
    println!("{line}");
}

/// One line of complaint.
#[expect(clippy::print_stderr, reason = "complaints do not belong among the results")]
pub fn complain(line: &str) {
    eprintln!("{line}");
}
