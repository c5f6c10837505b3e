//! Signs of life for the service manager: given as long as every shard ticks.
//!
//! A shard that hangs serves nobody and cannot say so; the manager then restarts the process.

use std::sync::Arc;

use crate::metrics::{Level, ShardStats, TICKS_ENDED};
use crate::notify::Notify;
use crate::published::{Published, Sockets};

/// Gives signs of life until the control thread ends.
pub(super) async fn run(shared: &'static Published, notify: Arc<Notify>) {
    let Some(interval) = notify.watchdog_interval() else { return };
    let mut pulse = Pulse::default();
    loop {
        tokio::time::sleep(interval).await;
        // Once the sockets are another's, so is the watch over the service.
        if pulse.beats(&shared.stats) && shared.sockets() == Sockets::Own {
            notify.alive();
        }
    }
}

/// What each shard's tick said at the last look.
#[derive(Debug, Default)]
struct Pulse(Vec<u64>);

impl Pulse {
    /// Whether every shard ticked since the last look, or has ended as it should.
    fn beats(&mut self, shards: &[ShardStats]) -> bool {
        let now: Vec<u64> = shards.iter().map(|shard| shard.level(Level::Ticks)).collect();
        let before = std::mem::replace(&mut self.0, now);
        let ticked = |(at, now): (usize, &u64)| {
            *now == TICKS_ENDED || before.get(at).copied().unwrap_or(0) != *now
        };
        self.0.iter().enumerate().all(ticked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick(shard: &ShardStats) {
        shard.set(Level::Ticks, shard.level(Level::Ticks) + 1);
    }

    #[test]
    fn one_shard_that_does_not_tick_is_enough() {
        let shards = [ShardStats::default(), ShardStats::default()];
        let mut pulse = Pulse::default();
        shards.iter().for_each(tick);
        assert!(pulse.beats(&shards));
        tick(&shards[1]);
        assert!(!pulse.beats(&shards), "the first hangs");
        shards.iter().for_each(tick);
        assert!(pulse.beats(&shards), "it was only slow");
    }

    #[test]
    fn a_shard_that_has_ended_is_not_missed() {
        let shards = [ShardStats::default(), ShardStats::default()];
        let mut pulse = Pulse::default();
        shards[0].set(Level::Ticks, TICKS_ENDED);
        for _ in 0..3 {
            tick(&shards[1]);
            assert!(pulse.beats(&shards));
        }
    }
}
