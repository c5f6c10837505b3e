//! Idle connections of one target, and the bound on connections in use.

use std::sync::{Mutex, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};

use super::super::fault::{Fault, FaultKind};
use super::super::options::Connections;
use super::super::recorder::{ConnectionEvent, Recorder};
use super::{Connection, Target};

/// Connections to one target.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) target: Target,
    /// Most recently used last, so that few connections serve a light load.
    idle: Mutex<Vec<Connection>>,
    in_use: Option<Semaphore>,
    keep_alive: bool,
    slow: bool,
}

/// A connection held by one request, with its place under the bound.
#[derive(Debug)]
pub(crate) struct Lease<'a> {
    pub(crate) connection: Connection,
    _place: Option<SemaphorePermit<'a>>,
}

impl Pool {
    pub(crate) fn new(target: Target, connections: &Connections, slow: bool) -> Pool {
        Pool {
            target,
            idle: Mutex::new(Vec::new()),
            in_use: connections.max.map(|max| Semaphore::new(max.min(Semaphore::MAX_PERMITS))),
            keep_alive: connections.keep_alive,
            slow,
        }
    }

    /// Waits for a place, then takes an idle connection or opens one.
    pub(crate) async fn lease(&self, recorder: &Recorder, number: u64) -> Result<Lease<'_>, Fault> {
        let place = match &self.in_use {
            Some(in_use) => Some(in_use.acquire().await.map_err(|_| closed())?),
            None => None,
        };
        while let Some(mut connection) = self.take_idle() {
            if connection.can_be_reused().await {
                recorder.connection(number, ConnectionEvent::Reused);
                return Ok(Lease { connection, _place: place });
            }
            recorder.connection(number, ConnectionEvent::ClosedWhileIdle);
        }
        let connection = Connection::open(self.target.address, self.slow).await?;
        recorder.connection(number, ConnectionEvent::Opened);
        Ok(Lease { connection, _place: place })
    }

    /// Takes a connection back after a reply was read to its end.
    pub(crate) async fn give_back(&self, mut lease: Lease<'_>) {
        if self.keep_alive && lease.connection.can_be_reused().await {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(lease.connection);
        }
    }

    fn take_idle(&self) -> Option<Connection> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

fn closed() -> Fault {
    Fault::new(FaultKind::Connect, "the pool is closed")
}
