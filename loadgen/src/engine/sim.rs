//! A running simulated engine, as a value to hold. It owns two tasks (accepting, and moving the model) and one task a
//! connection; no thread. Dropping it ends everything at once.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Duration;

use super::faults::{Faults, FaultsError};
use super::ledger::Ledger;
use super::options::EngineOptions;
use super::serve::serve;
use super::shared::{Phase, Shared};
use super::state::EngineState;

/// Why an engine did not start.
#[derive(Debug)]
pub enum StartError {
    /// There is no tokio runtime here.
    NoRuntime,
    /// The address cannot be listened on.
    Listen(SocketAddr, io::Error),
    /// The file of taken prompts cannot be written.
    Ledger(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::NoRuntime => {
                f.write_str("a simulated engine needs a tokio runtime around it")
            }
            StartError::Listen(addr, error) => write!(f, "cannot listen on {addr}: {error}"),
            StartError::Ledger(error) => write!(f, "cannot write the ledger: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

/// A running simulated engine.
#[derive(Debug)]
pub struct SimEngine {
    shared: Arc<Shared>,
    addr: SocketAddr,
    accepting: Option<JoinHandle<()>>,
}

impl SimEngine {
    /// Starts an engine on the current tokio runtime. It listens when this returns.
    pub fn start(options: EngineOptions) -> Result<Self, StartError> {
        let runtime = Handle::try_current().map_err(|_| StartError::NoRuntime)?;
        let listen = options.listen;
        let door = Door::reserve(listen).map_err(|error| StartError::Listen(listen, error))?;
        let addr = door.addr;
        let refuse = options.faults.refuse;
        let listener = if refuse { None } else { Some(door.open()) }
            .transpose()
            .map_err(|error| StartError::Listen(addr, error))?;
        let ledger = Ledger::open(options.ledger.as_deref()).map_err(StartError::Ledger)?;
        let shared = Shared::new(options, ledger);
        let driver = runtime.spawn(drive(Arc::clone(&shared)));
        let accepting = runtime.spawn(accept(Arc::clone(&shared), door, listener, driver));
        Ok(Self { shared, addr, accepting: Some(accepting) })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `http://` and the address.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// What it did and does.
    pub fn state(&self) -> EngineState {
        self.shared.tick();
        self.shared.state()
    }

    /// The faults in force.
    pub fn faults(&self) -> Faults {
        self.shared.faults.borrow().clone()
    }

    /// Puts these faults in force, in place of all before.
    pub fn set_faults(&self, faults: Faults) {
        self.shared.patch_faults(|current| *current = faults);
    }

    /// Changes the faults a JSON object names, as `POST /sim/faults` does.
    pub fn patch_faults(&self, patch: &serde_json::Value) -> Result<(), FaultsError> {
        let faults = self.faults().patched(patch)?;
        self.set_faults(faults);
        Ok(())
    }

    /// The process dies and comes back on the same port: cache and counters are gone, the identity is new, connections reset.
    pub fn restart(&self) {
        self.shared.restart();
    }

    /// Forgets everything cached, without a trace but in the counters.
    pub fn forget_cache(&self) {
        self.shared.forget_cache();
    }

    /// Takes no more connections, answers the requests that are here, and ends.
    pub async fn stop(mut self) {
        self.end(Phase::Stopping).await;
    }

    /// Resets every connection and frees the port, as if the process had been killed.
    pub async fn kill(mut self) {
        self.end(Phase::Killed).await;
    }

    async fn end(&mut self, phase: Phase) {
        self.shared.life.send_modify(|life| life.phase = phase);
        if let Some(accepting) = self.accepting.take() {
            // It panics only where a connection did, and then there is nothing left to wait for either.
            let _ = accepting.await;
        }
    }
}

impl Drop for SimEngine {
    fn drop(&mut self) {
        self.shared.life.send_modify(|life| life.phase = Phase::Killed);
    }
}

/// The port: kept by a socket that never listens, so that refusing connections does not lose it to another process.
#[derive(Debug)]
struct Door {
    _reserved: Socket,
    addr: SocketAddr,
}

impl Door {
    fn reserve(listen: SocketAddr) -> io::Result<Self> {
        let reserved = bound(listen)?;
        let addr = reserved.local_addr()?.as_socket();
        let addr =
            addr.ok_or_else(|| io::Error::other("bound to something that is no IP address"))?;
        Ok(Self { _reserved: reserved, addr })
    }

    fn open(&self) -> io::Result<TcpListener> {
        let socket = bound(self.addr)?;
        socket.listen(4_096)?;
        socket.set_nonblocking(true)?;
        TcpListener::from_std(socket.into())
    }
}

fn bound(addr: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&addr.into())?;
    Ok(socket)
}

/// Moves the model, whenever something is due or someone asks for it.
async fn drive(shared: Arc<Shared>) {
    loop {
        let due = shared.tick().map(|at| shared.clock.instant(at));
        let sleep = async {
            match due {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = sleep => {}
            () = shared.wake.notified() => {}
        }
    }
}

async fn accept(
    shared: Arc<Shared>,
    door: Door,
    mut listener: Option<TcpListener>,
    driver: JoinHandle<()>,
) {
    let mut connections = JoinSet::new();
    let mut life = shared.life.subscribe();
    let mut faults = shared.faults.subscribe();
    while life.borrow_and_update().phase == Phase::Running {
        tokio::select! {
            stream = next_stream(listener.as_ref()) => {
                connections.spawn(serve(Arc::clone(&shared), stream));
            }
            Some(_) = connections.join_next() => {}
            _ = life.changed() => {}
            _ = faults.changed() => {
                let refuse = faults.borrow_and_update().refuse;
                listener = if refuse { None } else { reopened(&door, listener.take()) };
            }
        }
    }
    drop((listener, door));
    while connections.join_next().await.is_some() {}
    driver.abort();
}

/// The listener, or a new one. If the port is gone for good the engine is unreachable, as it would be in earnest.
fn reopened(door: &Door, listener: Option<TcpListener>) -> Option<TcpListener> {
    listener.or_else(|| door.open().ok())
}

async fn next_stream(listener: Option<&TcpListener>) -> TcpStream {
    let Some(listener) = listener else { return std::future::pending().await };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            // Out of descriptors, or a connection that was reset before it was taken: the next may do better.
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}
