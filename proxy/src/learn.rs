//! The learn thread: the only writer of the index.
//!
//! It drains the shards' notes, turns them into observations, publishes, and keeps what can only be
//! said of a finished request: the explained decisions, the access log, the request metrics. Shards
//! never wake it and never wait for it: it looks often while there is work and rarely when there is
//! none. It touches no socket of a request.

mod budget;
mod counting;
mod evidence;
pub mod tally;

#[cfg(test)]
mod tests;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use index::{BackendId, IndexWriter, Millis, Observation};

use crate::access_log::AccessLog;
use crate::clock::{self, Micros, Wall};
use crate::explain::Explained;
use crate::insight::{Errand, IndexFigures, Insight};
use crate::limits::{
    HANDOVER_MS, LEARN_BATCH_FEW, LEARN_BATCH_MAX, LEARN_CHORES_MS, LEARN_PAUSE_MAX_MS,
    LEARN_PAUSE_MIN_MS,
};
use crate::pages;
use crate::published::{Learned, Published, Routes};
use crate::record::{Note, Record};
use crate::takeover::handover::{self, Inherited};
use arc_swap::{ArcSwap, Cache};
use counting::Counting;
use evidence::{Lesson, Scale};

/// The running learn thread.
#[derive(Debug)]
pub struct Handle {
    stopping: Arc<AtomicBool>,
    thread: JoinHandle<()>,
    insight: Arc<Insight>,
}

impl Handle {
    /// What it tells the control thread.
    pub fn insight(&self) -> Arc<Insight> {
        Arc::clone(&self.insight)
    }

    /// Has what a predecessor told taken in. `None` if it could not be read, or not in time.
    pub(crate) fn inherit(&self, told: Vec<u8>) -> Option<Inherited> {
        let (done, waiting) = mpsc::sync_channel(1);
        self.insight.send(Errand::TakeIn(told, done));
        self.thread.thread().unpark();
        waiting.recv_timeout(Duration::from_millis(HANDOVER_MS)).ok().flatten()
    }

    /// Takes in what is still queued, writes the last log lines and ends. Call it when no shard runs.
    pub fn join(self) {
        // Release: pairs with the Acquire in `run`, so that notes pushed before are seen there.
        self.stopping.store(true, Ordering::Release);
        self.thread.thread().unpark();
        // A panic there was its own; stopping goes on.
        let _ = self.thread.join();
    }
}

/// Starts the learn thread.
///
/// # Errors
/// When the access log cannot be opened or the thread not started.
pub fn start(shared: &'static Published, writer: IndexWriter) -> io::Result<Handle> {
    let insight = Arc::new(Insight::new(shared));
    let log = AccessLog::open(&shared.config.log, Arc::clone(&insight))?;
    let stopping = Arc::new(AtomicBool::new(false));
    let mut learner = Learner::new(shared, writer, Arc::clone(&insight), log);
    let stop = Arc::clone(&stopping);
    let thread = std::thread::Builder::new().name("learn".to_owned()).spawn(move || {
        learner.run(&stop);
        learner.close();
    })?;
    Ok(Handle { stopping, thread, insight })
}

/// The thread's state.
struct Learner {
    shared: &'static Published,
    writer: IndexWriter,
    insight: Arc<Insight>,
    log: AccessLog,
    counting: Counting,
    /// Its view of models and pools.
    routes: Cache<&'static ArcSwap<Routes>, Arc<Routes>>,
    /// This turn's wall-clock time.
    wall: Wall,
    /// Blocks each backend was last given.
    budgets: Vec<u64>,
    figures: IndexFigures,
    chores_at: Millis,
}

impl Learner {
    fn new(
        shared: &'static Published,
        writer: IndexWriter,
        insight: Arc<Insight>,
        log: AccessLog,
    ) -> Learner {
        let budgets = vec![0; shared.upstreams.len()];
        Learner {
            shared,
            writer,
            counting: Counting::new(&insight.tally, &shared.upstreams),
            insight,
            log,
            routes: Cache::new(&shared.routes),
            wall: Wall::now(),
            budgets,
            figures: IndexFigures::default(),
            chores_at: Millis(0),
        }
    }

