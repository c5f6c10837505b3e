//! The relay on the ring: connections, who talks to whom, and what to do with each completion.
//!
//! A connection keeps its descriptor until no operation on it is under way, so that no late operation can meet another
//! connection under the same number. It never looks into a message beyond where it ends.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use socket2::SockRef;

use super::ring::{Done, Piece, Ring, Token};
use super::wire::{ReplyEnd, request_length};

/// One side of a relay.
#[derive(Debug)]
struct Connection {
    fd: OwnedFd,
    side: Side,
    /// The connection at the other side while a request is under way.
    peer: Option<Token>,
    /// Operations under way.
    pending: u32,
    closing: bool,
    /// Pieces to be sent after the one being sent.
    queue: VecDeque<Piece>,
    sending: bool,
}

#[derive(Debug)]
enum Side {
    /// With what it sent and nobody was given yet.
    Client(Vec<u8>),
    /// With its place among the backends.
    Backend(usize, ReplyEnd),
}

/// Everything the thread has.
struct Relay {
    ring: Ring,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    backends: Vec<SocketAddr>,
    /// Idle connections of each backend.
    idle: Vec<Vec<Token>>,
    next: usize,
    /// Connections that found no free buffer.
    starved: Vec<Token>,
    given_back: bool,
}

/// Relays between what `listener` accepts and `backends`, in turn, for ever.
pub(crate) fn run(listener: &TcpListener, backends: Vec<SocketAddr>) -> io::Result<Infallible> {
    let idle = backends.iter().map(|_| Vec::new()).collect();
    let mut relay = Relay {
        ring: Ring::new()?,
        connections: Vec::new(),
        free: Vec::new(),
        backends,
        idle,
        next: 0,
        starved: Vec::new(),
        given_back: false,
    };
    relay.ring.accept(listener);
    let mut done = Vec::new();
    loop {
        relay.ring.turn(&mut done)?;
        done.drain(..).for_each(|one| relay.completed(one));
        if std::mem::take(&mut relay.given_back) {
            std::mem::take(&mut relay.starved).into_iter().for_each(|token| relay.listen(token));
        }
    }
}

impl Relay {
    fn completed(&mut self, done: Done) {
        match done {
            Done::Accepted(fd) => {
                let token = self.add(fd, Side::Client(Vec::new()));
                self.listen(token);
            }
            Done::Received(token, piece, armed) => {
                self.finished(token, u32::from(!armed));
                self.received(token, piece, armed);
            }
            Done::Filled(token, bytes) => {
                self.finished(token, 1);
                self.filled(token, bytes);
            }
            Done::Sent(token, whole) => {
                self.given_back = true;
                self.finished(token, 1);
                self.sent(token, whole);
            }
            Done::Starved(token) => {
                self.finished(token, 1);
                self.starved.push(token);
            }
            Done::Closed(token) => {
                self.close(token);
                self.finished(token, 1);
            }
        }
    }

    fn add(&mut self, fd: OwnedFd, side: Side) -> Token {
        // Fails only on a socket that is broken already, which the first operation will tell.
        let _ = SockRef::from(&fd).set_tcp_nodelay(true);
        let connection = Connection {
            fd,
            side,
            peer: None,
            pending: 0,
            closing: false,
            queue: VecDeque::new(),
            sending: false,
        };
        let place = self.free.pop().unwrap_or(self.connections.len());
        if place == self.connections.len() {
            self.connections.push(None);
        }
        self.connections[place] = Some(connection);
        place as Token
    }

    /// The connection, unless it is on its way out.
    fn live(&mut self, token: Token) -> Option<&mut Connection> {
        self.connections[token as usize].as_mut().filter(|connection| !connection.closing)
    }

    /// Waits for what comes next: one piece of a request, all pieces of replies.
    fn listen(&mut self, token: Token) {
        let place = self.connections[token as usize].as_mut();
        let Some(connection) = place.filter(|connection| !connection.closing) else { return };
        connection.pending += 1;
        match connection.side {
            Side::Client(_) => self.ring.receive_one(&connection.fd, token),
            Side::Backend(..) => self.ring.receive_all(&connection.fd, token),
        }
    }

    fn received(&mut self, token: Token, piece: Piece, armed: bool) {
        let place = self.connections[token as usize].as_mut();
        let Some(connection) = place.filter(|connection| !connection.closing) else {
            return self.ring.give_back(piece);
        };
        match &mut connection.side {
            Side::Client(held) => {
                held.extend_from_slice(self.ring.bytes(&piece));
                self.ring.give_back(piece);
                self.given_back = true;
                self.request(token);
            }
            Side::Backend(_, end) => {
                let ended = end.passes(self.ring.bytes(&piece));
                self.reply(token, piece, ended);
                if !armed {
                    self.listen(token);
                }
            }
        }
    }

