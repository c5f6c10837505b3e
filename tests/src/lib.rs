//! What the tests of this package share: the harness of the whole-process tests and the house rules. It
//! holds no test of its own.
#![forbid(unsafe_code)]

pub mod harness;
pub mod tidy;
