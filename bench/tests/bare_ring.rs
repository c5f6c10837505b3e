//! The bare ring is a fair yardstick only if it relays: whole replies, kept connections, clients that leave.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const REQUEST: &[u8] = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nping";
const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\none\n\n\r\n";
const END: &[u8] = b"5\r\ntwo\n\n\r\n0\r\n\r\n";

/// A bare ring before one backend, which is the test itself.
struct Ring {
    process: Child,
    address: SocketAddr,
    backend: TcpListener,
}

impl Ring {
    fn start() -> Ring {
        let backend = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let at = backend.local_addr().expect("bound").to_string();
        let mut process = Command::new(env!("CARGO_BIN_EXE_shearwater-bare-ring"))
            .args(["--listen", "127.0.0.1:0", "--backend", &at])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut line = String::new();
        let output = process.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("a line");
        let address = line.trim().rsplit(' ').next().expect("a word").parse().expect("an address");
        Ring { process, address, backend }
    }

    fn client(&self) -> TcpStream {
        patient(TcpStream::connect(self.address).expect("it listens"))
    }

    fn upstream(&self) -> TcpStream {
        patient(self.backend.accept().expect("it connects").0)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn patient(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    stream
}

fn read(stream: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).expect("that many bytes");
    bytes
}

#[test]
fn a_reply_is_relayed_piece_by_piece_and_both_connections_serve_the_next() {
    let ring = Ring::start();
    let mut client = ring.client();
    client.write_all(REQUEST).expect("sent");
    let mut upstream = ring.upstream();
    for _ in 0..3 {
        assert_eq!(read(&mut upstream, REQUEST.len()), REQUEST);
        upstream.write_all(HEAD).expect("sent");
        assert_eq!(read(&mut client, HEAD.len()), HEAD, "before the rest is there");
        upstream.write_all(END).expect("sent");
        assert_eq!(read(&mut client, END.len()), END);
        client.write_all(REQUEST).expect("sent");
    }
}

#[test]
fn a_large_request_arrives_as_it_was_sent() {
    let ring = Ring::start();
    let mut client = ring.client();
    let body: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    let head = format!("POST / HTTP/1.1\r\ncontent-length: {}\r\n\r\n", body.len());
    client.write_all(head.as_bytes()).expect("sent");
    client.write_all(&body).expect("sent");
    let mut upstream = ring.upstream();
    assert_eq!(read(&mut upstream, head.len()), head.as_bytes());
    assert!(read(&mut upstream, body.len()) == body, "the body differs");
}

#[test]
fn a_client_that_leaves_is_heard_of_upstream() {
    let ring = Ring::start();
    let mut client = ring.client();
    client.write_all(REQUEST).expect("sent");
    let mut upstream = ring.upstream();
    read(&mut upstream, REQUEST.len());
    upstream.write_all(HEAD).expect("sent");
    read(&mut client, HEAD.len());
    drop(client);
    assert_eq!(upstream.read(&mut [0]).expect("closed, not broken"), 0);
}
