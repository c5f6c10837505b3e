//! One stream on the ring: what was read goes out at once, and where its client takes it slower than it
//! comes, waits in memory of the stream's own, within a bound; then nothing more is read.

use std::os::fd::RawFd;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use index::Millis;
use rustix::io::Errno;

use super::Ridden;
use super::acks::{Acks, Due};
use super::uring::{Completion, Uring, acks_are_delayed, delay_acks};
use crate::alarm::Alarm;
use crate::limits::{STREAM_BACKLOG_MAX, STREAM_EVENTS_AT_ONCE};
use crate::memory::Charge;
use crate::published::Upstream;
use crate::reply::Reply;

/// What a ride is made of. Both descriptors stay open until it is over.
#[derive(Debug)]
pub struct Course {
    /// Where the reply comes from.
    pub upstream: RawFd,
    /// Where it goes to.
    pub client: RawFd,
    /// Whose life the reads prove.
    pub backend: Option<&'static Upstream>,
    /// Set anew whenever something moves.
    pub alarm: Rc<Alarm>,
    /// The memory that its backlog takes.
    pub memory: Charge,
    /// How long nothing may come, ms.
    pub idle_ms: u64,
    /// Whether what is no event counts as nothing there.
    pub idle_is_without_events: bool,
    /// How long the client may take nothing, ms.
    pub stall_ms: u64,
}

/// How a ride ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The reply is complete, or the connection's end was its end.
    Over,
    /// The upstream broke it off.
    Broke,
    /// Its chunks are malformed.
    Malformed,
    /// An error of the engine's comes next that must be told in other words.
    Cut,
    /// The client is gone.
    ClientLost,
    /// Something is to be hidden in what was read last: that was not sent, and the session goes on from there.
    Left,
}

/// A send in flight, out of bytes of the stream's own.
#[derive(Debug)]
struct Sending {
    place: usize,
    from: usize,
    capacity: usize,
}

/// A stream's name: it never names another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    place: u32,
    generation: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Receive,
    /// Out of bytes of the stream's own.
    Send,
    Cancel,
    /// Out of a buffer of the ring; completes only if it does not go out whole.
    Pass,
}

impl Key {
    /// 2 bits say which operation, 30 which of the streams that had this place, 32 the place.
    fn of(self, operation: Operation) -> u64 {
        (operation as u64) << 62 | u64::from(self.generation) << 32 | u64::from(self.place)
    }

    fn read(key: u64) -> (Key, Operation) {
        let operation = match key >> 62 {
            0 => Operation::Receive,
            1 => Operation::Send,
            2 => Operation::Cancel,
            _ => Operation::Pass,
        };
        let generation = (key >> 32) as u32 & GENERATIONS;
        (Key { place: key as u32, generation }, operation)
    }
}

const GENERATIONS: u32 = (1 << 30) - 1;

/// A stream.
#[derive(Debug)]
pub(super) struct Stream {
    course: Course,
    reply: Reply,
    receiving: bool,
    cancelling: bool,
    sending: Option<Sending>,
    /// [`Uring::settled`] when something was last sent out of a buffer of the ring.
    passed: u32,
    /// What is to be sent after what is in flight.
    backlog: Vec<u8>,
    end: Option<End>,
    given_up: bool,
    bytes: u64,
    acks: Acks,
    waker: Option<Waker>,
}

impl Stream {
    pub(super) fn new(course: Course, reply: Reply) -> Stream {
        Stream {
            course,
            reply,
            receiving: false,
            cancelling: false,
            sending: None,
            passed: 0,
            backlog: Vec::new(),
            end: None,
            given_up: false,
            bytes: 0,
            acks: Acks::new(),
            waker: None,
        }
    }

    /// Whether bytes wait for the client.
    pub(super) fn is_writing(&self) -> bool {
        self.sending.is_some() || !self.backlog.is_empty()
    }

    /// Events and bytes that have come.
    pub(super) fn progress(&self) -> (u64, u64) {
        (self.reply.events(), self.bytes)
    }

    /// Sends bytes of the proxy's own, a sign of life, if they may stand behind what was sent.
    pub(super) fn say(&mut self, uring: &mut Uring, key: Key, bytes: Vec<u8>) -> bool {
        let quiet = self.end.is_none() && !self.is_writing() && !self.is_passing(uring);
        let may = quiet && self.reply.takes_a_sign_of_life();
        if may {
            self.send_own(uring, key, bytes, 0);
        }
        may
    }

