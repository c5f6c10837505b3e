//! A proxy, scripted and simulated backends, and raw clients, so that tests read as sentences.
//!
//! Everything listens on ports the system chose, waits on events with a deadline, and never sleeps for a
//! result.

pub mod backend;
pub mod client;
pub mod fleet;
pub mod narrow;
pub mod process;
pub mod proxy;

pub use backend::{Conn, Script};
pub use client::{Client, Reply};
pub use fleet::{Fleet, engine, engine_at_many, urls_at_many};
pub use narrow::{Sips, narrow};
pub use process::{Launched, Process};
pub use proxy::{Proxy, config_text, eventually, settled};

use std::time::Duration;

/// How long a test waits for what must happen. Generous: machines under test are slow and busy.
pub const PATIENCE: Duration = Duration::from_secs(20);
