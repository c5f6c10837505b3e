//! The ring: operations that own what the kernel may touch, so that the relay above needs no unsafe code.
//!
//! Two kinds of memory are shared with the kernel: a group of buffers that receives take from, and the bytes of one operation.
//! A [`Piece`] is the only key to a filled buffer; the kernel gets it back through [`Ring::give_back`] alone. Bytes of an
//! operation move into it and out again with its completion. A ring is never dropped while the kernel may write: it leaks.
#![allow(
    unsafe_code,
    reason = "io_uring shares memory with the kernel; this file is its safe side"
)]

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::{BufRingEntry, Fd};
use io_uring::{IoUring, cqueue, opcode, squeue};

/// Buffers of the group; a power of two, as the kernel asks.
const BUFFERS: u16 = 4_096;
/// Bytes of one buffer: a chat request with a prompt of 4 KB fits.
const BUFFER_BYTES: usize = 8_192;
/// Operations handed to the kernel at once, and completions it may hold for us.
const ENTRIES: u32 = 4_096;
const COMPLETIONS: u32 = 32_768;
const GROUP: u16 = 0;
/// Linux's MSG_NOSIGNAL and MSG_WAITALL.
const NO_SIGNAL: i32 = 0x4000;
const WAIT_ALL: i32 = 0x100;
/// Linux's ENOBUFS, EINTR and EBUSY.
const NO_BUFFERS: i32 = 105;
const INTERRUPTED: i32 = 4;
const BUSY: i32 = 16;

/// A filled buffer of the group: the only way to its bytes until it is given back.
#[derive(Debug)]
pub(crate) struct Piece {
    id: u16,
    length: usize,
}

/// Whom an operation was for; the caller's number.
pub(crate) type Token = u64;

/// What an operation came to.
#[derive(Debug)]
pub(crate) enum Done {
    /// A connection.
    Accepted(OwnedFd),
    /// Bytes arrived; `armed` says whether more will without asking again.
    Received(Token, Piece, bool),
    /// No buffer was free: ask again later.
    Starved(Token),
    /// The connection is over, or broke.
    Closed(Token),
    /// The bytes asked for, appended to what was there; fewer if the connection broke.
    Filled(Token, Vec<u8>),
    /// All was sent, or `false`: the connection broke.
    Sent(Token, bool),
}

#[derive(Debug)]
enum Operation {
    Accept,
    Receive(Token),
    Fill(Token, Vec<u8>),
    SendPiece { to: Token, piece: Piece, sent: usize, fd: RawFd },
    SendBytes { to: Token, bytes: Vec<u8>, sent: usize, fd: RawFd },
}

/// A ring with its buffers and everything under way on it.
pub(crate) struct Ring {
    ring: ManuallyDrop<IoUring>,
    /// By the number the kernel hands back. Never dropped: the kernel may still write to what it owns.
    operations: ManuallyDrop<Vec<Option<Operation>>>,
    free: Vec<u32>,
    waiting: Vec<squeue::Entry>,
    entries: *mut BufRingEntry,
    memory: *mut u8,
    tail: u16,
}

/// What the kernel reads the group's free buffers from must begin on a page.
#[repr(C, align(4096))]
struct Page([u8; 4_096]);

impl Ring {
    /// A ring for this thread, which alone may use it.
    pub(crate) fn new() -> io::Result<Ring> {
        let mut builder = IoUring::builder();
        builder.setup_cqsize(COMPLETIONS).setup_single_issuer().setup_defer_taskrun();
        let ring = builder.build(ENTRIES)?;
        let pages = usize::from(BUFFERS) * size_of::<BufRingEntry>() / size_of::<Page>();
        let entries: Vec<Page> = (0..pages).map(|_| Page([0; 4_096])).collect();
        let entries = entries.leak().as_mut_ptr().cast::<BufRingEntry>();
        // SAFETY: the entries fill leaked, page-aligned memory of exactly that many entries.
        unsafe { ring.submitter().register_buf_ring(entries as u64, BUFFERS, GROUP)? };
        let mut ring = Ring {
            ring: ManuallyDrop::new(ring),
            operations: ManuallyDrop::default(),
            free: Vec::new(),
            waiting: Vec::new(),
            entries,
            memory: vec![0; usize::from(BUFFERS) * BUFFER_BYTES].leak().as_mut_ptr(),
            tail: 0,
        };
        (0..BUFFERS).for_each(|id| ring.give_back(Piece { id, length: 0 }));
        Ok(ring)
    }

