//! Client workloads: conversations, open-loop arrivals, trace replay.
//!
//! A [`Workload`] sends requests as real clients do and judges every reply as a strict client
//! would. [`Workload::start`] returns a [`Handle`] to watch it by; the command line is one caller
//! of that, a program's own demonstration another. It speaks HTTP only and knows nothing of the
//! proxy it is pointed at, but for the response header that names the backend.
//!
//! Time is measured from the intended send time, so that a server that stalls is charged for the
//! requests that had to wait meanwhile ("coordinated omission", Tene 2013).

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
mod reply;
mod seed;
mod silence;
mod sse;
mod stats;
mod stop;
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
