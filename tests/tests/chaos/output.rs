//! The one place of these tests that prints: past the capture of the test runner, so that the seed and the figures are seen.

use std::io::Write;

/// Prints a line.
pub(crate) fn say(line: &str) {
    // A run whose output is closed is still a run.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
