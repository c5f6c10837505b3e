//! Clients on real connections: they ask, listen, and leave as their plan says. They judge nothing and retry nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::dialect::Said;
use super::readers::Reader;
use super::talks::{Leaves, Talk};
use super::verdict::{Asked, Outcome, Over, Violation, judge};
use super::wire::{Received, may_be_whole};

/// Longer than any timer of the proxy runs in these tests: what is silent for so long has been lost.
const SILENCE: Duration = Duration::from_secs(30);

/// What became of one request.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) became: Result<Outcome, Violation>,
    /// From the request to the first byte of the reply's body.
    pub(crate) first_byte: Option<Duration>,
    /// Who asked what and what was seen, where a rule was broken.
    pub(crate) seen: String,
}

/// What one client saw of one reply.
struct Seen {
    raw: Vec<u8>,
    over: Over,
    first_byte: Option<Duration>,
    stream: Option<TcpStream>,
}

/// Has a conversation. An answer that is no whole reply is forgotten, as its question is; what follows goes on without it.
/// It ends early, between two turns, once `stopped`.
pub(crate) async fn converse(addr: SocketAddr, talk: Talk, stopped: Arc<AtomicBool>) -> Vec<Ended> {
    let (mut before, mut kept, mut all) = (Vec::new(), None, Vec::new());
    for (number, turn) in talk.turns.iter().enumerate() {
        sleep(turn.thinks).await;
        // A flag that stands alone: a turn more or less is no matter.
        if stopped.load(Ordering::Relaxed) {
            break;
        }
        let body = talk.dialect.body(&talk, &before, &turn.says);
        let right = talk.dialect.right_reply(&body);
        let asked = Asked { dialect: talk.dialect, streamed: talk.streamed, right };
        let request = request(talk.dialect.path(), talk.number, body.to_string().as_bytes());
        let seen = ask(addr, kept.take(), &request, Reader::new(talk.takes), turn.leaves).await;
        let became = judge(&asked, &seen.raw, seen.over);
        let broken = became.as_ref().err();
        let told = broken.map(|rule| told(rule, &talk, number, &asked, &seen)).unwrap_or_default();
        if became == Ok(Outcome::Whole) {
            before.push(Said { user: turn.says.clone(), reply: asked.right });
        }
        // A stream that breaks is the last thing on its connection, which its head could not say.
        let ended = matches!(became, Ok(Outcome::Whole | Outcome::Refused(_)));
        let stays = ended && Received::read(&seen.raw).is_ok_and(|received| received.keeps_open());
        kept = seen.stream.filter(|_| stays);
        all.push(Ended { became, first_byte: seen.first_byte, seen: told });
    }
    all
}

fn request(path: &str, talk: u64, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nAuthorization: Bearer client-{talk}\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

async fn ask(
    addr: SocketAddr,
    kept: Option<TcpStream>,
    request: &[u8],
    reader: Reader,
    leaves: Leaves,
) -> Seen {
    let mut seen = Seen { raw: Vec::new(), over: Over::Closed, first_byte: None, stream: None };
    let asked = Instant::now();
    let stream = match kept {
        Some(stream) => Ok(stream),
        None => reader.connect(addr).await,
    };
    let Ok(mut stream) = stream else { return seen };
    // What the proxy said is what counts, also where it closed before everything was sent.
    let _ = stream.write_all(request).await;
    let listening = listen(&mut stream, reader, &mut seen, asked, leaves);
    let over = match leaves {
        Leaves::After(delay) => tokio::select! {
            over = listening => over,
            () = sleep_until(asked + delay) => Over::Left,
        },
        Leaves::Never | Leaves::AfterEvents(_) => listening.await,
    };
    seen.over = over;
    seen.stream = Some(stream);
    seen
}

async fn listen(
    stream: &mut TcpStream,
    mut reader: Reader,
    seen: &mut Seen,
    asked: Instant,
    leaves: Leaves,
) -> Over {
    let (mut head_ends, mut events) = (None, 0);
    loop {
        let from = seen.raw.len();
        match timeout(SILENCE, reader.read(stream, &mut seen.raw)).await {
            Err(_) => return Over::Silent,
            Ok(Err(_) | Ok(0)) if reader.has_stopped() => return Over::Left,
            Ok(Err(_) | Ok(0)) => return Over::Closed,
            Ok(Ok(_)) => {}
        }
        if head_ends.is_none() {
            head_ends = seen.raw.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
        }
        let Some(head) = head_ends else { continue };
        if seen.raw.len() > head && seen.first_byte.is_none() {
            seen.first_byte = Some(asked.elapsed());
        }
        if may_be_whole(&seen.raw) {
            return Over::Framed;
        }
        events += seen.raw[from.max(head)..].windows(2).filter(|two| two == b"\n\n").count();
        if matches!(leaves, Leaves::AfterEvents(last) if events >= last) {
            return Over::Left;
        }
    }
}

/// Everything a reader of a failure needs; the prompts are made of nothing.
fn told(rule: &Violation, talk: &Talk, turn: usize, asked: &Asked, seen: &Seen) -> String {
    let kind = if asked.streamed { "streamed" } else { "whole" };
    let raw = String::from_utf8_lossy(&seen.raw);
    let right = &asked.right;
    let Talk { number, dialect, .. } = talk;
    format!(
        "{rule:?}: talk {number} turn {turn}, {dialect:?} {kind}, {:?}\nright: {right:?}\nseen: {raw}",
        seen.over
    )
}