    /// Looks at what a client sent: forwards a whole request, or waits for the rest.
    fn request(&mut self, token: Token) {
        let place = self.connections[token as usize].as_mut();
        let Some(connection) = place.filter(|one| !one.closing && one.peer.is_none()) else {
            return;
        };
        let Side::Client(held) = &mut connection.side else { return };
        match request_length(held) {
            Some(length) if held.len() >= length => {
                let rest = held.split_off(length);
                let request = std::mem::replace(held, rest);
                self.forward(token, request);
            }
            Some(length) => {
                let bytes = std::mem::take(held);
                let more = length - bytes.len();
                connection.pending += 1;
                self.ring.fill(&connection.fd, token, bytes, more);
            }
            None => self.listen(token),
        }
    }

    fn filled(&mut self, token: Token, bytes: Vec<u8>) {
        let Some(connection) = self.live(token) else { return };
        let whole = request_length(&bytes).is_some_and(|length| bytes.len() >= length);
        connection.side = Side::Client(bytes);
        if whole { self.request(token) } else { self.close(token) }
    }

    fn forward(&mut self, client: Token, request: Vec<u8>) {
        let Some(backend) = self.backend() else { return self.close(client) };
        if let Some(connection) = self.live(client) {
            connection.peer = Some(backend);
        }
        let Some(connection) = self.connections[backend as usize].as_mut() else { return };
        connection.peer = Some(client);
        connection.pending += 1;
        self.ring.send_bytes(&connection.fd, backend, request);
        // A client that leaves is noticed by this.
        self.listen(client);
    }

    /// A connection to the next backend: an idle one, or a new one.
    fn backend(&mut self) -> Option<Token> {
        let place = self.next % self.backends.len();
        self.next += 1;
        if let Some(token) = self.idle[place].pop() {
            return Some(token);
        }
        // Blocks, but on loopback a connection is there at once.
        let stream = TcpStream::connect(self.backends[place]).ok()?;
        let token = self.add(stream.into(), Side::Backend(place, ReplyEnd::default()));
        self.listen(token);
        Some(token)
    }

    fn reply(&mut self, backend: Token, piece: Piece, ended: bool) {
        let connection = self.connections[backend as usize].as_mut();
        let Some((place, client)) = connection.and_then(|connection| {
            let Side::Backend(place, _) = connection.side else { return None };
            let client = connection.peer?;
            connection.peer = connection.peer.filter(|_| !ended);
            Some((place, client))
        }) else {
            self.ring.give_back(piece);
            return self.close(backend);
        };
        let Some(connection) = self.live(client) else { return self.ring.give_back(piece) };
        connection.queue.push_back(piece);
        if ended {
            connection.peer = None;
            self.idle[place].push(backend);
        }
        self.pump(client);
        if ended && self.holds_bytes(client) {
            self.request(client);
        }
    }

    /// Whether a client sent something ahead of its turn. Its next receive is under way otherwise.
    fn holds_bytes(&mut self, client: Token) -> bool {
        let side = self.live(client).map(|connection| &connection.side);
        matches!(side, Some(Side::Client(held)) if !held.is_empty())
    }

    fn pump(&mut self, token: Token) {
        let place = self.connections[token as usize].as_mut();
        let Some(connection) = place.filter(|one| !one.closing && !one.sending) else { return };
        let Some(piece) = connection.queue.pop_front() else { return };
        connection.sending = true;
        connection.pending += 1;
        self.ring.send_piece(&connection.fd, token, piece);
    }

    fn sent(&mut self, token: Token, whole: bool) {
        let Some(connection) = self.live(token) else { return };
        connection.sending = false;
        if whole { self.pump(token) } else { self.close(token) }
    }

    /// Closes a connection and, if a request is under way, the other side's.
    fn close(&mut self, token: Token) {
        let Some(connection) = self.live(token) else { return };
        connection.closing = true;
        // Ends what is under way on it. Fails only if the other end did so first.
        let _ = SockRef::from(&connection.fd).shutdown(Shutdown::Both);
        let (queue, peer) = (std::mem::take(&mut connection.queue), connection.peer.take());
        if let Side::Backend(place, _) = connection.side {
            self.idle[place].retain(|idle| *idle != token);
        }
        queue.into_iter().for_each(|piece| self.ring.give_back(piece));
        if let Some(peer) = peer {
            self.close(peer);
        }
        self.finished(token, 0);
    }

    /// Counts operations as over, and lets go of a closed connection after the last one.
    fn finished(&mut self, token: Token, operations: u32) {
        let place = &mut self.connections[token as usize];
        let Some(connection) = place else { return };
        connection.pending -= operations;
        if connection.closing && connection.pending == 0 {
            *place = None;
            self.free.push(token as usize);
        }
    }
}
