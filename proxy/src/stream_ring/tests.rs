//! Streams over socket pairs: what is sent at one end must come out at the other, whatever the client,
//! the upstream and the supply of buffers do. Without io_uring these tests say so and check nothing.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Waker;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{set_socket_send_buffer_size, set_tcp_quickack, tcp_quickack};

use super::uring::Completion;
use super::*;
use crate::alarm::{Alarm, Alarms, Raced, within};
use crate::api::Dialect;
use crate::http::{Method, ResponseHead};
use crate::limits::{
    ACKS_ASKED_AGAIN_AFTER, ACKS_ASKED_AGAIN_FACTOR, ACKS_LOOKED_AT_AFTER, RESPONSE_HEAD,
    STREAM_BACKLOG_MAX, STREAM_BUFFER_BYTES, STREAM_EVENTS_AT_ONCE,
};
use crate::memory::{Allowance, Budget, Charge};
use crate::published::EngineKind;

const HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const LAST: &[u8] = b"0\r\n\r\n";

/// A ring with few buffers, or `None`, loudly, where there is no io_uring.
fn ring(buffers: u16) -> Option<StreamRing> {
    match StreamRing::with_buffers(buffers) {
        Ok(ring) => Some(ring),
        Err(error) => {
            eprintln!("SKIPPED: no stream ring here: {error}");
            None
        }
    }
}

/// Both ends of a stream, and the proxy's sides of them.
struct Line {
    engine: UnixStream,
    client: UnixStream,
    upstream: UnixStream,
    downstream: UnixStream,
    alarms: Alarms,
    alarm: Rc<Alarm>,
    idle_ms: u64,
    stall_ms: u64,
    memory: Rc<Allowance>,
}

impl Line {
    fn new() -> Line {
        Line::within(1 << 30)
    }

    /// With so much memory for what the client does not take.
    fn within(budget: u64) -> Line {
        let budget = Box::leak(Box::new(Budget::new(Some(budget), 1)));
        let memory = Rc::new(Allowance::new(budget));
        let (engine, upstream) = UnixStream::pair().unwrap();
        let (client, downstream) = UnixStream::pair().unwrap();
        let alarms = Alarms::default();
        let alarm = alarms.add();
        let (idle_ms, stall_ms) = (1000, 1000);
        Line { engine, client, upstream, downstream, alarms, alarm, idle_ms, stall_ms, memory }
    }

    fn start<'r>(&self, ring: &'r StreamRing) -> Ride<'r> {
        self.start_with(ring, |reply| reply)
    }

    fn start_with<'r>(
        &self,
        ring: &'r StreamRing,
        prepared: impl FnOnce(Reply) -> Reply,
    ) -> Ride<'r> {
        self.start_from(ring, self.upstream.as_raw_fd(), prepared)
    }

    fn start_from<'r>(
        &self,
        ring: &'r StreamRing,
        upstream: RawFd,
        prepared: impl FnOnce(Reply) -> Reply,
    ) -> Ride<'r> {
        let mut head = ResponseHead::new();
        head.parse(HEAD, &RESPONSE_HEAD, Method::Post).unwrap().unwrap();
        let course = Course {
            upstream,
            client: self.downstream.as_raw_fd(),
            backend: None,
            alarm: Rc::clone(&self.alarm),
            memory: Charge::new(&self.memory),
            idle_ms: self.idle_ms,
            idle_is_without_events: false,
            stall_ms: self.stall_ms,
        };
        ring.start(course, prepared(Reply::new(&head, EngineKind::Unknown, Dialect::Chat, false)))
    }
}

fn chunk(text: &str) -> Vec<u8> {
    format!("{:x}\r\n{text}\r\n", text.len()).into_bytes()
}

fn event(number: usize) -> Vec<u8> {
    chunk(&format!("data: {{\"number\":{number}}}\n\n"))
}

/// Turns the ring until it has been silent for as long as a lost completion would take to show.
fn turn(ring: &StreamRing) {
    let descriptor = ring.descriptor().unwrap();
    let silence = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    loop {
        while !ring.turn(Millis(1)) {}
        let mut waited = [PollFd::new(&descriptor, PollFlags::IN)];
        if poll(&mut waited, Some(&silence)).unwrap() == 0 {
            return;
        }
    }
}