    fn run(&mut self, stopping: &AtomicBool) {
        let mut pause_ms = LEARN_PAUSE_MIN_MS;
        loop {
            // Acquire: pairs with the Release in `Handle::join`; looked at before the queue, so that
            // nothing pushed before the stop is missed.
            let last = stopping.load(Ordering::Acquire);
            let taken = self.turn();
            if last && taken == 0 {
                return;
            }
            pause_ms = match taken {
                LEARN_BATCH_MAX.. => continue,
                0..LEARN_BATCH_FEW if !self.writer.is_behind() => {
                    (pause_ms * 2).min(LEARN_PAUSE_MAX_MS)
                }
                _ => LEARN_PAUSE_MIN_MS,
            };
            if !last {
                std::thread::park_timeout(Duration::from_millis(pause_ms));
            }
        }
    }

    /// One look at the queue: how many notes were taken in.
    fn turn(&mut self) -> usize {
        let ordered = self.obey();
        self.wall = Wall::now();
        let mut taken = 0;
        while taken < LEARN_BATCH_MAX {
            let Some(note) = self.shared.notes.pop() else { break };
            self.take(note);
            taken += 1;
        }
        let now = clock::now().millis();
        if taken > 0 || ordered || self.writer.is_behind() {
            self.figures.notes += taken as u64;
            self.publish(now);
        }
        if now.since(self.chores_at) >= LEARN_CHORES_MS {
            self.chores_at = now;
            self.chores(now);
        }
        taken
    }

    fn publish(&mut self, now: Millis) {
        let began = clock::now();
        self.writer.publish(now);
        self.figures.published += 1;
        self.counting.published(clock::now().since(began));
    }

    /// Forgets backends whose engines restarted, and runs errands. True when there was anything to do.
    fn obey(&mut self) -> bool {
        if !self.insight.take_orders() {
            return false;
        }
        for (id, backend) in ids().zip(&self.insight.backends) {
            if backend.take_cleared() {
                self.writer.apply(Observation::Cleared { backend: id });
                self.shared.fleet.backend(id).restarted();
            }
        }
        for errand in self.insight.take_errands() {
            self.run_errand(errand);
        }
        true
    }

    /// Whoever asked may have given up waiting.
    fn run_errand(&mut self, errand: Errand) {
        let now = clock::now().millis();
        match errand {
            Errand::Tell(to) => {
                let _ = to.send(handover::write(self.shared, &self.writer, now));
            }
            Errand::TakeIn(bytes, to) => {
                let inherited = handover::take_in(&bytes, self.shared, &mut self.writer, now);
                self.publish(now);
                let _ = to.send(inherited);
            }
        }
    }

    fn take(&mut self, note: Note) {
        match note {
            Note::Routed { backend, blocks, at } => {
                if !blocks.is_empty() {
                    self.writer.apply(Observation::Stored { backend, blocks, at: at.millis() });
                }
            }
            Note::Ended(record) => self.ended(record),
        }
    }

    fn ended(&mut self, mut record: Box<Record>) {
        let wall_ms = self.wall.of(record.times.end);
        self.log.add(&record, wall_ms, &self.shared.upstreams);
        let lesson = self.learn(&mut record);
        self.counting.ended(&record, lesson_shortfall(lesson));
        if let Some(explained) = Explained::take(&mut record, wall_ms) {
            self.insight.decisions.push(explained);
        }
    }

    /// Applies what the record teaches; its blocks are used up.
    fn learn(&mut self, record: &mut Record) -> Lesson {
        let Some(backend) = record.backend else { return Lesson::Nothing };
        if record.times.first_byte.is_some()
            && let Some(upstream) = self.shared.upstream(backend)
        {
            upstream.note_alive(record.times.end.millis());
        }
        let routes = self.routes.load();
        let pool = record.model.as_deref().and_then(|model| routes.pools.get(model));
        let (known, all) = (pool.map(|pool| &*pool.learned), &*routes.all.learned);
        // Judged by what was known before it: its own density must not vouch for itself.
        let scale = Scale {
            page_tokens: self.insight.backend(backend).map_or(1, |seen| seen.page_tokens()),
            block_bytes: self.shared.config.routing.block_bytes,
            bytes_per_token_milli: known.unwrap_or(all).bytes_per_token_milli(),
        };
        let lesson = evidence::lesson(record, scale);
        measure(&mut self.writer, record, backend, scale);
        if evidence::succeeded(record) {
            learn_ratio(record, known, all);
        }
        let blocks = std::mem::take(&mut record.blocks);
        self.apply(lesson, backend, blocks, record.times.end);
        lesson
    }

