//! The one place that writes to the terminal and to report files.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use super::Report;
use super::progress::progress_line;
use super::table::table;
use crate::client::LiveStats;

/// A line of progress on standard error, rewritten in place on a terminal.
#[derive(Debug)]
pub struct ProgressLine {
    in_place: bool,
}

impl ProgressLine {
    /// `None` when standard error is no terminal and nobody insists.
    pub fn new(insist: bool) -> Option<ProgressLine> {
        let in_place = io::stderr().is_terminal();
        (in_place || insist).then_some(ProgressLine { in_place })
    }

    /// Shows the figures of now; `earlier` is the snapshot before, for rates.
    pub fn show(&self, earlier: &LiveStats, now: &LiveStats) {
        let line = progress_line(earlier, now);
        // A closed terminal must not end the measurement.
        let _ = match self.in_place {
            true => write!(io::stderr(), "\r\x1b[2K{line}"),
            false => writeln!(io::stderr(), "{line}"),
        };
        let _ = io::stderr().flush();
    }

    /// Leaves the terminal on a fresh line.
    pub fn end(&self) {
        if self.in_place {
            let _ = write!(io::stderr(), "\r\x1b[2K");
        }
    }
}

/// Writes the report: as JSON to `json` if given (`-` is standard output), and as a table to
/// standard output unless that is taken.
pub fn write_report(report: &Report, json: Option<&Path>) -> io::Result<()> {
    let to_stdout = json.is_some_and(|path| path == Path::new("-"));
    if let Some(path) = json {
        let mut text = serde_json::to_vec_pretty(report)?;
        text.push(b'\n');
        if to_stdout {
            io::stdout().write_all(&text)?;
        } else {
            std::fs::write(path, text)?;
        }
    }
    if !to_stdout {
        io::stdout().write_all(table(report).as_bytes())?;
    }
    Ok(())
}

/// Says on standard error why the program ends.
pub fn complain(error: &dyn std::fmt::Display) {
    let _ = writeln!(io::stderr(), "shearwater-loadgen: {error}");
}
