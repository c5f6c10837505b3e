//! An operator's switch over one backend: in use, draining, drained, switched off.
//!
//! It is set at the admin address and by nothing else: no probe, breaker or restart of an engine touches it. A backend
//! that is switched off gets no new request and finishes those it has; conversations that live there move on their
//! next turn.

use index::{BackendId, Millis};

use crate::insight::BackendInsight;
use crate::limits::PATROL_MS;
use crate::published::Published;

/// What an operator has made of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Switch {
    /// It takes requests, as far as its health allows.
    #[default]
    Enabled,
    /// No new request; some may still run.
    Draining,
    /// It was drained and nothing runs there any more.
    Drained,
    /// Switched off, here or in the configuration.
    Disabled,
}

impl Switch {
    /// The word in admin answers and in the journal.
    pub fn name(self) -> &'static str {
        match self {
            Switch::Enabled => "enabled",
            Switch::Draining => "draining",
            Switch::Drained => "drained",
            Switch::Disabled => "disabled",
        }
    }

    /// Whether new requests may go there.
    pub fn admits(self) -> bool {
        self == Switch::Enabled
    }

    /// Whether asking for `wanted` asks for nothing new.
    fn is_already(self, wanted: Switch) -> bool {
        self == wanted || self == Switch::Drained && wanted == Switch::Draining
    }
}

/// What came of turning a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turned {
    /// What it is now.
    pub(crate) to: Switch,
    /// Whether it was anything else before.
    pub(crate) changed: bool,
    /// Requests in flight there.
    pub(crate) left: u32,
}

/// Turns the switch of a backend. Doing so again changes nothing.
pub(crate) fn turn(
    shared: &Published,
    id: BackendId,
    seen: &BackendInsight,
    wanted: Switch,
    now: Millis,
) -> Turned {
    let backend = shared.fleet.backend(id);
    seen.report(|report| {
        let changed = !report.switch.is_already(wanted);
        if changed {
            report.switch = wanted;
            report.switched_at = now;
            // Under the report's lock, so that of two operators the last one's word stands in both places.
            backend.set_enabled(wanted.admits());
        }
        Turned { to: report.switch, changed, left: backend.slots.in_flight().0 }
    })
}

/// Notes that a draining backend has nothing left. True when it has just come to that. A decision that was under way
/// when the switch was turned may still have taken a place there, so that one patrol must have passed.
pub(crate) fn note_drained(
    shared: &Published,
    id: BackendId,
    seen: &BackendInsight,
    now: Millis,
) -> bool {
    let left = shared.fleet.backend(id).slots.in_flight().0;
    seen.report(|report| {
        let drained = report.switch == Switch::Draining
            && left == 0
            && now.since(report.switched_at) >= PATROL_MS;
        if drained {
            report.switch = Switch::Drained;
        }
        drained
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{config, shared};
    use crate::insight::Insight;

    const FLEET: &str = "[[backend]]\nname = \"a\"\nurl = \"http://127.0.0.1:9\"\n";
    const FIRST: BackendId = BackendId(0);

    #[test]
    fn turning_it_again_changes_nothing() {
        let (shared, _writer) = shared(config(FLEET));
        let insight = Insight::new(shared);
        let seen = insight.backend(FIRST).unwrap();
        let turned = |wanted| turn(shared, FIRST, seen, wanted, Millis(0));
        assert!(!turned(Switch::Enabled).changed);
        assert!(turned(Switch::Disabled).changed);
        assert_eq!(
            turned(Switch::Disabled),
            Turned { to: Switch::Disabled, changed: false, left: 0 }
        );
        assert!(shared.fleet.backend(FIRST).admits().is_err());
        assert!(turned(Switch::Enabled).changed);
        assert!(shared.fleet.backend(FIRST).admits().is_ok());
    }

    #[test]
    fn it_is_drained_once_nothing_runs_there_and_draining_it_again_leaves_it_so() {
        let (shared, _writer) = shared(config(FLEET));
        let insight = Insight::new(shared);
        let seen = insight.backend(FIRST).unwrap();
        let running = shared.fleet.reserve(FIRST, index::Charge::default()).unwrap();
        assert_eq!(turn(shared, FIRST, seen, Switch::Draining, Millis(0)).left, 1);
        assert!(!note_drained(shared, FIRST, seen, Millis(PATROL_MS)));
        drop(running);
        assert!(!note_drained(shared, FIRST, seen, Millis(PATROL_MS - 1)), "too soon to tell");
        assert!(note_drained(shared, FIRST, seen, Millis(PATROL_MS)));
        assert!(!note_drained(shared, FIRST, seen, Millis(PATROL_MS)), "it is said once");
        let again = turn(shared, FIRST, seen, Switch::Draining, Millis(PATROL_MS));
        assert_eq!(again, Turned { to: Switch::Drained, changed: false, left: 0 });
        assert!(shared.fleet.backend(FIRST).admits().is_err());
    }
}
