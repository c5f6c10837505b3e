//! One connection from accept to close: requests in, replies out, in the persona's manners, with the faults in force.

mod generate;
mod plain;
mod prepare;
mod route;
mod session;
mod stream;

pub(super) use session::serve;