    /// Whether a send out of a buffer of the ring may yet turn out to have fallen short.
    fn is_passing(&self, uring: &Uring) -> bool {
        self.passed == uring.settled()
    }

    /// Whether the kernel has nothing to do with it any more.
    fn is_quiet(&self, uring: &Uring) -> bool {
        !self.receiving && self.sending.is_none() && !self.is_passing(uring)
    }

    /// Whether all it does is passing on what comes, so that nothing follows from a read but its send.
    fn is_steady(&self) -> bool {
        self.receiving && !self.given_up && self.end.is_none() && !self.is_writing()
    }

    /// See [`Streams::bring_near`].
    fn bring_near(&self) -> u64 {
        let course = self.course.alarm.bring_near() ^ self.course.idle_ms;
        self.bytes ^ u64::from(self.receiving) ^ self.reply.bring_near() ^ course
    }

    /// Starts, or stops, receiving, as its state demands; sends what waits when nothing is in flight.
    pub(super) fn go_on(&mut self, uring: &mut Uring, key: Key) {
        let free = self.sending.is_none() && !self.is_passing(uring);
        if free && !self.backlog.is_empty() && !self.given_up {
            let bytes = std::mem::take(&mut self.backlog);
            self.send_own(uring, key, bytes, 0);
        }
        let over = self.given_up || self.end.is_some();
        let fits = self.course.memory.note(self.memory_bytes());
        let full = self.backlog.len() > STREAM_BACKLOG_MAX || !(fits || self.backlog.is_empty());
        if self.receiving && (over || full) && !self.cancelling {
            self.cancelling = true;
            uring.cancel(key.of(Operation::Receive), key.of(Operation::Cancel));
        } else if !self.receiving && !over && !full {
            self.receiving = true;
            uring.receive(self.course.upstream, key.of(Operation::Receive));
        }
    }

    /// What it keeps besides the ring's buffers.
    fn memory_bytes(&self) -> usize {
        self.backlog.capacity() + self.sending.as_ref().map_or(0, |sending| sending.capacity)
    }

    fn received(&mut self, uring: &mut Uring, key: Key, done: Completion, now: Millis) {
        self.receiving = done.more;
        self.cancelling &= done.more;
        if let Some(id) = done.buffer {
            if !self.read(uring, key, id, done.result.unwrap_or(0), now) {
                uring.give_back(id);
            }
            return;
        }
        let again = [Errno::CANCELED, Errno::NOBUFS, Errno::INTR];
        match done.result {
            Err(error) if again.contains(&Errno::from_raw_os_error(error)) => {}
            Ok(_) if self.reply.close() => self.end_with(End::Over),
            Ok(_) | Err(_) => {
                self.reply.close();
                self.end_with(End::Broke);
            }
        }
    }

    /// Takes in what a buffer holds. Returns whether the buffer is still used.
    fn read(&mut self, uring: &mut Uring, key: Key, id: u16, len: usize, now: Millis) -> bool {
        if self.given_up || len == 0 {
            return false;
        }
        let bytes = uring.bytes(id, len);
        let events = self.course.idle_is_without_events.then(|| self.reply.events());
        let sent = match self.reply.feed(bytes) {
            Ok(fed) => fed.consumed.min(len),
            Err(_) => {
                self.end = self.end.filter(|end| *end != End::Left);
                self.end_with(End::Malformed);
                return false;
            }
        };
        // What came behind is kept with it.
        if self.end == Some(End::Left) || !self.reply.goes_on_as_it_came() {
            self.end_with(End::Left);
            return false;
        }
        if let Some(backend) = self.course.backend {
            backend.note_alive(now);
        }
        if let Some(due) = self.acks.piece() {
            self.see_to_acks(due);
        }
        self.bytes += sent as u64;
        let waits = self.is_writing() || self.is_passing(uring);
        if waits {
            self.backlog.extend_from_slice(bytes.get(..sent).unwrap_or_default());
        } else if sent > 0 {
            if events.is_none_or(|before| before != self.reply.events()) {
                self.course.alarm.set(now, self.course.idle_ms);
            }
            uring.send_buffer(self.course.client, id, sent, key.of(Operation::Pass));
            self.passed = uring.settled();
        }
        if self.reply.is_done() {
            self.end_with(End::Over);
        } else if self.reply.is_cut() {
            self.end_with(End::Cut);
        }
        !waits && sent > 0
    }