    /// The bytes that arrived.
    pub(crate) fn bytes(&self, piece: &Piece) -> &[u8] {
        // SAFETY: the piece is the only key to this buffer, which the kernel does not touch until it has it back, and its
        // length is what the kernel wrote.
        unsafe { std::slice::from_raw_parts(self.address(piece.id), piece.length) }
    }

    /// Lets the kernel fill a buffer again.
    pub(crate) fn give_back(&mut self, piece: Piece) {
        let (address, slot) = (self.address(piece.id) as u64, usize::from(self.tail % BUFFERS));
        // SAFETY: the slot lies inside the registered entries.
        let entry = unsafe { self.entries.add(slot) };
        // SAFETY: the kernel reads a slot only once the tail has passed it.
        let entry = unsafe { &mut *entry };
        entry.set_addr(address);
        entry.set_len(BUFFER_BYTES as u32);
        entry.set_bid(piece.id);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the entries are the registered ones, so the tail lies where the kernel looks for it.
        let tail = unsafe { BufRingEntry::tail(self.entries) };
        // SAFETY: aligned, valid for ever, and both sides use it atomically.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        // Release: pairs with the kernel's acquire, so that it sees the slot before the tail.
        tail.store(self.tail, Ordering::Release);
    }

    /// Accepts connections from now on.
    pub(crate) fn accept(&mut self, listener: &impl AsRawFd) {
        let entry = opcode::AcceptMulti::new(Fd(listener.as_raw_fd())).build();
        self.begin(Operation::Accept, entry);
    }

    /// Receives all that comes, piece by piece.
    pub(crate) fn receive_all(&mut self, from: &impl AsRawFd, token: Token) {
        let entry = opcode::RecvMulti::new(Fd(from.as_raw_fd()), GROUP).build();
        self.begin(Operation::Receive(token), entry);
    }

    /// Receives one piece.
    pub(crate) fn receive_one(&mut self, from: &impl AsRawFd, token: Token) {
        let receive = opcode::Recv::new(Fd(from.as_raw_fd()), std::ptr::null_mut(), 0);
        let entry = receive.buf_group(GROUP).build().flags(squeue::Flags::BUFFER_SELECT);
        self.begin(Operation::Receive(token), entry);
    }

    /// Receives exactly `more` bytes behind what `bytes` holds, in one go.
    pub(crate) fn fill(
        &mut self,
        from: &impl AsRawFd,
        token: Token,
        mut bytes: Vec<u8>,
        more: usize,
    ) {
        bytes.reserve_exact(more);
        let room = bytes.spare_capacity_mut().as_mut_ptr().cast();
        let receive = opcode::Recv::new(Fd(from.as_raw_fd()), room, more as u32).flags(WAIT_ALL);
        // The memory stays where it is while the vector moves into the operation.
        self.begin(Operation::Fill(token, bytes), receive.build());
    }

    /// Sends a piece and gives it back.
    pub(crate) fn send_piece(&mut self, to: &impl AsRawFd, token: Token, piece: Piece) {
        self.send(Operation::SendPiece { to: token, piece, sent: 0, fd: to.as_raw_fd() });
    }

    /// Sends bytes.
    pub(crate) fn send_bytes(&mut self, to: &impl AsRawFd, token: Token, bytes: Vec<u8>) {
        self.send(Operation::SendBytes { to: token, bytes, sent: 0, fd: to.as_raw_fd() });
    }

    /// Hands over what was asked for, waits until something is done, and appends it to `done`.
    pub(crate) fn turn(&mut self, done: &mut Vec<Done>) -> io::Result<()> {
        self.submit()?;
        let mut completions = [const { None }; 256];
        loop {
            let mut count = 0;
            for (place, entry) in completions.iter_mut().zip(self.ring.completion()) {
                *place = Some(entry);
                count += 1;
            }
            let taken = completions.iter_mut().take(count).filter_map(Option::take);
            done.extend(taken.filter_map(|entry| self.completed(&entry)));
            if count < completions.len() {
                return Ok(());
            }
        }
    }

    fn address(&self, id: u16) -> *mut u8 {
        // SAFETY: ids are below BUFFERS: they come from `new` or from the kernel, which got them there.
        unsafe { self.memory.add(usize::from(id) * BUFFER_BYTES) }
    }

