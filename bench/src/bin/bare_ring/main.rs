//! `shearwater-bare-ring`: the least a relay on io_uring can do, to hold proxies against.
//!
//! One thread, one ring, multishot receives into buffers shared with the kernel, replies sent from the very buffer they
//! arrived in. It finds the ends of heads and bodies and nothing else: it checks nothing, chooses backends in turn, keeps no
//! record, and closes both sides when anything is odd. It is a yardstick; never put it before anything.

mod relay;
mod ring;
mod wire;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;

use clap::Parser;
use socket2::{Domain, Socket, Type};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Connections the kernel may hold for us before they are accepted.
const BACKLOG: i32 = 4_096;

/// The least a relay on io_uring can do: a lower bound for comparisons, and nothing to serve with.
#[derive(Debug, Parser)]
#[command(name = "shearwater-bare-ring", version)]
struct Args {
    /// Where clients connect; port 0 lets the system choose.
    #[arg(long)]
    listen: SocketAddr,
    /// A backend; repeat it for each.
    #[arg(long, required = true)]
    backend: Vec<SocketAddr>,
}

fn main() -> ExitCode {
    // As ours does; huge pages are cleared when they are first touched, in the middle of a relay.
    proxy::pages::begin_small();
    let args = Args::parse();
    let result = listener(args.listen).and_then(|listener| {
        bench::print(&format!("listening on {}", listener.local_addr()?));
        relay::run(&listener, args.backend)
    });
    let Err(error) = result;
    bench::complain(&error.to_string());
    ExitCode::FAILURE
}

/// A listener with a backlog that takes thousands of connections at once.
fn listener(listen: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(listen), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&listen.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}