    #[cold]
    fn see_to_acks(&mut self, due: Due) {
        match due {
            Due::Ask => delay_acks(self.course.upstream, true),
            Due::Look => self.acks.looked(acks_are_delayed(self.course.upstream)),
        }
    }

    /// The connection is about to be handed back.
    fn leave_acks(&self) {
        if self.acks.is_open() {
            delay_acks(self.course.upstream, false);
        }
    }

    fn sent(&mut self, uring: &mut Uring, key: Key, done: Completion, now: Millis) {
        let count = count_of(done);
        if let Some(Sending { place, from, .. }) = self.sending.take() {
            let mut bytes = uring.take_back(place);
            let next = count.map(|count| from + count);
            if let Some(next) = next.filter(|&next| next < bytes.len()) {
                self.course.alarm.set(now, self.course.stall_ms);
                self.send_own(uring, key, bytes, next);
            } else if self.backlog.is_empty() {
                // Its memory serves the next time the client falls behind.
                bytes.clear();
                self.backlog = bytes;
                self.course.alarm.set(now, self.course.idle_ms);
            } else {
                self.course.alarm.set(now, self.course.stall_ms);
            }
        }
        if count.is_none() {
            self.lose_client();
        }
    }

    /// What was to go out of a buffer did not, or not whole: the client has fallen behind, or is gone.
    #[cold]
    fn fell_short(&mut self, uring: &mut Uring, key: Key, done: Completion, now: Millis) {
        let Some((id, len)) = uring.take_lent(done.key) else { return };
        self.passed = 0;
        match count_of(done) {
            Some(count) => {
                let mut rest = uring.bytes(id, len).get(count..).unwrap_or_default().to_vec();
                rest.append(&mut self.backlog);
                self.course.alarm.set(now, self.course.stall_ms);
                self.send_own(uring, key, rest, 0);
            }
            None => self.lose_client(),
        }
        uring.give_back(id);
    }

    fn lose_client(&mut self) {
        self.backlog.clear();
        self.end = Some(End::ClientLost);
    }

    fn send_own(&mut self, uring: &mut Uring, key: Key, bytes: Vec<u8>, from: usize) {
        if self.given_up {
            return;
        }
        let capacity = bytes.capacity();
        let place = uring.send(self.course.client, bytes, from, key.of(Operation::Send));
        self.sending = Some(Sending { place, from, capacity });
    }

    fn end_with(&mut self, end: End) {
        self.end = self.end.or(Some(end));
    }
}

/// How many bytes a send has moved, `None` if its peer is gone.
fn count_of(done: Completion) -> Option<usize> {
    let again = [Errno::AGAIN, Errno::INTR];
    match done.result {
        Err(error) if again.contains(&Errno::from_raw_os_error(error)) => Some(0),
        other => other.ok(),
    }
}

/// The streams of one ring.
#[derive(Debug, Default)]
pub(super) struct Streams {
    places: Vec<Place>,
    free: Vec<u32>,
    /// Those for whom something follows once what they passed on is settled.
    unsettled: Vec<Key>,
}

/// On lines of its own: none of them is fetched for a neighbour's sake.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Place {
    generation: u32,
    stream: Option<Stream>,
}

impl Streams {
    pub(super) fn add(&mut self, stream: Stream) -> Key {
        let place = self.free.pop().unwrap_or(self.places.len() as u32);
        if place as usize == self.places.len() {
            self.places.push(Place::default());
        }
        let generation = match self.places.get_mut(place as usize) {
            Some(at) => {
                at.generation = (at.generation + 1) & GENERATIONS;
                at.stream = Some(stream);
                at.generation
            }
            None => 0,
        };
        Key { place, generation }
    }

    pub(super) fn get(&mut self, key: Key) -> Option<&mut Stream> {
        let place = self.places.get_mut(key.place as usize)?;
        place.stream.as_mut().filter(|_| place.generation == key.generation)
    }

    /// Takes in completions: all there were when they were taken. Returns whether what was passed on before is
    /// settled.
    pub(super) fn take_in(&mut self, uring: &mut Uring, batch: &[Completion], now: Millis) -> bool {
        // First what fell short: what came for the same stream since must go out behind it.
        for done in batch {
            let (key, operation) = Key::read(done.key);
            if operation == Operation::Pass {
                self.fell_short(uring, key, *done, now);
            }
        }
        let settled = uring.settle();
        if settled {
            self.settled(uring);
        }
        for (number, some) in batch.chunks(STREAM_EVENTS_AT_ONCE).enumerate() {
            if number > 0 {
                // What those before send goes now: it is near, and its clients need not wait for the others.
                uring.enter();
            }
            self.take_in_some(uring, some, now);
        }
        settled
    }

