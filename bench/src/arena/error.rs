//! Why a run could not be made. It names the file and line an operator can look at.

use std::fmt;
use std::path::{Path, PathBuf};

/// Why a run could not be made.
#[derive(Debug)]
pub enum ArenaError {
    /// A file could not be read or written.
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// A line of a trace is not what its format asks for.
    Line {
        /// Of which file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
    /// A trace that holds no request, or too few to give it a pace.
    Empty(PathBuf),
    /// No policy has this name.
    Policy(String),
    /// The configuration was refused.
    Config(String),
    /// The results could not be written as JSON.
    Json(serde_json::Error),
    /// An option that makes no sense with the others.
    Option(String),
}

impl ArenaError {
    pub(crate) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> ArenaError {
        move |error| ArenaError::File { path: path.to_owned(), error }
    }

    pub(crate) fn line(path: &Path, index: usize, what: impl fmt::Display) -> ArenaError {
        ArenaError::Line { path: path.to_owned(), line: index + 1, what: what.to_string() }
    }
}

impl fmt::Display for ArenaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArenaError::File { path, error } => write!(f, "{}: {error}", path.display()),
            ArenaError::Line { path, line, what } => write!(f, "{}:{line}: {what}", path.display()),
            ArenaError::Empty(path) => write!(f, "{}: too few requests to replay", path.display()),
            ArenaError::Policy(name) => {
                write!(f, "there is no policy \"{name}\"; --list names them all")
            }
            ArenaError::Config(what) => f.write_str(what),
            ArenaError::Json(error) => write!(f, "results: {error}"),
            ArenaError::Option(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for ArenaError {}
