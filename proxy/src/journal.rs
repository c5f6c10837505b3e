//! Changes of state, in words: to standard error as they happen, and the newest few for the admin
//! address.
//!
//! Written by the control and learn threads only, never by a shard, and never with a byte of a prompt.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use config::{Level, LogFormat};
use serde::Serialize;

use crate::clock;
use crate::limits::JOURNAL_ENTRIES_MAX;
use crate::say;

/// One message.
#[derive(Debug, Clone, Serialize)]
pub struct Entry {
    /// When, RFC 3339.
    pub time: String,
    /// How important.
    pub level: &'static str,
    /// Which backend it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// What happened.
    pub message: String,
}

/// The messages of one process.
#[derive(Debug)]
pub struct Journal {
    level: Level,
    format: LogFormat,
    newest: Mutex<VecDeque<Entry>>,
}

impl Journal {
    /// A journal that prints what is at least as important as the configuration asks for.
    pub fn new(log: &config::Log) -> Journal {
        Journal { level: log.level, format: log.format, newest: Mutex::default() }
    }

    /// Notes a message.
    pub fn note(&self, level: Level, backend: Option<&str>, message: impl Into<String>) {
        if level > self.level {
            return;
        }
        let entry = entry(level, backend, message.into());
        say::log(&self.line(&entry));
        self.keep(entry);
    }

    fn keep(&self, entry: Entry) {
        let mut newest = self.lock();
        if newest.len() >= JOURNAL_ENTRIES_MAX {
            newest.pop_front();
        }
        newest.push_back(entry);
    }

    /// The newest messages, newest first.
    pub fn newest(&self, count: usize) -> Vec<Entry> {
        self.lock().iter().rev().take(count).cloned().collect()
    }

    fn line(&self, entry: &Entry) -> String {
        match self.format {
            LogFormat::Json => serde_json::to_string(entry).unwrap_or_default(),
            LogFormat::Text => {
                let about =
                    entry.backend.as_deref().map(|name| format!(" {name}:")).unwrap_or_default();
                format!("{} {}{about} {}", entry.time, entry.level, entry.message)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn entry(level: Level, backend: Option<&str>, message: String) -> Entry {
    let time = clock::rfc3339(clock::wall_millis());
    Entry { time, level: word(level), backend: backend.map(str::to_owned), message }
}

fn word(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warn => "warn",
        Level::Info => "info",
        Level::Debug => "debug",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(level: Level) -> Journal {
        let log = config::Log { access: config::AccessLog::Off, format: LogFormat::Json, level };
        Journal::new(&log)
    }

    #[test]
    fn what_is_less_important_than_asked_for_is_dropped() {
        let journal = journal(Level::Warn);
        journal.note(Level::Info, None, "quiet");
        journal.note(Level::Error, Some("a"), "loud");
        let newest = journal.newest(10);
        assert_eq!(newest.iter().map(|entry| entry.message.as_str()).collect::<Vec<_>>(), ["loud"]);
    }

    #[test]
    fn only_the_newest_are_kept() {
        let journal = journal(Level::Info);
        for number in 0..JOURNAL_ENTRIES_MAX + 5 {
            journal.keep(entry(Level::Info, None, number.to_string()));
        }
        let newest = journal.newest(usize::MAX);
        assert_eq!(newest.len(), JOURNAL_ENTRIES_MAX);
        assert_eq!(
            newest.first().map(|entry| entry.message.clone()),
            Some((JOURNAL_ENTRIES_MAX + 4).to_string())
        );
    }
}
