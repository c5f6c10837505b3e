//! The static configuration file, typed and checked.
#![forbid(unsafe_code)]
