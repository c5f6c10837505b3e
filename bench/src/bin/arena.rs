//! The arena as a program. It only reads the command line.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use bench::arena::{self, args::Args};
use clap::Parser;

fn main() -> ExitCode {
    match arena::main(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            bench::complain(&error.to_string());
            ExitCode::FAILURE
        }
    }
}
