//! What one whole decision costs by the number of backends: look up, pick, reserve, give back. Idle, and with most of the
//! fleet busy; the template of a prompt is held by an eighth of the fleet.

use bench::{Bench, Spread, Stopwatch};
use index::{
    Ask, BackendId, BackendSet, Charge, Fleet, FleetConfig, IndexConfig, Limits, Millis, Picker,
    PolicyKind, Reservation, SequenceHash, Snapshot,
};

use crate::workload::{Mixture, mix};

/// Measures decisions over `backends` backends.
pub(crate) fn decide(bench: &Bench, backends: u64) {
    let (conversations, decisions) = if bench.is_smoke() { (50, 20) } else { (40_000, 20_000) };
    let mixture = Mixture { backends, templates: 64, own_blocks_max: 256 };
    let (mut writer, handle) = index::index(IndexConfig::default());
    for conversation in 0..conversations {
        mixture.play(conversation, &mut writer, Millis(conversation));
    }
    writer.publish(Millis(conversations));
    let mut reader = handle.reader();
    let fleet = Fleet::new(FleetConfig::with_capacity(backends as usize));
    let pool: BackendSet = (0..backends as u16).map(BackendId).collect();
    let limits = Limits { requests_max: 64, tokens_max: 0 };
    pool.iter().for_each(|id| fleet.backend(id).set_limits(limits));
    let mut of = Decisions { mixture, pool, conversations, decisions };
    say(bench, backends, "idle", &mut of.spread(&fleet, reader.load()));
    let _held = busy(&fleet, backends);
    say(bench, backends, "busy", &mut of.spread(&fleet, reader.load()));
}

fn say(bench: &Bench, backends: u64, state: &str, spread: &mut Spread) {
    bench.line(&format!("{backends:6} backends, {state} fleet: {}", spread.text()));
    bench.row(
        serde_json::json!({ "backends": backends, "fleet": state, "decision": spread.json() }),
    );
}

/// Seven of eight backends run a few requests, half of those with prefill pending.
fn busy(fleet: &Fleet, backends: u64) -> Vec<Reservation<'_>> {
    let of_one = |id: u64| {
        let requests = mix(id) % 8;
        (0..requests).filter_map(move |request| {
            let uncached_tokens = mix(id << 8 | request) % 20_000;
            let charge = Charge { tokens: 20_000, uncached_tokens };
            let held = fleet.reserve(BackendId(id as u16), charge).ok()?;
            if id.is_multiple_of(2) {
                held.prefill_done();
            }
            Some(held)
        })
    };
    (0..backends).flat_map(of_one).collect()
}

struct Decisions {
    mixture: Mixture,
    pool: BackendSet,
    conversations: u64,
    decisions: u64,
}

impl Decisions {
    fn spread(&mut self, fleet: &Fleet, snapshot: &Snapshot) -> Spread {
        let mut picker = Picker::new(PolicyKind::DEFAULT);
        let mut spread = Spread::with_capacity(self.decisions as usize);
        let (mut blocks, excluded) = (Vec::new(), BackendSet::default());
        let mut checksum = 0;
        for turn in 0..self.decisions + self.decisions / 8 {
            let conversation = mix(turn) % self.conversations;
            self.mixture.prompt(conversation, self.mixture.own_blocks(conversation), &mut blocks);
            let ask = self.ask(&blocks, &excluded, turn);
            let watch = Stopwatch::start();
            let chosen = picker
                .pick(fleet, snapshot, &ask)
                .map_or(u64::MAX, |placed| u64::from(placed.reservation.backend().0));
            // The first ones grow the scratch.
            if turn >= self.decisions / 8 {
                spread.take(watch.ns());
            }
            checksum ^= chosen;
        }
        std::hint::black_box(checksum);
        spread
    }

    fn ask<'a>(
        &'a self,
        blocks: &'a [SequenceHash],
        excluded: &'a BackendSet,
        turn: u64,
    ) -> Ask<'a> {
        Ask {
            blocks,
            block_tokens: 32.0,
            prompt_tokens: blocks.len() as u64 * 32,
            output_tokens: 512,
            conversation: None,
            pool: &self.pool,
            excluded,
            waited_ms: 0,
            home_wait_ms: 0,
            turn_wait_ms: 0,
            give_way_max: 0,
            streams: false,
            now: Millis(1_000_000 + turn),
            random: mix(turn ^ 0x5555),
        }
    }
}
