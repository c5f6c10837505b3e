//! The product's command line: serve, check a configuration, or run the demo.

use std::process::ExitCode;

use clap::Parser;
use config::Config;
use proxy::cli::{Cli, Command, ServeArgs};
use proxy::start::{Running, StartOptions, start};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Wrong command line or configuration (`EX_USAGE`).
const EXIT_USAGE: u8 = 64;
/// Could not start (`EX_SOFTWARE`).
const EXIT_START: u8 = 70;

fn main() -> ExitCode {
    proxy::pages::begin_small();
    proxy::pages::give_back_soon();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // `--help` and `--version` are no errors.
            let code = if error.use_stderr() { EXIT_USAGE } else { 0 };
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    match cli.command {
        Some(Command::Check(args)) => check(&args.config),
        Some(Command::Demo(args)) => finish(proxy::demo::run(&args)),
        None => serve(&cli.serve),
    }
}

fn check(path: &std::path::Path) -> ExitCode {
    match Config::load(path) {
        Ok(config) => {
            proxy::say::out(&config.effective_toml());
            ExitCode::SUCCESS
        }
        Err(error) => usage(&error.to_string()),
    }
}

fn serve(args: &ServeArgs) -> ExitCode {
    let config = match (&args.config, args.backend.as_slice()) {
        (Some(path), _) => Config::load(path),
        (None, []) => {
            return usage("nothing to serve: give --config FILE or --backend URL (or try `demo`)");
        }
        (None, backends) => Config::from_backends(backends, &args.listen, args.admin),
    };
    let config = match config {
        Ok(config) => config,
        Err(error) => return usage(&error.to_string()),
    };
    if args.takeover && config.takeover_socket.is_none() {
        return usage("--takeover needs takeover_socket in the configuration");
    }
    let options = StartOptions { take_signals: true, take_over: args.takeover };
    finish(start(config, options).map(Running::announce_and_wait))
}

fn finish<E: std::fmt::Display>(result: Result<(), E>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            proxy::say::err(&error.to_string());
            ExitCode::from(EXIT_START)
        }
    }
}

fn usage(message: &str) -> ExitCode {
    proxy::say::err(message);
    ExitCode::from(EXIT_USAGE)
}
