//! The only place of this crate that prints.

/// A line of results.
pub(crate) fn print(line: &str) {
    println!("{line}");
}

/// A line for whoever waits.
pub(crate) fn complain(line: &str) {
    eprintln!("{line}");
}
