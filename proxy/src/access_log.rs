//! One line a request: JSON or `key=value`, to standard output or a file.
//!
//! The learn thread forms the lines and hands them over in chunks; a thread of its own writes them, so
//! that a slow disk or a stuck pipe loses lines, counted, and never delays learning. A line holds
//! names, numbers and hashes; no prompt, no reply, no header of the client.

mod line;
mod sink;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use config::LogFormat;
use crossbeam::channel::{Receiver, Sender, bounded};

use crate::clock::Stamper;
use crate::insight::Insight;
use crate::limits::{LOG_CHUNK_BYTES, LOG_CHUNKS_MAX, LOG_LINE_BYTES, LOG_STOP_MS};
use crate::published::Upstream;
use crate::record::Record;
use sink::Sink;

pub use line::append as append_line;

/// What happened to the lines so far.
#[derive(Debug, Default)]
pub struct LogCounts {
    lines: AtomicU64,
    dropped: AtomicU64,
    write_errors: AtomicU64,
    reopen: AtomicBool,
}

impl LogCounts {
    /// Lines formed.
    pub fn lines(&self) -> u64 {
        // Relaxed: a count.
        self.lines.load(Ordering::Relaxed)
    }

    /// Lines dropped because writing did not keep up.
    pub fn dropped(&self) -> u64 {
        // Relaxed: a count.
        self.dropped.load(Ordering::Relaxed)
    }

    /// Failed writes; each lost a chunk.
    pub fn write_errors(&self) -> u64 {
        // Relaxed: a count.
        self.write_errors.load(Ordering::Relaxed)
    }

    /// Asks for the file to be opened anew before the next chunk, after it was moved away.
    pub fn order_reopen(&self) {
        // Relaxed: the flag is the whole message.
        self.reopen.store(true, Ordering::Relaxed);
    }

    fn take_reopen(&self) -> bool {
        // Relaxed: as above.
        self.reopen.swap(false, Ordering::Relaxed)
    }

    fn add(counter: &AtomicU64, by: u64) {
        // Relaxed: a count.
        counter.fetch_add(by, Ordering::Relaxed);
    }
}

/// The lines' way out; owned by the learn thread.
#[derive(Debug)]
pub struct AccessLog {
    format: LogFormat,
    stamper: Stamper,
    chunk: Vec<u8>,
    lines_in_chunk: u64,
    insight: Arc<Insight>,
    writing: Option<Writing>,
}

#[derive(Debug)]
struct Writing {
    chunks: Sender<Vec<u8>>,
    ended: Receiver<()>,
    thread: JoinHandle<()>,
}

impl AccessLog {
    /// Opens what the configuration names.
    ///
    /// # Errors
    /// When the file cannot be opened or the thread not started.
    pub fn open(log: &config::Log, insight: Arc<Insight>) -> io::Result<AccessLog> {
        let writing = match Sink::open(&log.access)? {
            Some(sink) => Some(Writing::start(sink, Arc::clone(&insight))?),
            None => None,
        };
        let (stamper, chunk) = (Stamper::default(), Vec::new());
        Ok(AccessLog { format: log.format, stamper, chunk, lines_in_chunk: 0, insight, writing })
    }

    /// Adds a request's line.
    pub fn add(&mut self, record: &Record, wall_ms: u64, upstreams: &[Upstream]) {
        if self.writing.is_none() {
            return;
        }
        if self.chunk.capacity() == 0 {
            // Whole at once: a chunk is a few hundred lines, and growing copies them again and again.
            self.chunk.reserve(LOG_CHUNK_BYTES + LOG_LINE_BYTES);
        }
        append_line(&mut self.chunk, self.format, &mut self.stamper, record, wall_ms, upstreams);
        self.lines_in_chunk += 1;
        LogCounts::add(&self.insight.log.lines, 1);
        if self.chunk.len() >= LOG_CHUNK_BYTES {
            self.flush();
        }
    }

    /// Hands over what was collected; drops and counts it when the writer is too far behind.
    pub fn flush(&mut self) {
        let Some(writing) = &self.writing else { return };
        if self.chunk.is_empty() {
            return;
        }
        let lines = std::mem::take(&mut self.lines_in_chunk);
        if writing.chunks.try_send(std::mem::take(&mut self.chunk)).is_err() {
            LogCounts::add(&self.insight.log.dropped, lines);
        }
    }

    /// Writes the last lines and ends the writing thread, waiting a second at most.
    pub fn close(mut self) {
        self.flush();
        let Some(Writing { chunks, ended, thread }) = self.writing.take() else { return };
        drop(chunks);
        let ended = ended.recv_timeout(Duration::from_millis(LOG_STOP_MS));
        // A disconnected channel also means that the thread is over.
        if ended != Err(crossbeam::channel::RecvTimeoutError::Timeout) {
            // A panic there was its own.
            let _ = thread.join();
        }
    }
}

impl Writing {
    fn start(mut sink: Sink, insight: Arc<Insight>) -> io::Result<Writing> {
        let (chunks, waiting) = bounded::<Vec<u8>>(LOG_CHUNKS_MAX);
        let (end, ended) = bounded::<()>(1);
        let thread =
            std::thread::Builder::new().name("access-log".to_owned()).spawn(move || {
                for chunk in waiting {
                    let counts = &insight.log;
                    if counts.take_reopen() && sink.reopen().is_err() {
                        LogCounts::add(&counts.write_errors, 1);
                    }
                    if sink.write(&chunk).is_err() {
                        LogCounts::add(&counts.write_errors, 1);
                    }
                }
                drop(end);
            })?;
        Ok(Writing { chunks, ended, thread })
    }
}
