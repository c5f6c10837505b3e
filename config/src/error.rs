//! What is wrong with a configuration, in full: all problems at once, each with its line.
//!
//! The text of [`ConfigError`] is what the command line prints; it never contains a secret.

use std::fmt;

/// Problems shown of one configuration; a file of another format would fill the screen otherwise.
const PROBLEMS_MAX: usize = 50;

/// Everything found wrong with one configuration. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    source: String,
    problems: Vec<Problem>,
    unlisted: usize,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line in the file, counted from 1; `None` on the command line or for the file as a whole.
    pub line: Option<usize>,
    /// Key with its path, such as `routing.block_bytes`; empty when no key is at fault.
    pub key: String,
    /// The value as typed, shortened, or a placeholder for a secret.
    pub value: Option<String>,
    /// Why it is refused and what would be accepted.
    pub reason: String,
}

impl ConfigError {
    /// `source` is the file's name. Problems are put in the order of their lines.
    pub(crate) fn new(source: &str, mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| problem.line);
        let unlisted = problems.len().saturating_sub(PROBLEMS_MAX);
        problems.truncate(PROBLEMS_MAX);
        Self { source: source.to_owned(), problems, unlisted }
    }

    /// An error about the file as a whole.
    pub(crate) fn whole(source: &str, reason: String) -> Self {
        let problem = Problem { line: None, key: String::new(), value: None, reason };
        Self::new(source, vec![problem])
    }

    /// What is wrong, in the order of the file; the first 50 if there is more.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            f.write_str(&self.source)?;
            if let Some(line) = problem.line {
                write!(f, ":{line}")?;
            }
            write!(f, ": {problem}")?;
        }
        match self.unlisted {
            0 => Ok(()),
            count => write!(f, "\n{}: and {count} more", self.source),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.key.as_str(), &self.value) {
            ("", _) => f.write_str(&self.reason),
            (key, None) => write!(f, "{key}: {}", self.reason),
            (key, Some(value)) => write!(f, "{key} = {value}: {}", self.reason),
        }
    }
}

impl std::error::Error for ConfigError {}
