//! How clients take what comes: at once, a few bytes at a time, or with a stop longer than the proxy waits for them. It
//! judges nothing.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tests::harness::{Sips, narrow};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::talks::Takes;

/// Slower than an engine writes, and never so slow that the proxy could take it for a stop.
const SIPS: Sips = Sips { bytes: 192, pause: Duration::from_millis(8) };

/// Where a client stops, and for how long: until the kernels are full, and then for longer than the proxy waits. Then it
/// takes what there is.
const STOPS_AT_BYTES: usize = 2 << 10;
const STOPS_FOR: Duration = Duration::from_millis(4_500);

/// How one client reads one reply.
#[derive(Debug)]
pub(crate) struct Reader {
    takes: Takes,
    stopped: bool,
}

impl Reader {
    pub(crate) fn new(takes: Takes) -> Reader {
        Reader { takes, stopped: false }
    }

    /// A connection that holds as much as this reader lets it.
    pub(crate) async fn connect(&self, addr: SocketAddr) -> io::Result<TcpStream> {
        match self.takes {
            Takes::AtOnce => TcpStream::connect(addr).await,
            Takes::Slowly | Takes::Stopping => narrow(addr).await,
        }
    }

    /// Reads more behind what was read.
    pub(crate) async fn read(
        &mut self,
        from: &mut TcpStream,
        raw: &mut Vec<u8>,
    ) -> io::Result<usize> {
        if self.takes == Takes::Stopping && !self.stopped && raw.len() > STOPS_AT_BYTES {
            self.stopped = true;
            sleep(STOPS_FOR).await;
        }
        if self.takes == Takes::AtOnce || self.stopped {
            raw.reserve(8 << 10);
            return from.read_buf(raw).await;
        }
        SIPS.read(from, raw).await
    }

    /// Whether it took nothing for so long that it counts as gone.
    pub(crate) fn has_stopped(&self) -> bool {
        self.stopped
    }
}
