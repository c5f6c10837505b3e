//! One client connection, driven by the request that holds it.
//!
//! hyper's connection future runs inside the task of the request: no second task, no message
//! between the two for each event, and dropping a [`Connection`] closes its socket at once, which
//! is how a client hangs up.

use std::error::Error as StdError;
use std::future::{Future, poll_fn};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::Poll;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::Instant;

use super::super::fault::{Fault, FaultKind};

type Driver = http1::Connection<TokioIo<TcpStream>, Full<Bytes>>;

/// Read buffer of a slow reader: what it does not read must fill the other side's buffers.
const SLOW_READER_BUFFER_BYTES: u32 = 16 << 10;

/// An open connection.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// Gone once the connection has ended.
    driver: Option<Pin<Box<Driver>>>,
    requests: u64,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("requests", &self.requests).finish_non_exhaustive()
    }
}

impl Connection {
    /// Connects to `address`; with `slow`, with small receive buffers.
    pub(crate) async fn open(address: SocketAddr, slow: bool) -> Result<Connection, Fault> {
        let refused = |error: std::io::Error| Fault::new(FaultKind::Connect, error.to_string());
        let stream = connect(address, slow).await.map_err(refused)?;
        let mut builder = http1::Builder::new();
        if slow {
            builder.max_buf_size(SLOW_READER_BUFFER_BYTES as usize);
        }
        let (sender, driver) = builder
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| Fault::new(FaultKind::Connect, error.to_string()))?;
        Ok(Connection { sender, driver: Some(Box::pin(driver)), requests: 0 })
    }

    /// Sends one request and waits for the head of its reply.
    pub(crate) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Fault> {
        let (used, sent) = (self.requests > 0, Instant::now());
        self.requests += 1;
        let reply = self.sender.send_request(request);
        drive(&mut self.driver, reply).await.map_err(|error| match fault_of(&error) {
            // Nothing came back on a connection that had worked before: most likely it was closed
            // while idle. The time tells it from a server that died at work.
            fault if used && fault.kind != FaultKind::Framing => {
                let after_ms = sent.elapsed().as_secs_f64() * 1e3;
                let detail = format!("after {after_ms:.1} ms: {}", fault.detail);
                Fault::new(FaultKind::DeadConnection, detail)
            }
            fault => fault,
        })
    }

    /// The next piece of a reply's body; `None` at its end. Trailers are passed over.
    pub(crate) async fn piece(&mut self, body: &mut Incoming) -> Option<Result<Bytes, Fault>> {
        loop {
            let frame = match drive(&mut self.driver, body.frame()).await? {
                Ok(frame) => frame,
                Err(error) => return Some(Err(fault_of(&error))),
            };
            if let Ok(data) = frame.into_data() {
                return Some(Ok(data));
            }
        }
    }

    /// Lets the connection notice what happened while nobody drove it, and says whether it can
    /// carry another request.
    pub(crate) async fn can_be_reused(&mut self) -> bool {
        if let Some(driver) = &mut self.driver {
            let ended = poll_fn(|cx| Poll::Ready(driver.as_mut().poll(cx).is_ready())).await;
            if ended {
                self.driver = None;
            }
        }
        self.driver.is_some() && self.sender.is_ready()
    }
}

/// Runs `future` and the connection together until `future` is done.
async fn drive<F: Future>(driver: &mut Option<Pin<Box<Driver>>>, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(output);
        }
        let Some(running) = driver else { return Poll::Pending };
        if running.as_mut().poll(cx).is_ready() {
            // Its error, if any, also reaches the reply, which is where it is told.
            *driver = None;
        }
        future.as_mut().poll(cx)
    })
    .await
}

async fn connect(address: SocketAddr, slow: bool) -> std::io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if slow {
        // Only before connecting does this also bound the window offered to the other side.
        socket.set_recv_buffer_size(SLOW_READER_BUFFER_BYTES)?;
    }
    let stream = socket.connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Sorts an error of hyper's by what the other side did.
fn fault_of(error: &hyper::Error) -> Fault {
    let kind = match io_kind(error) {
        Some(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted) => {
            FaultKind::Reset
        }
        Some(ErrorKind::InvalidData | ErrorKind::InvalidInput) => FaultKind::Framing,
        Some(_) => FaultKind::CutShort,
        None if error.is_parse() => FaultKind::Framing,
        None => FaultKind::CutShort,
    };
    Fault::new(kind, reasons(error))
}

fn io_kind(error: &hyper::Error) -> Option<ErrorKind> {
    let mut cause: Option<&(dyn StdError + 'static)> = error.source();
    while let Some(current) = cause {
        if let Some(io) = current.downcast_ref::<std::io::Error>() {
            return Some(io.kind());
        }
        cause = current.source();
    }
    None
}

fn reasons(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(current) = cause {
        text.push_str(": ");
        text.push_str(&current.to_string());
        cause = current.source();
    }
    text
}
