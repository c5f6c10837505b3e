//! HTTP/1.1 on a plain socket. Written here and not taken from a library, because faults need every byte and every way to close
//! under control. It never interprets bodies.

mod body;
mod conn;
mod head;
mod reply;

pub(super) use body::BodyError;
pub(super) use conn::{Conn, Gone, NoHead};
pub(super) use head::{Head, HeadError};
pub(super) use reply::{Framing, Reply, push_chunk, push_head};
