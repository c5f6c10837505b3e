//! One shard: a pinned thread that accepts connections and serves them to their end.
//!
//! Shards share nothing but what is in `published`; a connection never changes shards. A panic while
//! serving one connection ends that connection only.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::net::TcpListener as StdListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::{ArcSwap, Cache};
use index::{IndexReader, Picker};
use monoio::io::{CancelHandle, Canceller};
use monoio::net::{TcpListener, TcpStream};

use crate::alarm::Alarms;
use crate::clock;
use crate::http::ResponseHead;
use crate::limits::{
    ACCEPT_LEAD_DIVISOR, ACCEPT_LEAD_MIN, ACCEPT_PAUSE_MS, ACCEPT_YIELD_MS,
    DESCRIPTORS_PER_SESSION, POOL_SWEEP_MS, SPARE_HEAD_BYTES_MAX, SPARE_HEADS_MAX, TICK_MS,
};
use crate::memory::Allowance;
use crate::memory::spare::SpareBodies;
use crate::metrics::{Count, Level, ShardStats, TICKS_ENDED};
use crate::pool::Pools;
use crate::prompt;
use crate::published::{Phase, Published, Routes, Sockets};
use crate::retry::RetryBudget;
use crate::ring::Loop;
use crate::session;
use crate::socket::Watch;
use crate::stream_ring::StreamRing;
use crate::wait::WaitRoom;

/// What the sessions of one shard share.
pub struct Shard {
    /// Its number, from 0.
    pub number: u16,
    /// What all threads share.
    pub shared: &'static Published,
    /// Its counters.
    pub stats: &'static ShardStats,
    /// Its view of models and pools.
    pub routes: RefCell<Cache<&'static ArcSwap<Routes>, Arc<Routes>>>,
    /// Its view of the index.
    pub reader: RefCell<IndexReader>,
    /// Its policy, with scratch memory.
    pub picker: RefCell<Picker>,
    /// Its idle upstream connections.
    pub pools: Pools,
    /// Its ring for streams that have begun, where there can be one.
    pub streams: Option<StreamRing>,
    /// Its waiting requests.
    pub room: Rc<WaitRoom>,
    /// Its part of the memory for bodies and replies.
    pub memory: Rc<Allowance>,
    /// Its deadlines.
    pub alarms: Alarms,
    /// Memory for reading bodies.
    pub scratch: RefCell<prompt::Scratch>,
    /// Memory of bodies that were answered.
    pub spare_bodies: SpareBodies,
    /// Heads of replies that are over, for their memory.
    #[expect(clippy::vec_box, reason = "they come and go as boxes, and only boxes are moved")]
    spare_heads: RefCell<Vec<Box<ResponseHead>>>,
    /// What it may still retry.
    pub retries: RetryBudget,
    random: Cell<u64>,
    requests: Cell<u64>,
    sessions: Cell<usize>,
    accepting: Cell<usize>,
    pulsing: Cell<bool>,
}