    fn apply(
        &mut self,
        lesson: Lesson,
        backend: BackendId,
        blocks: Vec<index::SequenceHash>,
        at: Micros,
    ) {
        let at = at.millis();
        let (predicted_blocks, cached_blocks) = match lesson {
            Lesson::Nothing => return,
            Lesson::Confirmed => {
                return self.writer.apply(Observation::Stored { backend, blocks, at });
            }
            Lesson::Short { predicted_blocks, cached_blocks } => (predicted_blocks, cached_blocks),
            Lesson::NeverRan { held_blocks } => {
                (u32::try_from(blocks.len()).unwrap_or(u32::MAX), held_blocks)
            }
        };
        let again = matches!(lesson, Lesson::Short { .. }).then(|| blocks.clone());
        self.writer.apply(Observation::Reported {
            backend,
            blocks,
            predicted_blocks,
            cached_blocks,
            at,
        });
        if let Some(blocks) = again {
            // It has computed the whole prompt meanwhile.
            self.writer.apply(Observation::Stored { backend, blocks, at });
        }
    }

    /// What is done once a second.
    fn chores(&mut self, now: Millis) {
        self.set_budgets();
        // Also frees snapshots that readers have let go of since.
        self.publish(now);
        self.figures.stats = self.writer.stats();
        self.figures.at = now;
        pages::follow_index(self.figures.stats.bytes);
        self.insight.set_index_figures(self.figures.clone());
        self.log.flush();
    }

    fn set_budgets(&mut self) {
        let routing = &self.shared.config.routing;
        let ratios = self.ratios();
        for (((id, seen), ratio), budget) in
            ids().zip(&self.insight.backends).zip(ratios).zip(&mut self.budgets)
        {
            let blocks_max = budget::blocks_max(&budget::Cache {
                tokens: seen.cache_tokens(),
                keeps_more: seen.caches_more(),
                bytes_per_token: ratio,
                block_bytes: routing.block_bytes,
                blocks_default: routing.evidence_blocks_default,
            });
            if budget::moved(*budget, blocks_max) {
                *budget = blocks_max;
                self.writer.apply(Observation::Budget { backend: id, blocks_max });
            }
        }
    }

    /// Bytes per token of each backend: the largest of its models', since a budget errs high.
    fn ratios(&self) -> Vec<f32> {
        let routes = self.shared.routes.load();
        let mut ratios: Vec<Option<f32>> = vec![None; self.shared.upstreams.len()];
        for pool in routes.pools.values() {
            let ratio = pool.learned.bytes_per_token();
            for id in pool.backends.iter() {
                if let Some(most) = ratios.get_mut(id.index()) {
                    *most = Some(most.map_or(ratio, |other| other.max(ratio)));
                }
            }
        }
        let all: &Learned = &routes.all.learned;
        ratios.into_iter().map(|most| most.unwrap_or_else(|| all.bytes_per_token())).collect()
    }

    fn close(self) {
        self.log.close();
    }
}

/// What the engine had cached teaches how much it can hold.
fn measure(writer: &mut IndexWriter, record: &Record, backend: BackendId, scale: Scale) {
    let (cached, placed) = (evidence::cached(record, scale), record.times.placed);
    if let (Some((least, most)), Some(placed)) = (cached, placed) {
        let (blocks, routed_at) = (record.blocks.clone(), placed.millis());
        writer.apply(Observation::Cached { backend, blocks, least, most, routed_at });
    }
}

/// Lets a reply's figures move what is known of its model's tokens, and of everybody's.
fn learn_ratio(record: &Record, known: Option<&Learned>, all: &Learned) {
    let tokens = record.usage.as_ref().map(|usage| usage.prompt_tokens);
    let Some(tokens) = tokens.filter(|_| record.canonical_bytes > 0) else { return };
    for learned in known.into_iter().chain([all]) {
        learned.learn(record.canonical_bytes, tokens);
    }
}

fn lesson_shortfall(lesson: Lesson) -> Option<u32> {
    match lesson {
        Lesson::Short { predicted_blocks, cached_blocks } => Some(predicted_blocks - cached_blocks),
        _ => None,
    }
}

fn ids() -> impl Iterator<Item = BackendId> {
    (0..=u16::MAX).map(BackendId)
}
