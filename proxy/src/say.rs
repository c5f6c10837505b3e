//! What the process says to the person who started it. The only place that writes to the terminal.

use std::io::Write;

/// A line, or several, on standard output.
pub fn out(text: &str) {
    // Nobody is left to hear of a closed terminal.
    let _ = writeln!(std::io::stdout().lock(), "{}", text.trim_end());
}

/// One line of a log, as it is, on standard error.
pub fn log(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", line.trim_end());
}

/// The same on standard error, after the product's name.
pub fn err(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "shearwater: {}", text.trim_end());
}
