//! The decision core: pure, lock-free for readers, no clock, no socket, no log.
#![forbid(unsafe_code)]
