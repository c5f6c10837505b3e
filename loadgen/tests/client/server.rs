//! A tiny model server: hyper for replies that are well framed, bare bytes for those that are not.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context as Poller, Poll};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use hyper::header::HeaderMap;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use loadgen::client::{Load, Options, Workload};
use loadgen::report::Report;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// A request as the server saw it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

/// A reply body whose pieces are sent by the test; an error breaks the connection.
pub(crate) struct Pieces(mpsc::Receiver<io::Result<Bytes>>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        poller: &mut Poller<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(poller).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

/// The sending half of a reply.
pub(crate) struct Sender(mpsc::Sender<io::Result<Bytes>>);

impl Sender {
    /// Sends a piece; `false` when the client has left.
    pub(crate) async fn send(&self, piece: impl Into<Bytes>) -> bool {
        self.0.send(Ok(piece.into())).await.is_ok()
    }

    /// Breaks the connection without ending the reply.
    pub(crate) async fn break_off(self) {
        let _ = self.0.send(Err(io::Error::other("broken off"))).await;
    }

    /// Waits until the client has left.
    pub(crate) async fn abandoned(&self) {
        self.0.closed().await;
    }
}

/// A server that answers until the test ends.
pub(crate) struct Server {
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    /// Answers each request with status 200 and an event stream that `answer` writes.
    pub(crate) async fn start<F, R>(answer: F) -> Server
    where
        F: Fn(Seen, Sender) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        Server::replying("text/event-stream", 200, answer).await
    }

    /// Answers each request with this content type and status.
    pub(crate) async fn replying<F, R>(content_type: &'static str, status: u16, answer: F) -> Server
    where
        F: Fn(Seen, Sender) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let record = seen.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (record, answer) = (record.clone(), answer.clone());
                let service = service_fn(move |request| {
                    respond(request, record.clone(), answer.clone(), content_type, status)
                });
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(connection);
            }
        });
        Server { url, seen }
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("not poisoned").clone()
    }
}

async fn respond<F, R>(
    request: Request<Incoming>,
    record: Arc<Mutex<Vec<Seen>>>,
    answer: F,
    content_type: &'static str,
    status: u16,
) -> Result<Response<Pieces>, Infallible>
where
    F: Fn(Seen, Sender) -> R,
    R: Future<Output = ()> + Send + 'static,
{
    let (head, body) = request.into_parts();
    let body = body.collect().await.expect("a whole request").to_bytes();
    let seen = Seen {
        path: head.uri.to_string(),
        headers: head.headers,
        body: serde_json::from_slice(&body).expect("a JSON request"),
    };
    let backend = {
        let mut record = record.lock().expect("not poisoned");
        record.push(seen.clone());
        format!("b-{}", record.len() % 2)
    };
    let (sender, pieces) = mpsc::channel(1);
    tokio::spawn(answer(seen, Sender(sender)));
    let response = Response::builder()
        .status(status)
        .header("content-type", content_type)
        .header("x-shearwater-backend", backend);
    Ok(response.body(Pieces(pieces)).expect("valid head"))
}

/// Starts a server that reads one request per step and answers it with these bytes, then closes
/// the connection after the last. Every connection runs the same steps.
pub(crate) async fn raw(steps: Vec<Vec<u8>>) -> (String, Arc<Mutex<u64>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let requests = Arc::new(Mutex::new(0));
    let count = requests.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            for step in &steps {
                if !read_request(&mut stream).await {
                    break;
                }
                *count.lock().expect("not poisoned") += 1;
                stream.write_all(step).await.expect("the client is there");
            }
        }
    });
    (url, requests)
}

/// Reads one request with a `content-length`; `false` at the end of the connection.
pub(crate) async fn read_request(stream: &mut TcpStream) -> bool {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.to_lowercase();
            let length = length.split("content-length: ").nth(1).expect("a length");
            let length: usize = length.lines().next().expect("a line").parse().expect("a number");
            if body.len() >= length {
                return true;
            }
        }
        if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            return false;
        }
    }
}

/// One chat event with a piece of text.
pub(crate) fn chat_text(text: &str) -> String {
    format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
}

/// The last events of a chat stream: reason, counts, end.
pub(crate) fn chat_end(prompt: u64, cached: u64) -> String {
    format!(
        "data: {{\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"stop\"}}]}}\n\n\
         data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":{prompt},\"completion_tokens\":2,\
         \"prompt_tokens_details\":{{\"cached_tokens\":{cached}}}}}}}\n\ndata: [DONE]\n\n"
    )
}

/// Answers with two pieces of text and an end, as a chat engine that had half of it cached.
pub(crate) async fn answer_chat(_: Seen, reply: Sender) {
    reply.send(chat_text("one ")).await;
    reply.send(chat_text("two")).await;
    reply.send(chat_end(100, 50)).await;
}

/// A closed loop of one conversation against `url`.
pub(crate) fn one_conversation(url: &str, turns: u32) -> Options {
    let mut options = Options::new(url);
    options.load = Load::Closed {
        conversations: 1,
        turns,
        think: std::time::Duration::ZERO,
        ramp: std::time::Duration::ZERO,
    };
    options
}

/// Runs a workload to its end without blocking the server of the test.
pub(crate) async fn run(options: Options) -> Report {
    let handle = Workload::start(options).expect("valid options");
    handle.ended().await;
    handle.report()
}