    fn send(&mut self, operation: Operation) {
        let (bytes, fd) = match &operation {
            Operation::SendPiece { piece, sent, fd, .. } => (&self.bytes(piece)[*sent..], *fd),
            Operation::SendBytes { bytes, sent, fd, .. } => (&bytes[*sent..], *fd),
            _ => return,
        };
        let send = opcode::Send::new(Fd(fd), bytes.as_ptr(), bytes.len() as u32);
        let entry = send.flags(NO_SIGNAL).build();
        self.begin(operation, entry);
    }

    fn begin(&mut self, operation: Operation, entry: squeue::Entry) {
        let number = self.free.pop().unwrap_or_else(|| {
            self.operations.push(None);
            self.operations.len() as u32 - 1
        });
        self.operations[number as usize] = Some(operation);
        self.waiting.push(entry.user_data(u64::from(number)));
    }

    fn submit(&mut self) -> io::Result<()> {
        while !self.waiting.is_empty() {
            let mut queue = self.ring.submission();
            let room = (queue.capacity() - queue.len()).min(self.waiting.len());
            // SAFETY: what each entry points to is owned by its operation, or is the group's.
            let pushed = unsafe { queue.push_multiple(&self.waiting[..room]) };
            pushed.map_err(|_| io::Error::other("the submission queue is full"))?;
            drop(queue);
            self.waiting.drain(..room);
            if !self.waiting.is_empty() {
                self.ring.submit()?;
            }
        }
        match self.ring.submit_and_wait(1) {
            Err(error) if matches!(error.raw_os_error(), Some(INTERRUPTED | BUSY)) => Ok(()),
            result => result.map(drop),
        }
    }

    fn completed(&mut self, entry: &cqueue::Entry) -> Option<Done> {
        let (number, more) = (entry.user_data() as usize, cqueue::more(entry.flags()));
        let operation = self.operations[number].take()?;
        if more {
            self.operations[number] = again(&operation);
        } else {
            self.free.push(number as u32);
        }
        let result = entry.result();
        match operation {
            Operation::Accept if result >= 0 => {
                // SAFETY: the kernel just made this descriptor for us and nobody else knows it.
                let fd = unsafe { OwnedFd::from_raw_fd(result) };
                Some(Done::Accepted(fd))
            }
            Operation::Accept => None,
            Operation::Receive(token) => Some(received(token, entry, more)),
            Operation::Fill(token, mut bytes) => {
                let length = bytes.len() + usize::try_from(result).unwrap_or(0);
                // SAFETY: the kernel wrote that many bytes behind the old end, into reserved room.
                unsafe { bytes.set_len(length) };
                Some(Done::Filled(token, bytes))
            }
            Operation::SendPiece { .. } | Operation::SendBytes { .. } => {
                self.sent(operation, result)
            }
        }
    }

    /// Sends the rest of what was sent in part; a send is done when all is out.
    fn sent(&mut self, mut operation: Operation, result: i32) -> Option<Done> {
        let (to, left) = match &mut operation {
            Operation::SendPiece { to, piece, sent, .. } => {
                *sent += usize::try_from(result).unwrap_or(0);
                (*to, piece.length - *sent)
            }
            Operation::SendBytes { to, bytes, sent, .. } => {
                *sent += usize::try_from(result).unwrap_or(0);
                (*to, bytes.len() - *sent)
            }
            _ => return None,
        };
        if left > 0 && result > 0 {
            self.send(operation);
            return None;
        }
        if let Operation::SendPiece { piece, .. } = operation {
            self.give_back(piece);
        }
        Some(Done::Sent(to, left == 0))
    }
}

/// The operation as it stays armed.
fn again(operation: &Operation) -> Option<Operation> {
    match operation {
        Operation::Accept => Some(Operation::Accept),
        Operation::Receive(token) => Some(Operation::Receive(*token)),
        _ => None,
    }
}

fn received(token: Token, entry: &cqueue::Entry, armed: bool) -> Done {
    let length = usize::try_from(entry.result()).unwrap_or(0);
    match (cqueue::buffer_select(entry.flags()), entry.result()) {
        (Some(id), 1..) => Done::Received(token, Piece { id, length }, armed),
        (_, result) if result == -NO_BUFFERS => Done::Starved(token),
        _ => Done::Closed(token),
    }
}
