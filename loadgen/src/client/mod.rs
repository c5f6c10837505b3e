//! Client workloads: conversations, open-loop arrivals, trace replay.
//!
//! A [`Workload`] sends requests as real clients do and judges every reply as a strict client
//! would. [`Workload::start`] returns a [`Handle`] to watch it by; the command line is one caller
//! of that, a program's own demonstration another. It speaks HTTP only and knows nothing of the
//! proxy it is pointed at, but for the response header that names the backend.
//!
//! Time is measured from the intended send time, so that a server that stalls is charged for the
//! requests that had to wait meanwhile ("coordinated omission", Tene 2013).
//!
//! ```no_run
//! # async fn watch() -> Result<(), loadgen::client::Error> {
//! use loadgen::client::{Options, Workload};
//!
//! let handle = Workload::start(Options::new("http://127.0.0.1:8080"))?;
//! let live = handle.snapshot();
//! assert_eq!(live.in_flight, live.sent - live.done);
//! handle.ended().await;
//! assert_eq!(handle.report().requests.failed, 0);
//! # Ok(())
//! # }
//! ```

mod arrival;
mod body;
mod budget;
mod cancel;
mod closed;
mod conversation;
mod error;
mod exchange;
mod fault;
mod http;
mod library;
mod live;
mod open;
mod options;
mod reading;
mod recorder;
mod reply;
mod seed;
mod silence;
mod sse;
mod stop;
mod tally;
mod text;
mod trace;
mod workload;

pub mod args;

pub use error::Error;
pub use live::LiveStats;
pub use options::{
    Arrivals, Connections, Dialect, Load, Options, Shape, Sizes, TraceOptions, Until,
};
pub use workload::{Handle, Workload};
