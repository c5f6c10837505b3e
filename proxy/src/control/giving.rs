//! The running process's side of a takeover: who asks is looked at, offered the sockets, and waited for.
//!
//! One takeover at a time, each step with a deadline. Whoever is no successor is answered nothing, and
//! counted. Until the successor is ready this process changes nothing but one mark: that a drain must not
//! shut sockets down which another process has, too.

use std::io;
use std::os::unix::net::UnixListener as StdListener;
use std::sync::Arc;
use std::time::Duration;

use config::Level;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Mutex, Semaphore, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::lifecycle::Stage;
use crate::insight::{Errand, Insight};
use crate::limits::{
    ACCEPT_PAUSE_MS, HANDOVER_BYTES_MAX, HANDOVER_MS, TAKEOVER_CALLERS_MAX, TAKEOVER_READY_MS,
    TAKEOVER_WORD_BYTES_MAX, TAKEOVER_WORD_MS,
};
use crate::notify::Notify;
use crate::published::{Phase, Published, Sockets};
use crate::takeover::{GO, HANDOVER, HELLO, NO, Offer, READY, may};

/// What is given, and to whom one listens for it.
#[derive(Debug)]
pub(crate) struct Stock {
    pub(crate) door: StdListener,
    pub(crate) offer: Offer,
}

/// See the module.
pub(super) struct Giving {
    pub(super) shared: &'static Published,
    pub(super) insight: Arc<Insight>,
    pub(super) notify: Arc<Notify>,
    pub(super) stage: watch::Sender<Stage>,
    /// The task that serves the admin address.
    pub(super) admin: AbortHandle,
    pub(super) offer: Offer,
    pub(super) turn: Mutex<()>,
}

/// Why somebody who came was given nothing.
enum Refused {
    /// Nothing was asked.
    Nothing,
    /// By no successor, or not as one asks.
    Stranger(String),
    /// A successor's takeover came to nothing.
    Failed(String),
}

impl Giving {
    /// Hears everybody who comes to the door.
    pub(super) async fn serve(self, door: StdListener) {
        let listening = door.set_nonblocking(true).and_then(|()| UnixListener::from_std(door));
        let Ok(door) = listening else {
            let message = "the takeover socket cannot be served";
            return self.insight.journal.note(Level::Error, None, message);
        };
        let this = Arc::new(self);
        let room = Arc::new(Semaphore::new(TAKEOVER_CALLERS_MAX));
        loop {
            // The semaphore is never closed.
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
            match door.accept().await {
                Ok((stream, _)) => {
                    let this = Arc::clone(&this);
                    tokio::spawn(async move {
                        this.hear(stream).await;
                        drop(permit);
                    });
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(ACCEPT_PAUSE_MS)).await,
            }
        }
    }

    async fn hear(&self, mut stream: UnixStream) {
        let journal = &self.insight.journal;
        match self.give(&mut stream).await {
            Ok(pid) => {
                journal.note(Level::Info, None, format!("process {pid} took over the sockets"));
            }
            Err(Refused::Nothing) => {}
            Err(Refused::Stranger(why)) => {
                self.insight.count_takeover_refused();
                journal.note(Level::Warn, None, format!("refused at the takeover socket: {why}"));
            }
            Err(Refused::Failed(why)) => {
                self.insight.count_takeover_refused();
                journal.note(Level::Warn, None, format!("a takeover failed: {why}"));
                // The successor may be gone already.
                let _ = stream.write_all(format!("{NO}{why}\n").as_bytes()).await;
            }
        }
    }

