//! The data path and the process around it. It alone knows sockets, JSON and HTTP.

pub mod answer;
pub mod api;
pub mod conversation;
pub mod encoding;
pub mod http;
pub mod limits;
pub mod prompt;
pub mod sse;
pub mod usage;
