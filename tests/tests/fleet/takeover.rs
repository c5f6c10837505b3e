//! A successor takes the listening sockets over: nobody is refused, no stream is cut, and a successor that
//! fails, or somebody who is none, changes nothing.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use loadgen::engine::{EngineOptions, Persona, ReplyLength, SimEngine};
use tests::harness::{Client, Launched, PATIENCE, Process, config_text, engine, settled};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::said::{chat, chat_stream};

const TEST: &str = "the_proxy_as_a_process";
const CHAT: &str = "/v1/chat/completions";

/// One engine whose streams take a third of a second.
fn streaming() -> SimEngine {
    let mut options = engine(Persona::Vllm);
    options.params.decode_tps = 100.0;
    let options = EngineOptions { reply: ReplyLength::fixed(30), ..options };
    SimEngine::start(options).expect("a free port")
}

/// A path of its own, free again when dropped.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        let name = format!("shearwater-test-{:016x}", fastrand::u64(..));
        Scratch(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Mostly removed already by the process that made it.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A configuration that can be taken over from at `door`, before this backend.
fn text(door: &Scratch, backend: String) -> String {
    let settings = format!(
        "takeover_socket = \"{}\"\n[timeouts]\ndrain_grace_ms = 1000\ndrain_max_ms = 60000\n\
         [log]\naccess = \"off\"\nlevel = \"info\"\n",
        door.0.display()
    );
    config_text(&[backend], &settings)
}

async fn ready(text: &str) -> Process {
    let process = Process::start(TEST, text).await;
    process.is_ready().await;
    process
}

async fn serves(process: &Process) {
    let reply = process.client().await.ask(CHAT, &chat("still there?")).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
}

/// Waits until this many callers were refused, and the journal says so.
async fn refused(process: &Process, count: usize, why: &str) {
    let line = format!("shearwater_takeovers_refused_total {count}");
    settled(&line, async || {
        process.admin("/metrics").await.1.lines().any(|other| other == line).then_some(())
    })
    .await;
    let journal = process.admin("/admin/journal").await.1;
    assert!(journal.contains(why), "{why:?} is not in {journal}");
}

/// Clients that never stop: streams, one-shot requests, and connections kept between requests.
struct Load {
    ends: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    fn before(process: &Process) -> Load {
        let (ends, done) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let clients = (0..12).map(|number| {
            let (ends, done, listen) = (Arc::clone(&ends), Arc::clone(&done), process.listen);
            tokio::spawn(async move {
                let mut client = Client::connect(listen).await;
                // Only a mark; the join below orders the rest.
                while !ends.load(Ordering::Relaxed) {
                    let body = if number % 3 == 0 { chat("again") } else { chat_stream("again") };
                    let reply = client.ask(CHAT, &body).await;
                    assert!(reply.status == 200 && reply.complete, "{}", reply.text());
                    assert!(number % 3 == 0 || reply.text().contains("[DONE]"), "cut");
                    // A count.
                    done.fetch_add(1, Ordering::Relaxed);
                    if number % 2 == 0 || reply.header("connection") == Some("close") {
                        client = Client::connect(listen).await;
                    }
                }
            })
        });
        Load { clients: clients.collect(), ends, done }
    }

    /// Waits until this many more requests were answered.
    async fn goes_on(&self) {
        // A count.
        let goal = self.done.load(Ordering::Relaxed) + 2 * self.clients.len();
        settled("requests are answered", async || {
            // A count.
            (self.done.load(Ordering::Relaxed) >= goal).then_some(())
        })
        .await;
    }

    /// Ends it. Any client that was refused or cut fails the test here.
    async fn ended(self) {
        // Only a mark.
        self.ends.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.await.expect("no request was refused or cut");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_takeover_under_load_refuses_nobody_and_cuts_no_stream() {
    let engine = streaming();
    let door = Scratch::new();
    let text = text(&door, engine.url());
    let mut old = ready(&text).await;
    let load = Load::before(&old);
    load.goes_on().await;
    // The second takes over from the first, and the third from the second.
    for _ in 0..2 {
        let new = Launched::successor(TEST, &text).serves().await;
        assert_eq!((new.listen, new.admin), (old.listen, old.admin));
        assert_eq!(new.admin("/readyz").await.0, 200, "the admin address is the successor's");
        assert!(old.ended().await.success(), "{}", old.wrote("stderr"));
        load.goes_on().await;
        old = new;
    }
    load.ended().await;
    old.terminate();
    assert!(old.ended().await.success());
}

#[tokio::test]
async fn a_stream_of_before_goes_on_while_the_successor_serves() {
    let mut options = engine(Persona::Vllm);
    options.params.decode_tps = 100.0;
    let options = EngineOptions { reply: ReplyLength::fixed(300), ..options };
    let engine = SimEngine::start(options).expect("a free port");
    let door = Scratch::new();
    let text = text(&door, engine.url());
    let mut old = ready(&text).await;
    let mut stream = old.client().await;
    stream.post(CHAT, &chat_stream("tell me everything")).await;
    stream.sees("data: ").await;
    let new = Launched::successor(TEST, &text).serves().await;
    assert!(old.is_running(), "its stream is under way");
    let mut later = new.client().await;
    later.post(CHAT, &chat_stream("and me")).await;
    later.sees("data: ").await;
    let reply = stream.reply().await;
    assert!(reply.complete && reply.text().contains("[DONE]"), "{}", reply.text());
    assert!(old.ended().await.success());
    assert!(later.reply().await.complete);
}

#[tokio::test]
async fn a_successor_that_cannot_start_changes_nothing() {
    let engine = streaming();
    let door = Scratch::new();
    let text = text(&door, engine.url());
    let mut old = ready(&text).await;
    let mut broken = Launched::successor(TEST, &text.replace("[log]", "[lgo]"));
    assert!(!broken.ended().await.success());
    assert!(broken.wrote("stderr").contains("lgo"), "{}", broken.wrote("stderr"));
    // This one fails after it was handed the sockets.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let more = format!("listen = [\"127.0.0.1:0\", \"{address}\"]");
    let mut broken = Launched::successor(TEST, &text.replace("listen = \"127.0.0.1:0\"", &more));
    assert!(!broken.ended().await.success());
    assert!(broken.wrote("stderr").contains(&address), "{}", broken.wrote("stderr"));
    refused(&old, 1, "ended before it was ready").await;
    assert!(old.is_running());
    old.is_ready().await;
    serves(&old).await;
    let new = Launched::successor(TEST, &text).serves().await;
    assert!(old.ended().await.success());
    serves(&new).await;
}

#[tokio::test]
async fn one_successor_at_a_time_and_one_that_dies_is_forgotten() {
    let engine = streaming();
    let door = Scratch::new();
    let text = text(&door, engine.url());
    let mut old = ready(&text).await;
    // It never hears from its backend, so it is never ready.
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", silent.local_addr().expect("an address"));
    let mut stuck = Launched::successor(TEST, &self::text(&door, url));
    let _asked = timeout(PATIENCE, silent.accept()).await.expect("it got the sockets");
    let mut second = Launched::successor(TEST, &text);
    assert!(!second.ended().await.success());
    assert!(second.wrote("stderr").contains("another is under way"), "{}", second.wrote("stderr"));
    refused(&old, 1, "another is under way").await;
    stuck.kill();
    refused(&old, 2, "ended before it was ready").await;
    serves(&old).await;
    let _new = Launched::successor(TEST, &text).serves().await;
    assert!(old.ended().await.success());
}

#[tokio::test]
async fn strangers_at_the_socket_are_told_nothing_and_counted() {
    let engine = streaming();
    let door = Scratch::new();
    let text = text(&door, engine.url());
    let mut old = ready(&text).await;
    let mode = std::fs::metadata(&door.0).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let long = vec![b'x'; 100_000];
    let words: [&[u8]; 5] =
        [b"GET / HTTP/1.1\r\n\r\n", &long, b"shearwater takeover 3\n", b"shearwater", b"ready\n"];
    for (number, word) in words.iter().enumerate() {
        let mut stranger = UnixStream::connect(&door.0).await.expect("a socket");
        // It may be closed before all was said.
        let _ = stranger.write_all(word).await;
        let _ = stranger.shutdown().await;
        let mut answer = Vec::new();
        let _ = stranger.read_to_end(&mut answer).await;
        assert_eq!(String::from_utf8_lossy(&answer), "");
        refused(&old, number + 1, "bytes of no request").await;
    }
    serves(&old).await;
    let _new = Launched::successor(TEST, &text).serves().await;
    assert!(old.ended().await.success());
}

#[tokio::test]
async fn a_second_process_that_takes_nothing_over_finds_the_address_in_use() {
    let engine = streaming();
    let door = Scratch::new();
    let text = text(&door, engine.url());
    let old = ready(&text).await;
    let same = format!("listen = \"{}\"", old.listen);
    let mut second = Launched::start(TEST, &text.replace("listen = \"127.0.0.1:0\"", &same));
    assert!(!second.ended().await.success());
    let said = second.wrote("stderr");
    assert!(said.contains(&old.listen.to_string()) && said.contains("in use"), "{said}");
    // Not even another address makes it take the first one's door.
    let mut third = Launched::start(TEST, &text);
    assert!(!third.ended().await.success());
    assert!(third.wrote("stderr").contains("takeover socket"), "{}", third.wrote("stderr"));
    serves(&old).await;
}
