//! HTTP/1.1 as this client needs it: own connections, own pool, nothing retried.
//!
//! A benchmark must see what a proxy does to connections, so reuse, hang-up and a dead reused
//! connection are explicit here. It never sends a request twice.

mod connection;
mod pool;
mod target;

pub(crate) use connection::Connection;
pub(crate) use pool::Pool;
pub(crate) use target::Target;
