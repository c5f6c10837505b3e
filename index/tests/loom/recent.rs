//! Routes too recent to be published: hints in single words, of which a lost race may cost one.

use index::{BackendId, Fleet, Limits, Millis, Overlaps, SequenceHash};
use loom::sync::Arc;
use loom::thread;

use crate::{B, fleet, model};

const OTHER: BackendId = BackendId(1);
const NOW: Millis = Millis(1_000);

/// One block, so one entry.
fn prompt(number: u64) -> [SequenceHash; 1] {
    [SequenceHash(number << 40)]
}

fn depths(fleet: &Fleet, number: u64) -> [u32; 2] {
    let mut overlaps = Overlaps::new();
    fleet.recent().overlay(&prompt(number), NOW, &mut overlaps);
    [B, OTHER].map(|id| overlaps.depth(id))
}

#[test]
fn a_route_is_seen_whole_or_not_at_all_and_one_of_two_at_once_is_kept() {
    model(|| {
        let fleet = fleet(2, Limits::default());
        let routing = {
            let fleet: Arc<Fleet> = Arc::clone(&fleet);
            thread::spawn(move || fleet.recent().record(&prompt(7), 0, OTHER, NOW))
        };
        fleet.recent().record(&prompt(5), 0, B, NOW);
        let early = (depths(&fleet, 5), depths(&fleet, 7));
        assert!(early.0[1] == 0 && early.1[0] == 0, "nobody was sent there: {early:?}");
        routing.join().unwrap();
        let late = (depths(&fleet, 5), depths(&fleet, 7));
        assert!([([1, 0], [0, 1]), ([0, 0], [0, 1]), ([1, 0], [0, 0])].contains(&late), "{late:?}");
    });
}
