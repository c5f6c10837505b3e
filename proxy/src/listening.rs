//! Listening sockets: bound anew, or taken over from the process that runs.
//!
//! One socket an address for all shards: whoever has the least connections takes the next.

use std::io;
use std::net::{SocketAddr, TcpListener};

use config::Config;

use crate::limits::LISTEN_BACKLOG;
use crate::start::StartError;
use crate::takeover::{Offer, Role, Taking};

/// The sockets of one process.
#[derive(Debug)]
pub(crate) struct Listening {
    /// Where clients come, in the order of the configuration.
    data: Vec<TcpListener>,
    /// Where operators come.
    pub(crate) admin: TcpListener,
}

impl Listening {
    /// Opens what the configuration asks for; what is offered is taken, what is not is bound.
    ///
    /// # Errors
    /// When an address cannot be bound.
    pub(crate) fn open(
        config: &Config,
        mut taking: Option<&mut Taking>,
    ) -> Result<Listening, StartError> {
        let mut socket = |role, address| {
            let taken = taking.as_mut().and_then(|taking| taking.listener(role, address));
            taken.map_or_else(|| bind(address), Ok)
        };
        let data = config.listen.iter().map(|&address| {
            socket(Role::Listen, address).map_err(|e| StartError::listening("", address, e))
        });
        let data = data.collect::<Result<_, _>>()?;
        let admin = socket(Role::Admin, config.admin)
            .map_err(|e| StartError::listening("admin address ", config.admin, e))?;
        Ok(Listening { data, admin })
    }

    /// Where clients come, with the ports the system chose.
    pub(crate) fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.data.iter().map(TcpListener::local_addr).collect()
    }

    /// The clients' sockets, once more for each shard.
    pub(crate) fn of_shards(&self, shards: usize) -> io::Result<Vec<Vec<TcpListener>>> {
        let all = || self.data.iter().map(TcpListener::try_clone).collect();
        (0..shards).map(|_| all()).collect()
    }

    /// All of them once more, to hand over.
    pub(crate) fn offer(&self, config: &Config) -> io::Result<Offer> {
        let mut offer = Offer::default();
        for (listener, &address) in self.data.iter().zip(&config.listen) {
            offer.push(Role::Listen, address, listener.try_clone()?);
        }
        offer.push(Role::Admin, config.admin, self.admin.try_clone()?);
        Ok(offer)
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    use socket2::{Domain, Protocol, Socket, Type};
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(LISTEN_BACKLOG)?;
    Ok(socket.into())
}
