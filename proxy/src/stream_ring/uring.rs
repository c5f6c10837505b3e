//! The ring itself and the memory the kernel reads into: the only unsafe part of the stream ring.
//!
//! Receives are multishot: armed once, they take a buffer of the ring's pool for each read. Sends go out
//! of such a buffer, without waiting, or out of bytes handed over, waiting until the peer takes them. It
//! knows nothing of streams, and never waits.
#![allow(unsafe_code)]

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::{BufRingEntry, Fd};
use io_uring::{IoUring, cqueue, opcode, squeue};

use crate::limits::{STREAM_BUFFER_BYTES, STREAM_COMPLETIONS, STREAM_RING_ENTRIES};

const GROUP: u16 = 0;

/// What became of an operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Completion {
    /// What it was started with.
    pub(super) key: u64,
    /// Bytes moved, or the system's error.
    pub(super) result: Result<usize, i32>,
    /// A receive: the buffer that holds what was read.
    pub(super) buffer: Option<u16>,
    /// A receive: whether it goes on.
    pub(super) more: bool,
}

/// The ring. Dropping it leaks it: the kernel may still be using its memory.
pub(super) struct Uring {
    ring: ManuallyDrop<IoUring>,
    pool: Pool,
    /// Bytes being sent, by place; they are not touched before the send completes.
    flights: Vec<Option<Vec<u8>>>,
    free: Vec<usize>,
    queued: bool,
}

impl Uring {
    /// Sets up a ring that belongs to the calling thread, with so many read buffers (a power of two).
    ///
    /// # Errors
    /// When the kernel lacks or denies a part of it; then streams are relayed without.
    pub(super) fn new(buffers: u16) -> io::Result<Uring> {
        let mut builder = IoUring::builder();
        builder.setup_single_issuer().setup_cqsize(STREAM_COMPLETIONS);
        // With `defer_taskrun` the ring's descriptor does not become readable when work is deferred.
        builder.setup_coop_taskrun().setup_taskrun_flag();
        let ring = ManuallyDrop::new(builder.build(STREAM_RING_ENTRIES)?);
        let pool = Pool::new(buffers);
        let entries = pool.entries.as_ptr() as u64;
        // SAFETY: the entries are page-aligned, live for the process's life, and no group has this number yet.
        unsafe { ring.submitter().register_buf_ring(entries, buffers, GROUP)? };
        Ok(Uring { ring, pool, flights: Vec::new(), free: Vec::new(), queued: false })
    }

    /// The ring's descriptor: readable while completions wait.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring is never closed, see the type.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }

    /// Arms a receive on `fd` that goes on until it is cancelled, fails, or finds no buffer.
    pub(super) fn receive(&mut self, fd: RawFd, key: u64) {
        self.push(&opcode::RecvMulti::new(Fd(fd), GROUP).build().user_data(key));
    }

    /// Sends part of what a receive read, as much as the peer takes at once.
    pub(super) fn send_buffer(
        &mut self,
        fd: RawFd,
        id: u16,
        range: std::ops::Range<usize>,
        key: u64,
    ) {
        let bytes = self.pool.bytes(id).get(range).unwrap_or_default();
        let flags = libc_flags(true);
        let send = opcode::Send::new(Fd(fd), bytes.as_ptr(), bytes.len() as u32).flags(flags);
        self.push(&send.build().user_data(key));
    }

    /// Sends `bytes` from `from` on, waiting for the peer to take them; returns the place to take them back from.
    pub(super) fn send(&mut self, fd: RawFd, bytes: Vec<u8>, from: usize, key: u64) -> usize {
        let place = self.free.pop().unwrap_or(self.flights.len());
        if place == self.flights.len() {
            self.flights.push(None);
        }
        let part = bytes.get(from..).unwrap_or_default();
        let send =
            opcode::Send::new(Fd(fd), part.as_ptr(), part.len() as u32).flags(libc_flags(false));
        let entry = send.build().user_data(key);
        if let Some(flight) = self.flights.get_mut(place) {
            *flight = Some(bytes);
        }
        self.push(&entry);
        place
    }

    /// Takes back bytes whose send has completed.
    pub(super) fn take_back(&mut self, place: usize) -> Vec<u8> {
        let bytes = self.flights.get_mut(place).and_then(Option::take);
        self.free.push(place);
        bytes.unwrap_or_default()
    }

    /// Cancels the operation started with `key`; it completes, cancelled or not.
    pub(super) fn cancel(&mut self, key: u64, own: u64) {
        self.push(&opcode::AsyncCancel::new(key).build().user_data(own));
    }

    /// What a receive read.
    pub(super) fn bytes(&self, id: u16, len: usize) -> &[u8] {
        self.pool.bytes(id).get(..len).unwrap_or_default()
    }

    /// Gives a buffer back to the kernel once it is entered next.
    pub(super) fn give_back(&mut self, id: u16) {
        self.pool.give(id);
    }

