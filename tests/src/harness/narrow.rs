//! Clients who take hardly anything at a time, on connections that hold hardly anything: only there is it seen what becomes
//! of the rest. It never decides what a slow client deserves.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::sleep;

/// A small window and small segments: both kernels together then hold some 40 KB, where they would hold megabytes, and
/// what is more waits at the sender.
const WINDOW_BYTES: u32 = 1 << 10;
const SEGMENT_BYTES: u32 = 536;

/// How much is taken at once, and how long nothing is then. The sender's kernel takes more when 14 KB were.
#[derive(Debug, Clone, Copy)]
pub struct Sips {
    /// At most so much.
    pub bytes: u64,
    /// Before each.
    pub pause: Duration,
}

impl Sips {
    /// Reads some more behind what was read.
    ///
    /// # Errors
    /// The connection's.
    pub async fn read(self, from: &mut TcpStream, into: &mut Vec<u8>) -> io::Result<usize> {
        sleep(self.pause).await;
        from.take(self.bytes).read_buf(into).await
    }
}

/// Connects so that hardly anything is under way.
///
/// # Errors
/// The system's.
pub async fn narrow(addr: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(WINDOW_BYTES)?;
    SockRef::from(&socket).set_tcp_mss(SEGMENT_BYTES)?;
    socket.connect(addr).await
}