    /// The whole of one takeover. Returns the successor's process id.
    async fn give(&self, stream: &mut UnixStream) -> Result<i32, Refused> {
        let peer = stream.peer_cred().map_err(|e| Refused::Stranger(e.to_string()))?;
        if !may(peer.uid()) {
            return Err(Refused::Stranger(format!("user {} may not ask", peer.uid())));
        }
        let pid = peer.pid().unwrap_or_default();
        match word(stream, TAKEOVER_WORD_MS).await.map_err(|e| Refused::Stranger(e.to_string()))? {
            said if said == HELLO => {}
            said if said.is_empty() => return Err(Refused::Nothing),
            said => return Err(Refused::Stranger(format!("{} bytes of no request", said.len()))),
        }
        let Ok(_turn) = self.turn.try_lock() else { return failed("another is under way") };
        if self.shared.phase() >= Phase::Leaving || self.shared.sockets() != Sockets::Own {
            return failed("this process is leaving already");
        }
        self.shared.set_sockets(Sockets::Shared);
        self.notify.reloading();
        let given = self.hand_over(stream, pid).await;
        match &given {
            Ok(()) => self.leave(),
            Err(_) => {
                self.shared.set_sockets(Sockets::Own);
                self.notify.goes_on();
            }
        }
        given.map(|()| pid).map_err(|e| Refused::Failed(e.to_string()))
    }

    async fn hand_over(&self, stream: &mut UnixStream, pid: i32) -> io::Result<()> {
        let sending = stream.async_io(Interest::WRITABLE, || self.offer.send(&*stream));
        timeout(Duration::from_millis(TAKEOVER_WORD_MS), sending).await??;
        let mut said = word(stream, TAKEOVER_READY_MS).await?;
        if said == HANDOVER {
            self.tell(stream).await?;
            said = word(stream, TAKEOVER_READY_MS).await?;
        }
        if said.is_empty() {
            return Err(io::Error::other("the successor ended before it was ready"));
        }
        if said != READY {
            return Err(io::Error::other("the successor said what was not understood"));
        }
        // Before the successor speaks to the service manager: only the main process is heard.
        self.notify.succeeded_by(pid);
        stream.write_all(GO).await
    }

    /// Tells the successor what is known; nothing, if the learn thread does not say in time or says too much.
    async fn tell(&self, stream: &mut UnixStream) -> io::Result<()> {
        let (ask, asked) = oneshot::channel();
        self.insight.send(Errand::Tell(ask));
        let told = timeout(Duration::from_millis(HANDOVER_MS), asked).await;
        let mut known = told.ok().and_then(Result::ok).unwrap_or_default();
        if known.len() > HANDOVER_BYTES_MAX {
            known = Vec::new();
        }
        let telling = async {
            stream.write_all(&(known.len() as u64).to_le_bytes()).await?;
            stream.write_all(&known).await
        };
        timeout(Duration::from_millis(TAKEOVER_WORD_MS), telling).await?
    }

    /// What a stop signal does, with the difference that nobody new is let in from this moment on.
    fn leave(&self) {
        self.shared.set_sockets(Sockets::Given);
        self.admin.abort();
        self.stage.send_modify(|stage| *stage = Stage::Leave.max(*stage));
    }
}

fn failed(why: &str) -> Result<i32, Refused> {
    Err(Refused::Failed(why.to_owned()))
}

/// One line, or what came before the end of it; empty when the peer ended without a word.
async fn word(stream: &mut UnixStream, within_ms: u64) -> io::Result<Vec<u8>> {
    let mut said = Vec::with_capacity(TAKEOVER_WORD_BYTES_MAX);
    let reading = async {
        while said.len() < TAKEOVER_WORD_BYTES_MAX && !said.ends_with(b"\n") {
            // Bounded by the capacity, because a limited reader reads no further.
            let left = TAKEOVER_WORD_BYTES_MAX - said.len();
            if (&mut *stream).take(left as u64).read_buf(&mut said).await? == 0 {
                break;
            }
        }
        io::Result::Ok(())
    };
    match timeout(Duration::from_millis(within_ms), reading).await {
        Ok(read) => read.map(|()| said),
        Err(_) => Err(io::Error::other(format!("nothing whole within {within_ms} ms"))),
    }
}