    /// Whether entering may bring completions: operations wait to be submitted, or the kernel says that
    /// it has some it did not post.
    pub(super) fn may_bring_more(&mut self) -> bool {
        self.queued || self.ring.submission().taskrun() || self.ring.submission().cq_overflow()
    }

    /// Submits what is queued and lets the kernel post what completed. Does not wait.
    pub(super) fn enter(&mut self) {
        self.pool.publish();
        let count = self.ring.submission().len() as u32;
        self.queued = false;
        // SAFETY: no argument is passed. An error (interrupted, out of room for completions) leaves the
        // entries queued for the next call.
        let entered = unsafe { self.ring.submitter().enter::<()>(count, 0, GETEVENTS, None) };
        if entered.is_err() {
            self.queued = true;
        }
    }

    /// The next completion.
    pub(super) fn next(&mut self) -> Option<Completion> {
        let entry = self.ring.completion().next()?;
        let result = entry.result();
        Some(Completion {
            key: entry.user_data(),
            result: usize::try_from(result).map_err(|_| -result),
            buffer: cqueue::buffer_select(entry.flags()),
            more: cqueue::more(entry.flags()),
        })
    }

    fn push(&mut self, entry: &squeue::Entry) {
        self.queued = true;
        // SAFETY: what entries point to lives on: pool memory for ever, flights until taken back, which
        // callers do on completion; descriptors are held by the kernel from submission on.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            self.enter();
            self.queued = true;
        }
    }
}

/// `IORING_ENTER_GETEVENTS`.
const GETEVENTS: u32 = 1;

fn libc_flags(at_once: bool) -> i32 {
    use rustix::net::SendFlags;
    let flags =
        if at_once { SendFlags::NOSIGNAL | SendFlags::DONTWAIT } else { SendFlags::NOSIGNAL };
    flags.bits() as i32
}

/// Buffers lent to the kernel: a ring of descriptions and the memory they describe, both leaked.
struct Pool {
    entries: &'static mut [Page],
    memory: &'static mut [u8],
    buffers: u16,
    tail: u16,
}

/// 256 descriptions, on a page of their own as the kernel demands.
#[repr(C, align(4096))]
struct Page([[u8; 16]; 256]);

impl Pool {
    fn new(buffers: u16) -> Pool {
        let pages = usize::from(buffers).div_ceil(256);
        let entries: Vec<Page> = (0..pages).map(|_| Page([[0; 16]; 256])).collect();
        let memory = vec![0_u8; usize::from(buffers) * STREAM_BUFFER_BYTES];
        let (entries, memory) = (entries.leak(), memory.leak());
        let mut pool = Pool { entries, memory, buffers, tail: 0 };
        for id in 0..buffers {
            pool.give(id);
        }
        pool.publish();
        pool
    }

    fn bytes(&self, id: u16) -> &[u8] {
        let start = usize::from(id) * STREAM_BUFFER_BYTES;
        self.memory.get(start..start + STREAM_BUFFER_BYTES).unwrap_or_default()
    }

    fn give(&mut self, id: u16) {
        let start = usize::from(id) * STREAM_BUFFER_BYTES;
        let Some(buffer) = self.memory.get(start..start + STREAM_BUFFER_BYTES) else { return };
        let address = buffer.as_ptr() as u64;
        let place = usize::from(self.tail % self.buffers);
        // SAFETY: an entry is 16 bytes long and `place` is below the number of entries set aside; the
        // kernel does not read an entry before the tail passes it.
        let entry = unsafe { &mut *self.entries.as_mut_ptr().cast::<BufRingEntry>().add(place) };
        entry.set_addr(address);
        entry.set_len(STREAM_BUFFER_BYTES as u32);
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
    }

    fn publish(&mut self) {
        // SAFETY: the tail lies in the first entry's reserved field, aligned to two bytes.
        let tail =
            unsafe { &*BufRingEntry::tail(self.entries.as_ptr().cast()).cast::<AtomicU16>() };
        // Release: pairs with the kernel's acquire of the tail, so that it sees the entries below it.
        tail.store(self.tail, Ordering::Release);
    }
}

/// Reads one byte through a ring that streams will depend on, so that a kernel that lacks a part of it is
/// found out before the first stream.
///
/// # Errors
/// When the byte does not come as it should.
pub(super) fn try_out(uring: &mut Uring) -> io::Result<()> {
    use std::io::Write;
    let (near, mut far) = std::os::unix::net::UnixStream::pair()?;
    uring.receive(near.as_raw_fd(), TRIAL);
    far.write_all(b"x")?;
    let works = trial(uring).is_some_and(|id| uring.bytes(id, 1) == b"x");
    uring.cancel(TRIAL, TRIAL);
    trial(uring);
    if works { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
}

/// No stream has this key.
const TRIAL: u64 = u64::MAX;

/// The buffer of the trial's read, given back.
fn trial(uring: &mut Uring) -> Option<u16> {
    let mut read = None;
    uring.enter();
    while let Some(completion) = uring.next() {
        if let Some(id) = completion.buffer {
            uring.give_back(id);
            read = Some(id).filter(|_| completion.more && completion.result == Ok(1));
        }
    }
    read
}
