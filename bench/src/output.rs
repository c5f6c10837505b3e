//! The only place of this crate that prints.

/// One line of results.
#[expect(clippy::print_stdout, reason = "a benchmark's output is its result")]
pub(crate) fn print(line: &str) {
    println!("{line}");
}
