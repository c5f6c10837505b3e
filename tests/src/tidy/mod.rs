//! The house rules as pure functions over the repository's files.
//!
//! A convention that only reviewers know is forgotten; here each is a function from a [`Tree`] to
//! its [`Finding`]s. `tests/tests/tidy` runs each on this repository and on files that break it,
//! so that no rule is one that cannot fail. Nothing here reads a file but [`Tree::of_workspace`],
//! and nothing here changes one.

pub mod documents;
pub mod layers;
pub mod literals;
pub mod names;
pub mod purity;
pub mod safety;
pub mod shape;
mod tree;

use std::fmt;

pub use tree::{File, Tree};

/// One place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Path from the root of the repository.
    pub path: String,
    /// Line, counted from 1; 0 for the file as a whole.
    pub line: usize,
    /// What is wrong and what to do instead.
    pub what: String,
}

impl Finding {
    /// A finding on one line of a file.
    pub fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

/// The findings as the text of a failed test, one a line.
pub fn listed(findings: &[Finding]) -> String {
    findings.iter().map(|finding| format!("\n  {finding}")).collect()
}
