//! The ring itself and the memory the kernel reads into: the only unsafe part of the stream ring.
//!
//! Receives are multishot: armed once, they take a buffer of the ring's pool for each read. Sends go out
//! of such a buffer, without waiting, or out of bytes handed over, waiting until the peer takes them. The
//! former have gone out whole unless the kernel says otherwise: nothing is told of those that have. It
//! knows nothing of streams, and never waits.
#![allow(unsafe_code)]

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::{BufRingEntry, Fd};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::net::SendFlags;

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

/// A send out of a buffer of the pool, of which only a failure is told.
struct Lent {
    key: u64,
    id: u16,
    len: usize,
}

/// The ring. Dropping it leaks it: the kernel may still be using its memory.
pub(super) struct Uring {
    ring: ManuallyDrop<IoUring>,
    pool: Pool,
    /// Bytes being sent, by place; they are not touched before the send completes.
    flights: Vec<Option<Vec<u8>>>,
    free: Vec<usize>,
    /// Sends out of buffers since they were last settled.
    lent: Vec<Lent>,
    /// How often they were settled.
    settled: u32,
    /// Whether the completions taken last tell of all failures so far.
    told: bool,
    /// Memory for the next completions taken.
    batch: Vec<Completion>,
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
        if !ring.params().is_feature_skip_cqe_on_success() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Uring {
            ring,
            pool,
            flights: Vec::new(),
            free: Vec::new(),
            lent: Vec::new(),
            settled: 1,
            told: false,
            batch: Vec::new(),
        })
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

    /// Sends the first `len` bytes of what a receive read, at once. Whether all of them went is known once it is
    /// settled: see [`Uring::settle`].
    pub(super) fn send_buffer(&mut self, fd: RawFd, id: u16, len: usize, key: u64) {
        let bytes = self.pool.bytes(id).get(..len).unwrap_or_default();
        let send = opcode::Send::new(Fd(fd), bytes.as_ptr(), bytes.len() as u32);
        let entry = send.flags(AT_ONCE_AND_WHOLE).build().flags(squeue::Flags::SKIP_SUCCESS);
        self.lent.push(Lent { key, id, len });
        self.push(&entry.user_data(key));
    }

    /// How often sends out of buffers were settled: one started at this count is not yet, one of an earlier count is.
    pub(super) fn settled(&self) -> u32 {
        self.settled
    }

    /// The buffer, and how much of it was to go, of a send that failed or fell short. It is the caller's again.
    pub(super) fn take_lent(&mut self, key: u64) -> Option<(u16, usize)> {
        let place = self.lent.iter().position(|lent| lent.key == key)?;
        let Lent { id, len, .. } = self.lent.swap_remove(place);
        Some((id, len))
    }

    /// Settles the sends out of buffers. They run while they are submitted, so once the completions taken last have been
    /// looked at for failures, the others have gone out whole. Returns whether none is left.
    pub(super) fn settle(&mut self) -> bool {
        if self.told && !self.lent.is_empty() {
            for lent in &self.lent {
                self.pool.give(lent.id);
            }
            self.lent.clear();
            self.settled = self.settled.wrapping_add(1);
        }
        self.lent.is_empty()
    }

    /// Sends `bytes` from `from` on, waiting for the peer to take them; returns the place to take them back from.
    pub(super) fn send(&mut self, fd: RawFd, bytes: Vec<u8>, from: usize, key: u64) -> usize {
        let place = self.free.pop().unwrap_or(self.flights.len());
        if place == self.flights.len() {
            self.flights.push(None);
        }
        let part = bytes.get(from..).unwrap_or_default();
        let send = opcode::Send::new(Fd(fd), part.as_ptr(), part.len() as u32).flags(NO_SIGNAL);
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
        let queue = self.ring.submission();
        !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    /// Submits what is queued and lets the kernel post what completed. Does not wait.
    pub(super) fn enter(&mut self) {
        self.pool.publish();
        let count = self.ring.submission().len() as u32;
        // SAFETY: no argument is passed.
        let entered = unsafe { self.ring.submitter().enter::<()>(count, 0, GETEVENTS, None) };
        // Interrupted, or out of room for completions: the entries are queued for the next call.
        let _ = entered;
    }

    /// All completions there are, in their order. Hand them back to [`Uring::done_with`].
    pub(super) fn take_completions(&mut self) -> Vec<Completion> {
        let queue = self.ring.submission();
        // What was not submitted has not run, and what the kernel had no room to post is not seen.
        self.told = queue.is_empty() && !queue.cq_overflow();
        drop(queue);
        let mut batch = std::mem::take(&mut self.batch);
        batch.extend(self.ring.completion().map(|entry| {
            let result = entry.result();
            Completion {
                key: entry.user_data(),
                result: usize::try_from(result).map_err(|_| -result),
                buffer: cqueue::buffer_select(entry.flags()),
                more: cqueue::more(entry.flags()),
            }
        }));
        batch
    }

    /// Keeps the memory of completions for the next ones, and lends the kernel the buffers given back.
    pub(super) fn done_with(&mut self, mut batch: Vec<Completion>) {
        self.pool.publish();
        batch.clear();
        self.batch = batch;
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: what entries point to lives on: pool memory for ever, flights until taken back, which
        // callers do on completion; descriptors are held by the kernel from submission on.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            self.enter();
        }
    }
}