fn ended(ride: &mut Ride<'_>) -> Option<Ridden> {
    match Pin::new(ride).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(ridden) => Some(ridden),
        Poll::Pending => None,
    }
}

/// What the client can read now.
fn taken(client: &mut UnixStream) -> Vec<u8> {
    client.set_nonblocking(true).unwrap();
    let mut all = Vec::new();
    // Ends with "would block", or with the stream.
    let _ = client.read_to_end(&mut all);
    all
}

#[test]
fn what_comes_is_passed_on_as_it_came_and_the_connection_is_clean_afterwards() {
    let Some(ring) = ring(8) else { return };
    let mut line = Line::new();
    let mut ride = line.start(&ring);
    let mut sent = Vec::new();
    for number in 0..50 {
        let bytes = event(number);
        // Cut in the middle, so that chunks and lines come in two.
        let (front, back) = bytes.split_at(number % bytes.len());
        for part in [front, back] {
            line.engine.write_all(part).unwrap();
            turn(&ring);
        }
        sent.extend_from_slice(&bytes);
        assert!(taken(&mut line.client) == bytes, "event {number} arrives before the next is made");
        assert!(ended(&mut ride).is_none());
    }
    line.engine.write_all(LAST).unwrap();
    turn(&ring);
    let ridden = ended(&mut ride).unwrap();
    assert_eq!(ridden.end, End::Over);
    assert_eq!(ridden.bytes as usize, sent.len() + LAST.len());
    assert_eq!(ridden.reply.events(), 50);
    assert!(ridden.reply.left_connection_clean());
    // Nothing reads that connection any more: what comes next stays there for its next user.
    line.engine.write_all(b"next").unwrap();
    turn(&ring);
    assert_eq!(taken(&mut line.upstream), b"next");
}

#[test]
fn more_than_the_buffers_hold_at_once_arrives_whole() {
    let Some(ring) = ring(4) else { return };
    let mut lines: Vec<Line> = (0..32).map(|_| Line::new()).collect();
    let mut rides: Vec<_> = lines.iter().map(|line| line.start(&ring)).collect();
    let text = "x".repeat(3 * STREAM_BUFFER_BYTES);
    let bytes = [chunk(&text), LAST.to_vec()].concat();
    for line in &mut lines {
        line.engine.write_all(&bytes).unwrap();
    }
    turn(&ring);
    for (line, ride) in lines.iter_mut().zip(&mut rides) {
        assert_eq!(taken(&mut line.client), bytes);
        assert_eq!(ended(ride).unwrap().end, End::Over);
    }
}

#[test]
fn of_many_streams_that_come_at_once_each_goes_out_whole() {
    let Some(ring) = ring(512) else { return };
    let mut lines: Vec<Line> = (0..5 * STREAM_EVENTS_AT_ONCE).map(|_| Line::new()).collect();
    let mut rides: Vec<_> = lines.iter().map(|line| line.start(&ring)).collect();
    // One whose client is gone, among those whose turn comes late.
    let gone = lines.len() - 3;
    lines[gone].client.shutdown(std::net::Shutdown::Both).unwrap();
    for step in 0..4 {
        for (number, line) in lines.iter_mut().enumerate() {
            line.engine.write_all(&event(step * 1_000 + number)).unwrap();
        }
        turn(&ring);
        for (number, line) in lines.iter_mut().enumerate().filter(|(number, _)| *number != gone) {
            assert_eq!(taken(&mut line.client), event(step * 1_000 + number), "{number}");
        }
    }
    for (number, ride) in rides.iter_mut().enumerate() {
        let end = ended(ride).map(|ridden| ridden.end);
        assert_eq!(end, (number == gone).then_some(End::ClientLost), "{number}");
    }
}

#[test]
fn a_client_that_reads_slowly_gets_everything_and_holds_back_the_engine() {
    slow(&Line::new, STREAM_BACKLOG_MAX);
}

#[test]
fn where_memory_is_short_a_slow_client_gets_everything_too_and_less_is_kept_for_it() {
    slow(&|| Line::within(1), 4 * STREAM_BUFFER_BYTES);
}