    fn take_in_some(&mut self, uring: &mut Uring, some: &[Completion], now: Millis) {
        let near = some.iter().fold(0, |near, done| near ^ self.bring_near(Key::read(done.key).0));
        std::hint::black_box(near);
        for done in some {
            self.complete(uring, *done, now);
        }
    }

    /// Reads what a completion will need of its stream. Between two events of it the kernel used all of the cache; asked for
    /// together, the lines of all streams come together, and not one after another.
    fn bring_near(&self, key: Key) -> u64 {
        let Some(at) = self.places.get(key.place as usize) else { return 0 };
        let own = at.stream.as_ref().map_or(0, Stream::bring_near);
        own ^ u64::from(at.generation)
    }

    #[cold]
    fn fell_short(&mut self, uring: &mut Uring, key: Key, done: Completion, now: Millis) {
        match self.get(key) {
            Some(stream) => {
                stream.fell_short(uring, key, done, now);
                self.go_on(uring, key);
            }
            None => {
                if let Some((id, _)) = uring.take_lent(done.key) {
                    uring.give_back(id);
                }
            }
        }
    }

    fn settled(&mut self, uring: &mut Uring) {
        let mut keys = std::mem::take(&mut self.unsettled);
        for key in keys.drain(..) {
            self.go_on(uring, key);
        }
        self.unsettled = keys;
    }

    fn complete(&mut self, uring: &mut Uring, done: Completion, now: Millis) {
        let (key, operation) = Key::read(done.key);
        let Some(stream) = self.get(key) else {
            if let Some(id) = done.buffer {
                uring.give_back(id);
            }
            return;
        };
        match operation {
            Operation::Receive => {
                stream.received(uring, key, done, now);
                if stream.is_steady() {
                    return;
                }
            }
            Operation::Send => stream.sent(uring, key, done, now),
            Operation::Cancel | Operation::Pass => return,
        }
        self.go_on(uring, key);
    }

    /// Starts what follows from a stream's state; at its end, tells who waits for it.
    fn go_on(&mut self, uring: &mut Uring, key: Key) {
        let Some(stream) = self.get(key) else { return };
        stream.go_on(uring, key);
        if stream.is_passing(uring) {
            return self.unsettled.push(key);
        }
        match (stream.is_quiet(uring), stream.given_up, stream.end) {
            (false, ..) | (true, false, None) => {}
            (true, true, _) => drop(self.remove(key)),
            (true, false, Some(_)) => {
                if let Some(waker) = stream.waker.take() {
                    waker.wake();
                }
            }
        }
    }

    /// The end of a stream, once the kernel has nothing to do with it any more.
    pub(super) fn poll(&mut self, uring: &Uring, key: Key, cx: &mut Context<'_>) -> Poll<Ridden> {
        let Some(stream) = self.get(key) else { return Poll::Pending };
        let Some(end) = stream.end.filter(|_| stream.is_quiet(uring)) else {
            stream.waker = Some(cx.waker().clone());
            return Poll::Pending;
        };
        stream.leave_acks();
        match self.remove(key) {
            Some(Stream { reply, bytes, .. }) => Poll::Ready(Ridden { end, reply, bytes }),
            None => Poll::Pending,
        }
    }

    /// Gives a stream up: what the kernel still does for it is cancelled, and then it is forgotten.
    pub(super) fn give_up(&mut self, uring: &mut Uring, key: Key) -> Option<(Reply, u64)> {
        let stream = self.get(key)?;
        stream.given_up = true;
        stream.waker = None;
        stream.backlog = Vec::new();
        let left = (std::mem::take(&mut stream.reply), stream.bytes);
        if stream.sending.is_some() {
            uring.cancel(key.of(Operation::Send), key.of(Operation::Cancel));
        }
        self.go_on(uring, key);
        Some(left)
    }

    /// Whether nothing is left, given up or not.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.places.iter().all(|place| place.stream.is_none())
    }

    fn remove(&mut self, key: Key) -> Option<Stream> {
        let stream = self.places.get_mut(key.place as usize)?.stream.take();
        self.free.push(key.place);
        stream
    }
}
