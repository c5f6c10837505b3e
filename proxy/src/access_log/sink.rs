//! Where lines end up: standard output, or a file that is appended to and can be opened anew.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// An open destination.
#[derive(Debug)]
pub(super) enum Sink {
    /// Standard output.
    Stdout,
    /// A file.
    File(PathBuf, File),
}

impl Sink {
    /// `None` when nothing is to be written.
    pub(super) fn open(access: &config::AccessLog) -> io::Result<Option<Sink>> {
        Ok(match access {
            config::AccessLog::Off => None,
            config::AccessLog::Stdout => Some(Sink::Stdout),
            config::AccessLog::File(path) => Some(Sink::File(path.clone(), append(path)?)),
        })
    }

    /// Writes whole lines.
    pub(super) fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Sink::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(lines)?;
                out.flush()
            }
            Sink::File(_, file) => file.write_all(lines),
        }
    }

    /// Opens the file by its name again; the old one stays in use when that fails.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        if let Sink::File(path, file) = self {
            *file = append(path)?;
        }
        Ok(())
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}