/// Whether what comes on `fd`, which is open, is acknowledged late: every second small piece (Linux: `TCP_QUICKACK` off).
pub(super) fn acks_are_delayed(fd: RawFd) -> bool {
    // SAFETY: callers ask while the stream's connections are held open.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    rustix::net::sockopt::tcp_quickack(fd).is_ok_and(|at_once| !at_once)
}

/// Delays acknowledgements on `fd`, which is open, or sends them with each piece again. The kernel falls back to the latter by
/// itself when one was due for 40 ms.
pub(super) fn delay_acks(fd: RawFd, delay: bool) {
    // SAFETY: as above.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    // What is no TCP connection has none to delay.
    let _ = rustix::net::sockopt::set_tcp_quickack(fd, !delay);
}

/// `IORING_ENTER_GETEVENTS`.
const GETEVENTS: u32 = 1;

const NO_SIGNAL: i32 = SendFlags::NOSIGNAL.bits() as i32;

/// What does not go at once and whole fails: `MSG_WAITALL`, which rustix does not name for sends, is what makes a
/// short one a failure, and so told.
const AT_ONCE_AND_WHOLE: i32 =
    (SendFlags::NOSIGNAL.bits() | SendFlags::DONTWAIT.bits()) as i32 | 0x100;

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
        let entries = self.entries.as_mut_ptr().cast::<BufRingEntry>();
        // SAFETY: an entry is 16 bytes long and `place` is below the number of entries set aside.
        let entry = unsafe { entries.add(place) };
        // SAFETY: it lies in memory of our own; the kernel does not read an entry before the tail passes it.
        let entry = unsafe { &mut *entry };
        entry.set_addr(address);
        entry.set_len(STREAM_BUFFER_BYTES as u32);
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
    }

    fn publish(&mut self) {
        // SAFETY: the first entry holds the tail in a field the kernel sets aside for it.
        let tail = unsafe { BufRingEntry::tail(self.entries.as_ptr().cast()) };
        // SAFETY: it is aligned to two bytes, lives as long as the process, and the kernel only reads it.
        let tail = unsafe { &*tail.cast::<AtomicU16>() };
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
    let batch = uring.take_completions();
    for completion in &batch {
        if let Some(id) = completion.buffer {
            uring.give_back(id);
            read = Some(id).filter(|_| completion.more && completion.result == Ok(1));
        }
    }
    uring.done_with(batch);
    read
}
