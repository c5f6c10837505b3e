//! How clients take what comes: at once, a few bytes at a time, or with a stop longer than the proxy waits for them. It
//! judges nothing.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tests::harness::narrow;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, sleep_until};

use super::talks::Takes;

/// So much at a time, and so much a second: slower than an engine writes, and never so slow that the proxy could take it
/// for a stop. Who was held up by a busy machine catches up.
const SIP_BYTES: u64 = 192;
const BYTES_A_SECOND: f64 = 24_000.0;

/// Where a client stops, and for how long: until the kernels are full, and then for longer than the proxy waits. Then it
/// takes what there is.
const STOPS_AT_BYTES: usize = 2 << 10;
const STOPS_FOR: Duration = Duration::from_millis(6_000);

/// How one client reads one reply.
#[derive(Debug)]
pub(crate) struct Reader {
    takes: Takes,
    began: Option<Instant>,
    stopped: bool,
}

impl Reader {
    pub(crate) fn new(takes: Takes) -> Reader {
        Reader { takes, began: None, stopped: false }
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
        let began = *self.began.get_or_insert_with(Instant::now);
        sleep_until(began + Duration::from_secs_f64(raw.len() as f64 / BYTES_A_SECOND)).await;
        from.take(SIP_BYTES).read_buf(raw).await
    }

    /// Whether it took nothing for so long that it counts as gone.
    pub(crate) fn has_stopped(&self) -> bool {
        self.stopped
    }
}
