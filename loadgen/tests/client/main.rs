//! The client workloads against a server of the test's own.

mod command_line;
mod connections;
mod conversations;
mod faults;
mod open_loop;
mod server;
