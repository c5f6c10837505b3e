//! Why a workload could not be started.
//!
//! Failures of requests are results, not errors: they are counted in the report.

use std::fmt;
use std::path::PathBuf;

/// What stops a workload before its first request.
#[derive(Debug)]
pub enum Error {
    /// An option has a value that cannot be run.
    Option {
        /// The option as spelled on the command line.
        option: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// An address could not be understood or resolved.
    Url {
        /// The address as given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A trace could not be read.
    Trace {
        /// The file.
        file: PathBuf,
        /// Line number from 1, or 0 for the file as a whole.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// A thread or the runtime could not be started.
    Start(std::io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Option { option, reason } => write!(f, "{option} {reason}"),
            Error::Url { url, reason } => write!(f, "--url {url}: {reason}"),
            Error::Trace { file, line: 0, reason } => {
                write!(f, "--trace {}: {reason}", file.display())
            }
            Error::Trace { file, line, reason } => {
                write!(f, "--trace {} line {line}: {reason}", file.display())
            }
            Error::Start(error) => write!(f, "cannot start: {error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Start(error) => Some(error),
            _ => None,
        }
    }
}