fn slow(line: &dyn Fn() -> Line, kept_max: usize) {
    let Some(ring) = ring(4) else { return };
    let mut line = line();
    let mut ride = line.start(&ring);
    line.engine.set_nonblocking(true).unwrap();
    let text = "y".repeat(10_000);
    let bytes = chunk(&text).repeat(800);
    let (mut given, mut got) = (0, Vec::new());
    while let Ok(count) = line.engine.write(&bytes[given..]) {
        given += count;
        turn(&ring);
    }
    assert!(given < bytes.len(), "an engine is held back by a client that does not read");
    assert!(ride.is_writing() && ended(&mut ride).is_none());
    assert!(given < 2 * 1024 * 1024 + STREAM_BACKLOG_MAX);
    let kept = line.memory.used() as usize;
    assert!(kept > 0 && kept <= 4 * kept_max, "{kept} bytes are kept");
    let mut rest = [&bytes[given..], LAST].concat();
    while !rest.is_empty() {
        got.extend(taken(&mut line.client));
        turn(&ring);
        if let Ok(count) = line.engine.write(&rest) {
            rest.drain(..count);
        }
        turn(&ring);
    }
    while ended_in_place(&mut ride, &mut line.client, &mut got, &ring).is_none() {}
    got.extend(taken(&mut line.client));
    assert!(got == [&bytes[..], LAST].concat());
    assert_eq!(line.memory.used(), 0);
}

#[test]
fn a_client_that_takes_nothing_is_given_its_own_time_however_long_a_stream_may_idle() {
    for (idle_ms, stall_ms, late) in [(600_000, 1_000, true), (1_000, 600_000, false)] {
        let Some(ring) = ring(4) else { return };
        let mut line = Line { idle_ms, stall_ms, ..Line::new() };
        set_socket_send_buffer_size(&line.downstream, 1).unwrap();
        let ride = line.start(&ring);
        // One by one, so that each is taken or is not; and one more behind the first that is not.
        let mut not_taken = 0;
        while not_taken < 2 {
            line.engine.write_all(&event(1)).unwrap();
            turn(&ring);
            not_taken += u32::from(ride.is_writing());
        }
        line.alarms.tick(Millis(2_000));
        let rung = pin!(within(&line.alarm, pin!(std::future::pending::<()>())))
            .poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(matches!(rung, Poll::Ready(Raced::Late)), late, "{idle_ms} {stall_ms}");
    }
}

fn ended_in_place(
    ride: &mut Ride<'_>,
    client: &mut UnixStream,
    got: &mut Vec<u8>,
    ring: &StreamRing,
) -> Option<Ridden> {
    got.extend(taken(client));
    turn(ring);
    ended(ride)
}

#[test]
fn a_stream_that_breaks_off_says_so_after_all_that_came() {
    let Some(ring) = ring(4) else { return };
    let mut line = Line::new();
    let mut ride = line.start(&ring);
    line.engine.write_all(&event(1)).unwrap();
    line.engine.write_all(b"10\r\ndata: ha").unwrap();
    line.engine.shutdown(std::net::Shutdown::Write).unwrap();
    turn(&ring);
    let ridden = ended(&mut ride).unwrap();
    assert_eq!(ridden.end, End::Broke);
    assert!(ridden.reply.inside_event());
    assert_eq!(taken(&mut line.client), [&event(1)[..], b"10\r\ndata: ha"].concat());
}

#[test]
fn malformed_chunks_end_a_stream() {
    let Some(ring) = ring(4) else { return };
    let mut line = Line::new();
    let mut ride = line.start(&ring);
    line.engine.write_all(b"zz\r\n").unwrap();
    turn(&ring);
    assert_eq!(ended(&mut ride).unwrap().end, End::Malformed);
    assert!(taken(&mut line.client).is_empty());
}

#[test]
fn a_client_that_is_gone_ends_a_stream() {
    let Some(ring) = ring(4) else { return };
    let mut line = Line::new();
    let mut ride = line.start(&ring);
    line.client.shutdown(std::net::Shutdown::Both).unwrap();
    line.engine.write_all(&event(1)).unwrap();
    turn(&ring);
    assert_eq!(ended(&mut ride).unwrap().end, End::ClientLost);
}

#[test]
fn a_stream_given_up_is_forgotten_and_its_buffers_come_back() {
    let Some(ring) = ring(2) else { return };
    for round in 0..20 {
        let mut line = Line::new();
        let ride = line.start(&ring);
        line.engine.write_all(&event(round)).unwrap();
        if round % 2 == 0 {
            turn(&ring);
        }
        assert!(ride.give_up().is_some());
        turn(&ring);
        assert!(ring.inner.borrow_mut().streams.is_empty());
        line.engine.write_all(b"for the next").unwrap();
        turn(&ring);
        assert!(taken(&mut line.upstream).ends_with(b"for the next"), "nobody reads it any more");
    }
}