impl std::fmt::Debug for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shard").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Shard {
    fn new(
        shared: &'static Published,
        stats: &'static ShardStats,
        number: u16,
        seed: u64,
        uring: bool,
    ) -> Shard {
        Shard {
            number,
            shared,
            stats,
            routes: RefCell::new(Cache::new(&shared.routes)),
            reader: RefCell::new(shared.index.reader()),
            picker: RefCell::new(Picker::new(crate::start::policy_of(&shared.config))),
            pools: Pools::default(),
            streams: uring.then(StreamRing::new).and_then(Result::ok),
            room: Rc::new(WaitRoom::default()),
            memory: Rc::new(Allowance::new(&shared.memory)),
            alarms: Alarms::default(),
            scratch: RefCell::new(prompt::Scratch::default()),
            spare_bodies: SpareBodies::default(),
            spare_heads: RefCell::default(),
            retries: RetryBudget::default(),
            random: Cell::new(seed | 1),
            requests: Cell::new(0),
            sessions: Cell::new(0),
            accepting: Cell::new(0),
            pulsing: Cell::new(false),
        }
    }

    /// The next pseudo-random number (xorshift64*; for ties and sampling, never for secrets).
    pub fn random(&self) -> u64 {
        let mut x = self.random.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.random.set(x);
        x.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A request's number: unlike any other of this process, and scattered so that ids of different
    /// processes rarely meet.
    pub fn next_request_id(&self) -> u64 {
        let count = self.requests.get().wrapping_add(1);
        self.requests.set(count);
        let mixed = (u64::from(self.number) << 48 | count).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ self.shared.instance
    }

    /// A head to parse a reply into, with the memory of an earlier one if there is any.
    pub fn spare_head(&self) -> Box<ResponseHead> {
        self.spare_heads.borrow_mut().pop().unwrap_or_default()
    }

    /// How many idle connections leave room for what the sessions there are may need.
    pub fn idle_room(&self) -> usize {
        let needed = self.sessions.get().saturating_mul(DESCRIPTORS_PER_SESSION);
        self.shared.descriptors_per_shard.saturating_sub(needed)
    }

    /// Keeps the memory of a head that is not needed any more, of a few and not of huge ones.
    pub fn keep_head(&self, head: Box<ResponseHead>) {
        let mut spare = self.spare_heads.borrow_mut();
        if spare.len() < SPARE_HEADS_MAX && head.memory_bytes() <= SPARE_HEAD_BYTES_MAX {
            spare.push(head);
        }
    }

    /// Makes sure the waiting room's pulse runs while somebody waits.
    pub fn keep_pulsing(self: &Rc<Self>) {
        if self.pulsing.replace(true) {
            return;
        }
        let shard = Rc::clone(self);
        monoio::spawn(async move {
            while !shard.room.is_empty() {
                monoio::time::sleep(Duration::from_millis(shard.room.pulse_ms())).await;
                shard.room.pulse(clock::now().millis());
            }
            shard.pulsing.set(false);
        });
    }

    /// Whether the shard may end. Draining closes the listeners and waits for the sessions; stopping cuts
    /// them, too, by ringing every deadline.
    fn has_ended(&self, listening: &[StdListener], accepts: &mut Option<Canceller>) -> bool {
        if !self.shared.accepts() {
            // A pending accept would go on taking connections, for nobody once the shard has ended.
            drop(accepts.take().map(Canceller::cancel));
        }
        let phase = self.shared.phase();
        if phase < Phase::Draining {
            return false;
        }
        // A socket that another process has, too, would be shut down for both.
        if self.shared.sockets() == Sockets::Own {
            for listener in listening {
                // An error means it has ended already.
                let _ = rustix::net::shutdown(listener, rustix::net::Shutdown::Both);
            }
        }
        self.alarms.ring(phase == Phase::Draining);
        self.sessions.get() == 0 && self.accepting.get() == 0
    }

    fn count_sessions(&self, change: isize) {
        let sessions = self.sessions.get().saturating_add_signed(change);
        self.sessions.set(sessions);
        self.stats.set(Level::Sessions, sessions as u64);
    }

    /// Whether another shard has clearly fewer connections.
    fn is_ahead(&self) -> bool {
        let least = self.shared.stats.iter().map(|shard| shard.level(Level::Sessions)).min();
        let least = least.unwrap_or(0);
        self.sessions.get() as u64 > least + ACCEPT_LEAD_MIN + least / ACCEPT_LEAD_DIVISOR
    }

    fn tick(&self) {
        let now = clock::now().millis();
        self.stats.set(Level::Ticks, self.stats.level(Level::Ticks).wrapping_add(1));
        self.alarms.tick(now);
        self.retries.tick(now);
        self.spare_bodies.sweep(now);
        self.stats.set(Level::Waiting, self.room.len() as u64);
        self.stats.set(Level::MemoryHeld, self.memory.used());
    }
}

/// Serves on `listeners` until the process stops. Runs on the calling thread.
///
/// # Errors
/// When no driver or listener can be set up.
pub fn run(
    shared: &'static Published,
    number: u16,
    seed: u64,
    listeners: Vec<StdListener>,
    started: impl FnOnce(&'static str),
) -> io::Result<()> {
    let Some(stats) = shared.stats.get(usize::from(number)) else {
        return Err(io::Error::other("no counters for this shard"));
    };
    let mut event_loop = Loop::start()?;
    stats.set(Level::IoUring, u64::from(event_loop.is_uring()));
    for listener in &listeners {
        set_nonblocking(shared, listener, !event_loop.is_uring())?;
    }
    started(event_loop.name());
    let uring = event_loop.is_uring();
    let served = event_loop.run(serve(shared, stats, number, seed, uring, listeners));
    stats.set(Level::Ticks, TICKS_ENDED);
    // The kernel may still own buffers of cancelled operations: the loop is left to the process's end.
    std::mem::forget(event_loop);
    served
}

/// Makes a listener as the driver wants it. The mark is one for all processes that have the socket.
fn set_nonblocking(shared: &Published, listener: &StdListener, wanted: bool) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(listener)?;
    if flags.contains(rustix::fs::OFlags::NONBLOCK) == wanted {
        return Ok(());
    }
    if shared.sockets() == Sockets::Shared {
        return Err(io::Error::other("the running process is on another I/O driver"));
    }
    listener.set_nonblocking(wanted)
}

