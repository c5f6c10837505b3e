//! From starting to stopping: not ready first, while balancers in front notice; then no new
//! connections, while streams finish; then the rest is cut. A second signal cuts at once.

use std::sync::Arc;
use std::time::Duration;

use config::Level;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::insight::Insight;
use crate::notify::Notify;
use crate::published::{Phase, Published, Sockets};

/// What was asked of the process so far; it only goes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Serve.
    Serve,
    /// Leave in good order.
    Leave,
    /// Leave, and drain at once.
    Drain,
    /// Cut what is left.
    Cut,
    /// End the control thread.
    End,
}

impl Stage {
    /// What a stop signal makes of it.
    pub(super) fn after_signal(self) -> Stage {
        match self {
            Stage::Serve => Stage::Leave,
            Stage::Leave | Stage::Drain => Stage::Cut,
            other => other,
        }
    }
}

/// Takes the process through its phases; finishes when the control thread is to end.
pub(super) async fn run(
    shared: &'static Published,
    insight: &Insight,
    notify: &Notify,
    mut stages: watch::Receiver<Stage>,
) {
    let timeouts = &shared.config.timeouts;
    let steps = [
        (Phase::Leaving, Stage::Drain, Some(timeouts.drain_grace_ms)),
        (Phase::Draining, Stage::Cut, Some(timeouts.drain_max_ms)),
        (Phase::Stopping, Stage::End, None),
    ];
    reached(&mut stages, Stage::Leave).await;
    // A successor, if there is one, is the service from now on.
    if shared.sockets() != Sockets::Given {
        notify.stopping();
    }
    for (phase, until, within_ms) in steps {
        if *stages.borrow() >= until {
            continue;
        }
        shared.set_phase(phase);
        insight.journal.note(Level::Info, None, format!("{phase:?}").to_lowercase());
        let wait = reached(&mut stages, until);
        match within_ms {
            // Running out of time is the usual way to the next step.
            Some(ms) => drop(tokio::time::timeout(Duration::from_millis(ms), wait).await),
            None => wait.await,
        }
    }
    shared.set_phase(Phase::Stopping);
}

/// Waits until at least `stage` was asked for. A closed channel means that nobody can ask any more.
async fn reached(stages: &mut watch::Receiver<Stage>, stage: Stage) {
    // An error says that the handle is gone, which is the same as its end.
    let _ = stages.wait_for(|now| *now >= stage).await;
}

/// Turns signals into stages.
pub(super) async fn signals(stage: watch::Sender<Stage>, insight: Arc<Insight>) {
    let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
    let [Ok(mut terminate), Ok(mut interrupt), Ok(mut hangup)] = kinds.map(signal) else {
        return insight.journal.note(Level::Error, None, "cannot listen to signals");
    };
    loop {
        tokio::select! {
            _ = terminate.recv() => stage.send_modify(|stage| *stage = stage.after_signal()),
            _ = interrupt.recv() => stage.send_modify(|stage| *stage = stage.after_signal()),
            _ = hangup.recv() => insight.log.order_reopen(),
        }
    }
}
