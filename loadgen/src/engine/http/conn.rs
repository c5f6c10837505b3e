//! One connection: reads into a buffer that exists only while it holds something, writes, and every way to end.

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::head::{Head, HeadError};

/// What is read ahead of a reply in the making (pipelined requests), bytes.
const AHEAD_BYTES_MAX: usize = 64 << 10;
const READ_BYTES: usize = 8 << 10;

/// How the other side left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gone {
    /// It will send nothing more; it may still read.
    HalfClosed,
    /// The connection is broken.
    Broken,
}

/// Why there is no next head.
#[derive(Debug)]
pub(crate) enum NoHead {
    /// The other side closed between requests, or in the middle of one.
    Closed,
    /// It sent something else.
    Bad(HeadError),
}

#[derive(Debug)]
pub(crate) struct Conn {
    stream: TcpStream,
    pub(super) ahead: BytesMut,
    half_closed: bool,
}

impl Conn {
    pub(crate) fn new(stream: TcpStream) -> Self {
        // Events are small and must not wait for each other; a failure leaves only a slower connection.
        let _ = stream.set_nodelay(true);
        Self { stream, ahead: BytesMut::new(), half_closed: false }
    }

    /// The next request's head.
    pub(crate) async fn head(&mut self) -> Result<Head, NoHead> {
        loop {
            if let Some((head, length)) = Head::parse(&self.ahead).map_err(NoHead::Bad)? {
                let _ = self.ahead.split_to(length);
                return Ok(head);
            }
            if self.fill().await.map_err(|_| NoHead::Closed)? == 0 {
                return Err(NoHead::Closed);
            }
        }
    }

    /// Reads whatever came; 0 = the other side closed.
    pub(super) async fn fill(&mut self) -> io::Result<usize> {
        if self.half_closed {
            return Ok(0);
        }
        // Memory is taken when there is something to put into it: thousands of idle connections cost none.
        self.stream.readable().await?;
        self.ahead.reserve(READ_BYTES);
        let read = self.stream.read_buf(&mut self.ahead).await?;
        self.half_closed = read == 0;
        Ok(read)
    }

    /// Waits until the other side leaves, keeping what it sends meanwhile for later.
    pub(crate) async fn gone(&mut self) -> Gone {
        while self.ahead.len() < AHEAD_BYTES_MAX {
            match self.fill().await {
                Ok(0) => return Gone::HalfClosed,
                Ok(_) => {}
                Err(_) => return Gone::Broken,
            }
        }
        std::future::pending().await
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Ends the connection with a reset.
    pub(crate) fn reset(self) {
        // Without it the other side sees an orderly close: the fault would be milder than asked for.
        let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }

    /// Ends the connection in good order: everything written arrives.
    pub(crate) async fn close(mut self) {
        let _ = self.stream.shutdown().await;
        self.discard().await;
    }

    /// Reads what still comes, for a moment: closing over unread bytes would reset the connection and could take the reply's
    /// end with it.
    async fn discard(&mut self) {
        let deadline = tokio::time::sleep(Duration::from_millis(100));
        tokio::pin!(deadline);
        let mut scrap = [0; 512];
        loop {
            tokio::select! {
                () = &mut deadline => return,
                read = self.stream.read(&mut scrap) => if !matches!(read, Ok(1..)) { return },
            }
        }
    }
}
