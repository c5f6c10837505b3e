//! Why a request body could not be read. Holds a kind and a place, never a byte of the body.

use std::fmt;

/// A body that cannot be read, with the byte offset at which reading stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptError {
    /// What is wrong.
    pub kind: PromptErrorKind,
    /// Byte offset in the (decoded) body.
    pub at: usize,
}

/// What is wrong with a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptErrorKind {
    /// Not JSON; the text says what was expected.
    Syntax(&'static str),
    /// Nested deeper than [`crate::limits::JSON_DEPTH_MAX`].
    TooDeep,
    /// More values than [`crate::limits::JSON_VALUES_MAX`].
    TooManyValues,
    /// Longer than offsets can count (4 GiB).
    TooLong,
    /// JSON, but not an object.
    NotAnObject,
    /// A key that decides routing stands twice: engines differ in which one they take.
    Duplicate(&'static str),
    /// A value that decides routing is not UTF-8 text.
    NotText(&'static str),
}

impl PromptError {
    pub(crate) fn new(kind: PromptErrorKind, at: usize) -> PromptError {
        PromptError { kind, at }
    }

    pub(crate) fn syntax(expected: &'static str, at: usize) -> PromptError {
        PromptError::new(PromptErrorKind::Syntax(expected), at)
    }
}

impl fmt::Display for PromptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at;
        match self.kind {
            PromptErrorKind::Syntax(expected) => {
                write!(f, "the body is not valid JSON: expected {expected} at byte {at}")
            }
            PromptErrorKind::TooDeep => write!(f, "the body is nested too deeply at byte {at}"),
            PromptErrorKind::TooManyValues => write!(f, "the body holds too many values"),
            PromptErrorKind::TooLong => write!(f, "the body is too long"),
            PromptErrorKind::NotAnObject => write!(f, "the body is not a JSON object"),
            PromptErrorKind::Duplicate(key) => {
                write!(f, "the key \"{key}\" stands twice, again at byte {at}")
            }
            PromptErrorKind::NotText(key) => write!(f, "\"{key}\" is not valid text"),
        }
    }
}

impl std::error::Error for PromptError {}