async fn serve(
    shared: &'static Published,
    stats: &'static ShardStats,
    number: u16,
    seed: u64,
    uring: bool,
    listeners: Vec<StdListener>,
) -> io::Result<()> {
    let shard = Rc::new(Shard::new(shared, stats, number, seed, uring));
    let mut listening = Vec::new();
    let canceller = Canceller::new();
    for listener in listeners {
        listening.push(listener.try_clone()?);
        let watch = Watch::new(listener.try_clone()?.into())?;
        let listener = TcpListener::from_std(listener)?;
        monoio::spawn(accept(Rc::clone(&shard), listener, watch, canceller.handle()));
    }
    let mut accepts = Some(canceller);
    if let Some(ring) = &shard.streams {
        let watch = Watch::new(ring.descriptor()?)?;
        monoio::spawn(drive_streams(Rc::clone(&shard), watch));
    }
    let mut since_sweep = 0;
    loop {
        monoio::time::sleep(Duration::from_millis(TICK_MS)).await;
        shard.tick();
        since_sweep += TICK_MS;
        if since_sweep >= POOL_SWEEP_MS {
            since_sweep = 0;
            shard.pools.sweep(clock::now().millis());
            // A reader pins the snapshot it last saw; an idle shard must let go of it too.
            shard.reader.borrow_mut().load();
            stats.set(Level::UpstreamIdle, shard.pools.idle_count() as u64);
        }
        if shard.has_ended(&listening, &mut accepts) {
            return Ok(());
        }
    }
}

/// Turns the stream ring whenever it has something to do.
async fn drive_streams(shard: Rc<Shard>, watch: Watch) {
    let Some(ring) = &shard.streams else { return };
    while watch.readable().await.is_ok() {
        while !ring.turn(clock::now().millis()) {
            yield_now().await;
        }
    }
}

/// Takes connections as they come, unless this shard has clearly more than another: all wait at one
/// listener, and streams last for minutes, so chance would leave some cores idle and others full.
async fn accept(shard: Rc<Shard>, listener: TcpListener, watch: Watch, until: CancelHandle) {
    while shard.shared.accepts() {
        // A connection wakes every shard that watches, but only one that is already accepting: were the
        // others to accept at once, those left over by one that got ahead would wait for the next arrival.
        if watch.readable().await.is_ok() && shard.is_ahead() {
            monoio::time::sleep(Duration::from_millis(ACCEPT_YIELD_MS)).await;
            continue;
        }
        shard.accepting.set(shard.accepting.get() + 1);
        let accepted = listener.cancelable_accept(until.clone()).await;
        shard.accepting.set(shard.accepting.get() - 1);
        match accepted {
            Ok((stream, _)) => admit(&shard, stream),
            Err(_) if !shard.shared.accepts() => return,
            Err(_) => {
                shard.stats.add(Count::AcceptErrors, 1);
                monoio::time::sleep(Duration::from_millis(ACCEPT_PAUSE_MS)).await;
            }
        }
    }
}

fn admit(shard: &Rc<Shard>, stream: TcpStream) {
    if shard.sessions.get() >= shard.shared.sessions_per_shard_max {
        shard.stats.add(Count::ConnectionsRefused, 1);
        return;
    }
    shard.count_sessions(1);
    shard.pools.keep_at_most(shard.idle_room());
    shard.stats.add(Count::Accepted, 1);
    let shard = Rc::clone(shard);
    monoio::spawn(async move {
        let served = Caught(Box::pin(session::serve(Rc::clone(&shard), stream))).await;
        if served.is_err() {
            shard.stats.add(Count::Panics, 1);
        }
        shard.stats.add(Count::Closed, 1);
        shard.count_sessions(-1);
    });
}

/// Turns a panic of the future within into an error, so that it ends one connection and not the shard.
struct Caught<F>(Pin<Box<F>>);

impl<F: Future> Future for Caught<F> {
    type Output = Result<F::Output, ()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let inner = self.0.as_mut();
        match catch_unwind(AssertUnwindSafe(|| inner.poll(cx))) {
            Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
            Ok(Poll::Pending) => Poll::Pending,
            Err(_) => Poll::Ready(Err(())),
        }
    }
}

/// Lets the other tasks of this shard run.
async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;

    use super::*;

    fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
        pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_panic_while_serving_becomes_an_error_of_that_connection() {
        let connection = async {
            std::future::ready(()).await;
            panic!("a bug met by one connection");
        };
        assert!(matches!(poll_once(Caught(Box::pin(connection))), Poll::Ready(Err(()))));
    }

    #[test]
    fn what_does_not_panic_is_passed_through() {
        assert!(matches!(poll_once(Caught(Box::pin(async { 7 }))), Poll::Ready(Ok(7))));
        let waits = std::future::pending::<()>();
        assert!(poll_once(Caught(Box::pin(waits))).is_pending());
    }
}
