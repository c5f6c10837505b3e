//! The HTTP/1 codec against everything an edge meets: tables of bytes and verdicts, every limit at
//! its edge, every cut of the input, naive twins under random input, and a judge that is not ours.

mod chunked_bodies;
mod desync;
mod limits;
mod random_heads;
mod request_framing;
mod request_syntax;
mod responses;
mod rewriting;
mod support;
