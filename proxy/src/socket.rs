//! One TCP connection on a shard, usable for reading, writing and watching at the same time.
//!
//! monoio's stream takes `&mut self` for each operation although every operation only clones the
//! descriptor's handle, so watching a client while writing to it would need a second descriptor.
//! This wrapper lends the stream out for the moment of starting an operation. It is the only file
//! of the data path with `unsafe`, and it never parses or stores a byte.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use monoio::buf::{IoBuf, IoBufMut};
use monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use monoio::net::TcpStream;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown};

/// What a look at a socket's receive queue found, without waiting and without taking anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peek {
    /// Nothing there: the peer is silent and has not closed.
    Quiet,
    /// At least one byte is waiting.
    Bytes,
    /// The peer closed its side, or the connection failed.
    Closed,
}

/// A connection owned by one shard.
#[derive(Debug)]
pub struct Socket {
    stream: UnsafeCell<TcpStream>,
}

impl Socket {
    /// Takes over a connected stream and turns Nagle's algorithm off: an event must not wait.
    pub fn new(stream: TcpStream) -> Socket {
        // Failing to set an option leaves a slower, still correct connection.
        let _ = stream.set_nodelay(true);
        Socket { stream: UnsafeCell::new(stream) }
    }

    /// Connects to `addr`. The caller bounds the time.
    ///
    /// # Errors
    /// The system's error; nothing was sent.
    pub async fn connect(addr: SocketAddr) -> io::Result<Socket> {
        TcpStream::connect_addr(addr).await.map(Socket::new)
    }

    // The borrow is split from `&self` on purpose: see the module's head.
    #[allow(clippy::mut_from_ref)]
    fn stream(&self) -> &mut TcpStream {
        // SAFETY: a Socket never leaves its shard's thread (TcpStream is not Send), and monoio declares
        // TcpStream `Split`: starting a read, a write or a poll only clones the descriptor's handle, so
        // no two of these short-lived references are ever used to change the same field.
        unsafe { &mut *self.stream.get() }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor stays open as long as `self`, which the returned borrow is tied to.
        unsafe { BorrowedFd::borrow_raw(self.stream().as_raw_fd()) }
    }

    /// Reads once into `buf`, from its start; 0 means the peer closed its side.
    /// Dropping the future may lose bytes: only drop it together with the connection.
    pub async fn read<B: IoBufMut>(&self, buf: B) -> (io::Result<usize>, B) {
        self.stream().read(buf).await
    }

    /// Writes the whole of `buf`. Dropping the future leaves the stream cut at an unknown place.
    pub async fn write_all<B: IoBuf>(&self, buf: B) -> (io::Result<()>, B) {
        let (result, buf) = self.stream().write_all(buf).await;
        (result.map(|_| ()), buf)
    }

    /// Waits until a read would not block. Safe to drop: nothing is taken.
    ///
    /// # Errors
    /// The system's error, when the descriptor cannot be polled.
    pub async fn readable(&self) -> io::Result<()> {
        self.stream().readable(false).await
    }

    /// The descriptor, for the stream ring; it is open as long as `self`.
    pub fn descriptor(&self) -> RawFd {
        self.stream().as_raw_fd()
    }

    /// Looks at the receive queue without waiting.
    pub fn peek(&self) -> Peek {
        let mut byte = [0_u8; 1];
        match rustix::net::recv(self.fd(), &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((0, _)) => Peek::Closed,
            Ok(_) => Peek::Bytes,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Peek::Quiet,
            Err(_) => Peek::Closed,
        }
    }

    /// Takes what is waiting, at most `most` bytes and what fits `buf`'s capacity, without waiting, and puts it behind what
    /// `buf` holds. Returns how many bytes that were; 0 when nothing is there.
    ///
    /// # Errors
    /// The system's error, or `UnexpectedEof` when the peer has closed its side.
    pub fn take_waiting(&self, buf: &mut Vec<u8>, most: usize) -> io::Result<usize> {
        let have = buf.len();
        let room = buf.spare_capacity_mut();
        let most = most.min(room.len());
        let room = room.get_mut(..most).unwrap_or_default();
        if room.is_empty() {
            return Ok(0);
        }
        let taken = match rustix::net::recv(self.fd(), room, RecvFlags::DONTWAIT) {
            Ok(((read, _), _)) => read.len(),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(0),
            Err(error) => return Err(error.into()),
        };
        if taken == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // SAFETY: the kernel has just written so many bytes right behind the first `have`, within the capacity.
        unsafe { buf.set_len(have + taken) };
        Ok(taken)
    }

    /// Sends of `pieces`, one behind the other, what the kernel takes without waiting. Returns how many bytes that were; 0
    /// when it takes none now.
    ///
    /// # Errors
    /// The system's error.
    pub fn send_now(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let mut nothing = SendAncillaryBuffer::default();
        match rustix::net::sendmsg(self.fd(), pieces, &mut nothing, flags) {
            Ok(sent) => Ok(sent),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Says "no more from us" and keeps reading possible.
    pub fn shutdown_write(&self) {
        let _ = rustix::net::shutdown(self.fd(), Shutdown::Write);
    }
}

/// A descriptor that is only waited for: monoio polls what looks like a stream of its own.
#[derive(Debug)]
pub struct Watch(TcpStream);

impl Watch {
    /// Watches a descriptor, which need not be a socket: no other operation is ever started on it.
    ///
    /// # Errors
    /// The runtime's, when it cannot take it.
    pub fn new(descriptor: OwnedFd) -> io::Result<Watch> {
        TcpStream::from_std(descriptor.into()).map(Watch)
    }

    /// Waits until it is readable. Safe to drop.
    ///
    /// # Errors
    /// The system's error, when it cannot be polled.
    pub async fn readable(&self) -> io::Result<()> {
        self.0.readable(false).await
    }
}
