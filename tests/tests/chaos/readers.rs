//! How clients take what comes: at once, a few bytes at a time, or with a stop longer than the proxy waits for them. It
//! judges nothing.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::sleep;

use super::talks::Takes;

/// A small window and small segments: both kernels together then hold some 40 KB of a reply, where they would hold
/// megabytes, and what is more waits in the proxy.
const WINDOW_BYTES: u32 = 1 << 10;
const SEGMENT_BYTES: u32 = 536;

/// Slower than an engine writes; but the 14 KB that must be read before the proxy's kernel takes more are read in less time
/// than the proxy waits.
const SIP_BYTES: u64 = 192;
const BETWEEN_SIPS: Duration = Duration::from_millis(8);

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
        if self.takes == Takes::AtOnce {
            return TcpStream::connect(addr).await;
        }
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(WINDOW_BYTES)?;
        SockRef::from(&socket).set_tcp_mss(SEGMENT_BYTES)?;
        socket.connect(addr).await
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
        sleep(BETWEEN_SIPS).await;
        from.take(SIP_BYTES).read_buf(raw).await
    }

    /// Whether it took nothing for so long that it counts as gone.
    pub(crate) fn has_stopped(&self) -> bool {
        self.stopped
    }
}
