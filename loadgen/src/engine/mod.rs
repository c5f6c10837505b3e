//! Simulated inference engines.
