//! A stream without the event that tells its usage: for clients that did not ask for it, where the proxy did.
//!
//! It holds back the event under way, until its blank line says whether it goes on; every other byte goes on as it
//! came. What is held is bounded: an event beyond the bound goes on whatever it says.

use crate::limits::SSE_CARRY_BYTES_MAX;
use crate::prompt::json::{Kind, Tape, Value};

/// What has passed, and what is held back.
#[derive(Debug, Default)]
pub(crate) struct Hiding {
    /// To be passed on.
    passed: Vec<u8>,
    /// The event under way.
    open: Vec<u8>,
    /// The event under way is to be hidden.
    hit: bool,
    /// The event under way was too long to be held: its start has gone.
    gone: bool,
    /// Something was hidden since the last look.
    hidden: bool,
}

impl Hiding {
    /// The next bytes.
    pub(super) fn take_in(&mut self, bytes: &[u8]) {
        if self.gone {
            return self.passed.extend_from_slice(bytes);
        }
        self.open.extend_from_slice(bytes);
        if self.open.len() > SSE_CARRY_BYTES_MAX {
            self.gone = true;
            self.passed.append(&mut self.open);
        }
    }

    /// The event under way tells usage and nothing else.
    pub(super) fn hit(&mut self) {
        self.hit = !self.gone;
    }

    /// The event under way is over. Returns whether it was hidden.
    pub(super) fn end_event(&mut self) -> bool {
        self.gone = false;
        let hides = std::mem::take(&mut self.hit);
        if hides {
            self.open.clear();
            self.hidden = true;
        } else {
            self.passed.append(&mut self.open);
        }
        hides
    }

    /// Whether what came since the last look can go on as it came: nothing was hidden, nothing is held back. Then it
    /// is taken for gone.
    pub(crate) fn went_on(&mut self) -> bool {
        let whole = !self.hidden && !self.gone && self.open.is_empty();
        if whole {
            self.passed.clear();
        }
        whole
    }

    /// What is to go on; when the stream has ended, also what no blank line ended.
    pub(crate) fn take(&mut self, ended: bool) -> Vec<u8> {
        if ended {
            self.end_event();
        }
        self.hidden = false;
        std::mem::take(&mut self.passed)
    }
}

/// Whether an event's data is the chunk that was asked for: usage, and no choice.
pub(super) fn tells_only_usage(data: &[u8]) -> bool {
    let mut tape = Tape::default();
    if !mentions_no_choice(data) || tape.parse(data).is_err() {
        return false;
    }
    let [choices, usage] = Value::root(data, tape.tokens()).pick(["choices", "usage"]);
    let no_choice = choices.is_some_and(|list| list.kind() == Kind::Array && list.is_empty());
    no_choice && usage.is_some_and(|usage| usage.kind() == Kind::Object)
}

/// A cheap look before the exact one: some servers mention usage in every event.
fn mentions_no_choice(data: &[u8]) -> bool {
    let key = b"\"choices\"";
    let mut places = memchr::memmem::find_iter(data, key);
    places.any(|at| {
        let rest = data.get(at + key.len()..).unwrap_or_default().trim_ascii_start();
        let list = rest.strip_prefix(b":").unwrap_or_default().trim_ascii_start();
        list.strip_prefix(b"[").is_some_and(|list| list.trim_ascii_start().starts_with(b"]"))
    })
}
