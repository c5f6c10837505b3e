//! One client connection: its requests one after another, in the order they came.
//!
//! It reads heads, hands each request to an exchange and decides whether the connection goes on. It
//! knows nothing of backends.

use std::pin::pin;
use std::rc::Rc;

use monoio::net::TcpStream;

use crate::alarm::{Raced, within};
use crate::answer::{self, Situation};
use crate::api::Dialect;
use crate::client::{Client, ClientLost};
use crate::clock;
use crate::exchange;
use crate::http::{Downstream, HeadError, HeadErrorKind, HeadLimits, RequestHead, Version};
use crate::limits::{LINGER_BYTES_MAX, LINGER_MS, REQUEST_HEAD};
use crate::metrics::Count;
use crate::published::Phase;
use crate::shard::Shard;
use crate::socket::Socket;

/// Whether the connection carries another request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Read the next request.
    Request,
    /// Nothing is left to read or to say.
    Close,
    /// Unread bytes may still arrive: give the client time to read our answer.
    Linger,
}

/// Serves a connection to its end.
pub async fn serve(shard: Rc<Shard>, stream: TcpStream) {
    let client = Client::new(Socket::new(stream), shard.alarms.add());
    let mut head = RequestHead::new();
    let mut first = true;
    loop {
        match next_head(&shard, &client, &mut head, first).await {
            Ok(()) => {}
            Err(NoHead::Closed) => return,
            Err(NoHead::Refused(error)) => {
                shard.stats.add(Count::HeadsRefused, 1);
                refuse(&shard, &client, error).await;
                return linger(&client).await;
            }
        }
        first = false;
        match exchange::serve(&shard, &client, &head).await {
            Next::Request if shard.shared.phase() < Phase::Draining => {}
            // Closing over unread bytes would reset the connection and take our answer away.
            Next::Request | Next::Close if client.has_unread() => return linger(&client).await,
            Next::Request | Next::Close => return,
            Next::Linger => return linger(&client).await,
        }
    }
}

enum NoHead {
    Closed,
    Refused(HeadError),
}

/// Reads until `head` holds a whole request head. Between requests no buffer is held.
async fn next_head(
    shard: &Shard,
    client: &Client,
    head: &mut RequestHead,
    first: bool,
) -> Result<(), NoHead> {
    let timeouts = &shard.shared.config.timeouts;
    if !first && client.inbox_is_empty() {
        client.alarm.set(clock::recent().millis(), timeouts.keep_alive_idle_ms);
        client.alarm.set_idle(true);
        let woken = within(&client.alarm, pin!(client.has_more())).await;
        client.alarm.set_idle(false);
        if woken != Raced::Done(true) {
            return Err(NoHead::Closed);
        }
    }
    // Set once for the whole head: a client that dribbles must not buy itself more time.
    let limits = head_limits(shard);
    let head_due = clock::recent().millis();
    let mut buf = client.take_inbox();
    loop {
        if !buf.is_empty() {
            match head.parse(&buf, &limits) {
                Ok(Some(consumed)) => {
                    buf.drain(..consumed.min(buf.len()));
                    client.put_back(buf);
                    return Ok(());
                }
                Ok(None) => {}
                Err(error) => return Err(NoHead::Refused(error)),
            }
        }
        client.alarm.set(head_due, timeouts.head_ms);
        buf = match client.read_more(buf).await {
            Ok(buf) => buf,
            Err(ClientLost::Gone | ClientLost::Stalled) => return Err(NoHead::Closed),
        };
    }
}

fn head_limits(shard: &Shard) -> HeadLimits {
    let limits = &shard.shared.config.limits;
    HeadLimits {
        bytes_max: usize::try_from(limits.head_bytes_max).unwrap_or(usize::MAX),
        line_bytes_max: REQUEST_HEAD.line_bytes_max,
        headers_max: usize::try_from(limits.headers_max).unwrap_or(usize::MAX),
    }
}

/// Answers a request whose head could not be accepted; no exchange exists for it.
async fn refuse(shard: &Shard, client: &Client, error: HeadError) {
    let to = Downstream { version: Version::Http11, keep_alive: false };
    let id = answer::RequestId::of(shard.next_request_id());
    let mut out = Vec::new();
    answer::own(situation_of(error), Dialect::Plain, id.as_str()).write(&mut out, to, false);
    // A client that is gone needs no answer.
    let _ = client.write(out, shard.shared.config.timeouts.write_stall_ms).await;
}

fn situation_of(error: HeadError) -> Situation {
    match error.kind() {
        HeadErrorKind::TooLarge => Situation::HeadTooLarge,
        HeadErrorKind::UriTooLong => Situation::UriTooLong,
        HeadErrorKind::UnsupportedVersion => Situation::UnsupportedVersion,
        HeadErrorKind::UnknownCoding => Situation::UnknownCoding,
        HeadErrorKind::MethodNotAllowed => Situation::MethodNotAllowed,
        HeadErrorKind::ExpectationFailed => Situation::ExpectationFailed,
        HeadErrorKind::Bad => Situation::BadRequest,
    }
}

/// Says "no more from us", then reads what still arrives for a moment: closing over unread bytes would
/// reset the connection and could take our answer away from the client.
async fn linger(client: &Client) {
    client.socket.shutdown_write();
    client.alarm.set(clock::now().millis(), LINGER_MS);
    let mut drained = 0;
    let mut buf = client.take_inbox();
    while drained < LINGER_BYTES_MAX {
        buf.clear();
        match client.read_more(buf).await {
            Ok(read) => buf = read,
            Err(_) => return,
        }
        drained += buf.len();
    }
}
