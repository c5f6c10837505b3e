//! JSON as a table of spans over the untouched body, built in one pass and read in any order.
//!
//! Why not a library: the prompt is rendered in another order than it stands in (tools come last in what clients send
//! and first in what templates show), so lazy readers scan every level again, and the lazy reader measured for this
//! product (sonic-rs 0.5.10) recurses without a bound: 100,000 opening brackets end the process. This reader has an
//! explicit stack, never recurses while scanning, never copies text and never allocates for it.
//!
//! What it accepts is what engines accept: Python's and nlohmann's grammar, with Python's `NaN` and `Infinity` and a
//! leading byte order mark. It checks structure, not the inside of strings: a wrong escape, a raw control character or
//! broken UTF-8 is left to the engine to refuse, since it changes no boundary.

mod ending;
mod number;
mod scan;
mod text;
mod value;
mod vectors;

pub(crate) use ending::Spelling;
pub(crate) use number::{canonical as canonical_number, is_plain as is_canonical_number};
pub(crate) use scan::Tape;
pub(crate) use text::Text;
pub(crate) use value::Value;

/// What stands at a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Null,
    True,
    False,
    Number,
    /// A string; its span excludes the quotes.
    Text,
    /// Followed by key, value, key, value …
    Object,
    Array,
    /// An array of numbers only: one token, so that a prompt of token ids costs no table.
    Numbers,
}

/// One value: its bytes and where the next value after its whole subtree stands in the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) start: u32,
    pub(crate) end: u32,
    pub(crate) next: u32,
    pub(crate) kind: Kind,
    /// For [`Kind::Text`]: how the span is spelled. For [`Kind::Numbers`]: odd if it contains anything but canonical
    /// numbers and commas. Plain for all others.
    pub(crate) spelling: Spelling,
}

const NULL: Token =
    Token { start: 0, end: 0, next: 0, kind: Kind::Null, spelling: Spelling::Plain };