#[test]
fn the_session_is_woken_when_its_stream_has_ended() {
    let Some(ring) = ring(4) else { return };
    let mut line = Line::new();
    let mut ride = line.start(&ring);
    let woken = std::sync::Arc::new(Woken(std::sync::atomic::AtomicBool::new(false)));
    let waker = Waker::from(std::sync::Arc::clone(&woken));
    assert!(Pin::new(&mut ride).poll(&mut Context::from_waker(&waker)).is_pending());
    line.engine.write_all(&event(1)).unwrap();
    turn(&ring);
    assert!(!woken.0.load(std::sync::atomic::Ordering::Relaxed), "an event wakes nobody");
    line.engine.write_all(LAST).unwrap();
    turn(&ring);
    assert!(woken.0.load(std::sync::atomic::Ordering::Relaxed));
}

#[test]
fn of_what_goes_out_of_a_buffer_only_a_failure_is_told() {
    let Ok(mut uring) = Uring::new(4) else {
        return eprintln!("SKIPPED: no stream ring here");
    };
    let (from, mut into) = UnixStream::pair().unwrap();
    let (to, mut reader) = UnixStream::pair().unwrap();
    uring.receive(from.as_raw_fd(), 1);
    for round in 0..3 {
        into.write_all(b"event").unwrap();
        let id = completions(&mut uring).first().and_then(|done| done.buffer).unwrap();
        let count = uring.settled();
        uring.send_buffer(to.as_raw_fd(), id, 5, 2);
        let gone = round == 2;
        if gone {
            reader.shutdown(std::net::Shutdown::Both).unwrap();
        }
        let told = completions(&mut uring);
        assert_eq!(told.iter().any(|done| done.key == 2 && done.result.is_err()), gone);
        if gone {
            assert_eq!(uring.take_lent(2), Some((id, 5)));
        }
        assert!(uring.settle());
        assert!(gone || (uring.settled() != count && taken(&mut reader) == b"event"));
    }
}

fn completions(uring: &mut Uring) -> Vec<Completion> {
    uring.enter();
    uring.take_completions()
}

struct Woken(std::sync::atomic::AtomicBool);

