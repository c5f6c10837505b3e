//! The life of one connection.

use std::sync::Arc;

use bytes::Bytes;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Duration, timeout};

use super::super::clock::unix_ms;
use super::super::errors::Failure;
use super::super::http::{BodyError, Conn, Framing, Head, HeadError, NoHead, Reply, push_head};
use super::super::persona::Persona;
use super::super::shared::{Life, Phase, Shared};
use super::generate::infer;
use super::plain::{Answer, answer};
use super::route::{Route, route};

/// What becomes of the connection after a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Another request may come.
    Keep,
    /// It is closed in good order.
    Close,
    /// It is closed at once, whatever the other side may have sent.
    Drop,
    /// It is reset.
    Reset,
    /// It is closed in good order, then the engine restarts.
    Restart,
}

/// Serves one connection to its end.
pub(in super::super) async fn serve(shared: Arc<Shared>, stream: TcpStream) {
    let _open = shared.open_connection();
    let mut life = shared.life.subscribe();
    let born = life.borrow().generation;
    let mut conn = Conn::new(stream);
    if shared.faults.borrow().reset_on_accept {
        return conn.reset();
    }
    let next = tokio::select! {
        biased;
        () = doomed(&mut life, born) => Next::Reset,
        next = session(&mut conn, &shared) => next,
    };
    match next {
        Next::Reset => conn.reset(),
        Next::Keep | Next::Drop => {}
        Next::Close => conn.close().await,
        Next::Restart => {
            conn.close().await;
            shared.restart();
        }
    }
}

async fn doomed(life: &mut watch::Receiver<Life>, born: u64) {
    let over = |life: &Life| life.phase == Phase::Killed || life.generation != born;
    // The sender lives as long as anyone could wait here.
    let _ = life.wait_for(over).await;
}

async fn session(conn: &mut Conn, shared: &Arc<Shared>) -> Next {
    let mut served = 0;
    loop {
        let head = match next_head(conn, shared, served).await {
            Ok(head) => head,
            Err(next) => return next,
        };
        served += 1;
        let next = request(conn, shared, &head, served).await;
        if next != Next::Keep {
            return next;
        }
    }
}

/// The next request's head, or how the connection ends.
async fn next_head(conn: &mut Conn, shared: &Shared, served: u64) -> Result<Head, Next> {
    let idle_ms = shared.faults.borrow().idle_close_ms.unwrap_or(shared.options.idle_close_ms);
    // The Python servers time the pause after a reply; llama.cpp's also that before the first request.
    let timed = 0 < served || shared.options.persona == Persona::LlamaCpp;
    let idle = if timed { Duration::from_millis(idle_ms) } else { Duration::MAX };
    let mut life = shared.life.subscribe();
    let head = tokio::select! {
        biased;
        head = timeout(idle, conn.head()) => head,
        _ = life.wait_for(|life| life.phase != Phase::Running) => return Err(Next::Drop),
    };
    match head {
        Ok(Ok(head))
            if head.longest_line > 8_192 && shared.options.persona == Persona::LlamaCpp =>
        {
            Err(refuse_head(conn, shared).await)
        }
        Ok(Ok(head)) => Ok(head),
        Ok(Err(NoHead::Bad(HeadError::Malformed | HeadError::TooLarge))) => {
            Err(refuse_head(conn, shared).await)
        }
        Ok(Err(NoHead::Closed)) | Err(_) => Err(Next::Drop),
    }
}

/// Answers something that is no request. llama.cpp does it without a body.
async fn refuse_head(conn: &mut Conn, shared: &Shared) -> Next {
    let bytes: &[u8] = if shared.options.persona == Persona::LlamaCpp {
        b"HTTP/1.1 400 Bad Request\r\nServer: llama.cpp\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    } else {
        b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n\
          content-length: 30\r\n\r\nInvalid HTTP request received."
    };
    // Whether it arrives or not, the connection ends here.
    let _ = conn.write(bytes).await;
    Next::Close
}

async fn request(conn: &mut Conn, shared: &Arc<Shared>, head: &Head, served: u64) -> Next {
    let persona = shared.options.persona;
    shared.count_request();
    let body = match conn.body(head, shared.options.body_bytes_max).await {
        Ok(body) => body,
        Err(BodyError::Closed) => return Next::Drop,
        Err(BodyError::Malformed) => return refuse_head(conn, shared).await,
        Err(BodyError::TooLarge) => {
            let answer = Answer::failure(persona, None, &Failure::TooLarge);
            return send(conn, shared, head, &answer, true).await;
        }
    };
    let last = head.close || served >= persona.requests_per_connection_max();
    match route(persona, &head.method, &head.path) {
        Ok(Route::Infer(api)) => infer(conn, shared, head, body, api, last).await,
        Ok(route) => inform(conn, shared, route, head, &body, last).await,
        Err(failure) => {
            let answer = Answer::failure(persona, None, &failure);
            send(conn, shared, head, &answer, last).await
        }
    }
}

async fn inform(
    conn: &mut Conn,
    shared: &Arc<Shared>,
    route: Route,
    head: &Head,
    body: &Bytes,
    last: bool,
) -> Next {
    let answer = answer(shared, route, head, body).await;
    let restarts = route == Route::SimRestart;
    match send(conn, shared, head, &answer, last || restarts).await {
        Next::Close if restarts => Next::Restart,
        next => next,
    }
}

/// Writes a whole answer. llama.cpp closes after every status of 400 and above.
pub(super) async fn send(
    conn: &mut Conn,
    shared: &Shared,
    head: &Head,
    answer: &Answer,
    last: bool,
) -> Next {
    let persona = shared.options.persona;
    let stopping = shared.life.borrow().phase != Phase::Running;
    let close = last || stopping || (persona == Persona::LlamaCpp && answer.status >= 400);
    let mut bytes = head_of(shared, answer, close);
    if head.method != "HEAD" {
        bytes.extend_from_slice(&answer.body);
    }
    if !head.path.starts_with("/sim/") {
        hold_head(shared).await;
    }
    match conn.write(&bytes).await {
        Ok(()) if close => Next::Close,
        Ok(()) => Next::Keep,
        Err(_) => Next::Drop,
    }
}

/// Writes an answer's head and half of its body, and closes.
pub(super) async fn send_half(conn: &mut Conn, shared: &Shared, answer: &Answer) -> Next {
    let mut bytes = head_of(shared, answer, false);
    bytes.extend_from_slice(&answer.body[..answer.body.len() / 2]);
    match conn.write(&bytes).await {
        Ok(()) => Next::Close,
        Err(_) => Next::Drop,
    }
}

fn head_of(shared: &Shared, answer: &Answer, close: bool) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(512 + answer.body.len());
    let reply = Reply {
        persona: shared.options.persona,
        status: answer.status,
        content_type: answer.content_type,
        framing: Framing::Length(answer.body.len()),
        extra: &answer.extra,
        close,
        now: unix_ms() / 1_000,
    };
    push_head(&reply, &mut bytes);
    bytes
}

/// Holds a head back as long as the fault in force says.
pub(super) async fn hold_head(shared: &Shared) {
    let hold_ms = shared.faults.borrow().slow_head_ms;
    if hold_ms > 0 {
        tokio::time::sleep(Duration::from_millis(hold_ms)).await;
    }
}
