//! The successor's side: asking, for sockets and for what is known, and saying when it is ready.
//!
//! It blocks, with a deadline for each step: nothing is served yet by the thread that waits here.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use config::FingerprintKey;

use super::{GO, HANDOVER, HELLO, Offer, READY, Role, may, refusal};
use crate::limits::{HANDOVER_BYTES_MAX, TAKEOVER_WORD_BYTES_MAX, TAKEOVER_WORD_MS};
use crate::notify::Settings;

/// A takeover under way. Dropping it before it is done leaves the running process as it was.
#[derive(Debug)]
pub(crate) struct Taking {
    stream: UnixStream,
    offer: Offer,
}

impl Taking {
    /// Asks the process behind `path` for its sockets.
    ///
    /// # Errors
    /// When nobody answers there, it belongs to another user, or it refuses, with its reason.
    pub(crate) fn ask(path: &Path) -> io::Result<Taking> {
        let mut stream = UnixStream::connect(path)?;
        let peer = rustix::net::sockopt::socket_peercred(&stream)?;
        if !may(peer.uid.as_raw()) {
            return Err(io::Error::from(io::ErrorKind::PermissionDenied));
        }
        let patience = Some(Duration::from_millis(TAKEOVER_WORD_MS));
        stream.set_read_timeout(patience)?;
        stream.set_write_timeout(patience)?;
        stream.write_all(HELLO)?;
        let offer = Offer::receive(&stream)?;
        Ok(Taking { stream, offer })
    }

    /// The listener that was configured as this address, if there is one.
    pub(crate) fn listener(&mut self, role: Role, configured: SocketAddr) -> Option<TcpListener> {
        self.offer.take(role, configured)
    }

    /// How the service manager is told of things.
    pub(crate) fn notify(&self) -> &Settings {
        &self.offer.notify
    }

    /// The key of the running process's hashes, if what it knows can be asked for.
    pub(crate) fn key(&self) -> Option<FingerprintKey> {
        self.offer.key
    }

    /// Asks for what the running process knows; empty if it does not say in time.
    ///
    /// # Errors
    /// When it breaks off in the middle: then neither side knows what the other says next.
    pub(crate) fn handover(&mut self) -> io::Result<Vec<u8>> {
        self.stream.write_all(HANDOVER)?;
        let mut length = [0_u8; 8];
        self.stream.read_exact(&mut length)?;
        let length = usize::try_from(u64::from_le_bytes(length)).unwrap_or(usize::MAX);
        if length > HANDOVER_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it knows too much"));
        }
        let mut handover = vec![0; length];
        self.stream.read_exact(&mut handover)?;
        Ok(handover)
    }

    /// Says that connections are accepted here. From `Ok` on the sockets are this process's own.
    ///
    /// # Errors
    /// When the running process goes on by itself, with its reason.
    pub(crate) fn ready(mut self) -> io::Result<()> {
        let mut answer = [0_u8; TAKEOVER_WORD_BYTES_MAX];
        let answered = self.stream.write_all(READY).and_then(|()| self.stream.read(&mut answer));
        match answered {
            // It ended before it could say so: there is nobody else to serve.
            Ok(0) => Ok(()),
            Err(error) if is_gone(&error) => Ok(()),
            Ok(length) => match answer.get(..length).unwrap_or_default() {
                GO => Ok(()),
                other => Err(refusal(other)),
            },
            Err(error) => Err(error),
        }
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}