impl std::task::Wake for Woken {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

#[test]
fn a_stream_in_which_something_is_hidden_rides_as_it_came_up_to_there() {
    let Some(ring) = ring(8) else { return };
    let mut line = Line::new();
    let mut ride = line.start_with(&ring, Reply::hiding_usage);
    let mut sent = Vec::new();
    for number in 0..50 {
        line.engine.write_all(&event(number)).unwrap();
        turn(&ring);
        sent.extend_from_slice(&event(number));
        assert!(ended(&mut ride).is_none());
    }
    let usage = chunk("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7}}\n\n");
    let rest = [event(50), usage, chunk("data: [DONE]\n\n"), LAST.to_vec()].concat();
    line.engine.write_all(&rest).unwrap();
    turn(&ring);
    let mut ridden = ended(&mut ride).unwrap();
    assert_eq!((ridden.end, ridden.bytes as usize), (End::Left, sent.len()));
    assert!(taken(&mut line.client) == sent, "what came before went on untouched");
    let left = String::from_utf8(ridden.reply.take_payload()).unwrap();
    assert_eq!(left, "data: {\"number\":50}\n\ndata: [DONE]\n\n");
    assert!(ridden.reply.is_done() && ridden.reply.usage().is_some());
    assert_eq!(ridden.reply.events(), 52);
}

#[test]
fn a_stream_in_which_something_is_hidden_leaves_where_a_read_ends_inside_an_event() {
    let Some(ring) = ring(8) else { return };
    let mut line = Line::new();
    let mut ride = line.start_with(&ring, Reply::hiding_usage);
    line.engine.write_all(&event(1)).unwrap();
    turn(&ring);
    let bytes = [event(2), event(3)].concat();
    line.engine.write_all(&bytes[..bytes.len() - 7]).unwrap();
    turn(&ring);
    let mut ridden = ended(&mut ride).unwrap();
    assert_eq!(ridden.end, End::Left);
    assert!(taken(&mut line.client) == event(1));
    // The part of the third waits for its end.
    assert_eq!(ridden.reply.take_payload(), b"data: {\"number\":2}\n\n");
}

#[test]
fn what_the_proxy_says_stands_between_two_events_and_before_what_comes_later() {
    let Some(ring) = ring(8) else { return };
    let mut line = Line::new();
    let mut ride = line.start(&ring);
    let sign = chunk(": alive\n\n");
    line.engine.write_all(&event(1)).unwrap();
    turn(&ring);
    assert_eq!(ride.progress(), Some((1, event(1).len() as u64)));
    // What has come and was not taken in yet waits behind it.
    line.engine.write_all(&event(2)).unwrap();
    assert!(ride.say(sign.clone()));
    assert!(!ride.say(sign.clone()), "the client has not taken the last");
    turn(&ring);
    let third = event(3);
    let (front, back) = third.split_at(9);
    line.engine.write_all(front).unwrap();
    turn(&ring);
    assert!(!ride.say(sign.clone()), "an event is open");
    line.engine.write_all(back).unwrap();
    line.engine.write_all(&chunk("data: [DONE]\n\n")).unwrap();
    turn(&ring);
    assert!(!ride.say(sign.clone()), "the stream is over, but for its last chunk");
    line.engine.write_all(LAST).unwrap();
    turn(&ring);
    let ridden = ended(&mut ride).unwrap();
    assert!(ride.progress().is_none() && !ride.say(sign.clone()));
    let done = chunk("data: [DONE]\n\n");
    let all = [event(1), sign, event(2), event(3), done, LAST.to_vec()].concat();
    assert!(taken(&mut line.client) == all);
    assert_eq!(ridden.bytes as usize, all.len() - chunk(": alive\n\n").len());
}

#[test]
fn a_client_that_takes_nothing_is_told_nothing_more() {
    let Some(ring) = ring(8) else { return };
    let mut line = Line::new();
    let ride = line.start(&ring);
    line.engine.set_nonblocking(true).unwrap();
    let mut number = 0;
    while !ride.is_writing() {
        // Large ones and several, so that its buffer is full soon.
        let large = chunk(&format!("data: {}\n\n", "x".repeat(1900)));
        line.engine.write_all(&large.repeat(8)).unwrap();
        turn(&ring);
        number += 1;
        assert!(number < 10_000, "the client's buffer never fills");
    }
    assert!(!ride.say(chunk(": alive\n\n")));
}

/// The engine's end and the proxy's of a connection that acknowledges each piece.
fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (engine, _) = listener.accept().unwrap();
    engine.set_nodelay(true).unwrap();
    set_tcp_quickack(&upstream, true).unwrap();
    (engine, upstream)
}

#[test]
fn small_pieces_are_acknowledged_late_and_each_again_once_that_had_to_end() {
    let Some(ring) = ring(8) else { return };
    let (mut engine, upstream) = tcp();
    let late = || !tcp_quickack(&upstream).unwrap();
    let mut line = Line::new();
    let mut ride = line.start_from(&ring, upstream.as_raw_fd(), |reply| reply);
    let mut number = 0;
    let mut pieces = |count: u32, client: &mut UnixStream| {
        for _ in 0..count {
            number += 1;
            engine.write_all(&event(number)).unwrap();
            let mut arrived = Vec::new();
            while arrived.len() < event(number).len() {
                ring.turn(Millis(1));
                arrived.append(&mut taken(client));
            }
            assert!(arrived == event(number));
        }
    };
    pieces(ACKS_LOOKED_AT_AFTER - 1, &mut line.client);
    assert!(!late(), "a short stream is left in peace");
    pieces(1, &mut line.client);
    assert!(late());
    // What the kernel does when an acknowledgement was due for too long.
    set_tcp_quickack(&upstream, true).unwrap();
    pieces(ACKS_LOOKED_AT_AFTER + ACKS_ASKED_AGAIN_AFTER, &mut line.client);
    assert!(!late(), "it is not asked again as soon as if it had gone well");
    pieces((ACKS_ASKED_AGAIN_FACTOR - 1) * ACKS_ASKED_AGAIN_AFTER, &mut line.client);
    assert!(late());
    // Over before it showed how that went.
    engine.write_all(LAST).unwrap();
    turn(&ring);
    assert_eq!(ended(&mut ride).unwrap().end, End::Over);
    assert!(!late(), "the connection goes back as it came");
}
