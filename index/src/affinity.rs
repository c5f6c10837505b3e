//! Which conversation lives on which backend: a fixed, lock-free, set-associative table shared by all shards. It also
//! keeps [`Load::conversations`](crate::Load::conversations) true, counting a pin exactly as long as its entry exists, and
//! learns how long conversations are silent between two requests, which says how many of those counted are still expected.
//! It never allocates after it is made and keeps 32 bits of a conversation's key, not its name.
//!
//! # Paths
//! - get: read the key's set (one cache line) for a fresh entry with its tag. Writes nothing.
//! - set: replace the key's entry, else a free or expired one, else the least recently used of the set, by one exchange;
//!   on a lost race look again. Every set also sweeps the next set of the table, so expired pins leave without a timer.
//! - Two first turns of one conversation at the same instant may make two entries; `get` sees the first, the other ages
//!   out. A tag collides with probability 2^-29 a lookup; the cost is one request sent to another conversation's home.
//!
//! # Orderings
//! An entry is one word, so no reader can see half of it. Exchanges are AcqRel: a pin is counted before its entry is
//! published (Release) and uncounted after the entry was taken out (Acquire), so a count never falls below zero.

use crate::due::Gaps;
use crate::limits::{AFFINITY_IDLE_MS_MAX, AFFINITY_WAYS};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::{BackendId, ConversationKey, Fleet, Millis};

/// Conversation pins.
#[derive(Debug)]
pub struct Affinity {
    entries: Box<[AtomicU64]>,
    sets: usize,
    idle_s: u16,
    sweep_at: AtomicU32,
    gaps: Gaps,
}

impl Affinity {
    pub(crate) fn new(entries: usize, idle_ms: u64) -> Self {
        let sets = entries.div_ceil(AFFINITY_WAYS).next_power_of_two();
        let idle_s = idle_ms.min(AFFINITY_IDLE_MS_MAX).div_ceil(1000);
        Self {
            entries: (0..sets * AFFINITY_WAYS).map(|_| AtomicU64::new(0)).collect(),
            sets,
            idle_s: idle_s as u16,
            sweep_at: AtomicU32::new(0),
            gaps: Gaps::new(),
        }
    }

    /// Where the conversation lives, if it was active within the idle time.
    pub fn get(&self, key: ConversationKey, now: Millis) -> Option<BackendId> {
        // Relaxed: the word is the whole entry.
        let words = self.set_of(key).iter().map(|slot| slot.load(Ordering::Relaxed));
        words
            .filter_map(Pin::unpack)
            .find(|pin| pin.tag == tag(key) && pin.age_s(now) <= self.idle_s)
            .map(|pin| pin.backend)
    }

    /// How long a conversation is silent between two requests on average, in ms; until one came back, as long as it may be.
    pub(crate) fn gap_ms(&self) -> f32 {
        self.gaps.mean_ms(1000.0 * f32::from(self.idle_s.max(1)))
    }

    /// Pins the conversation to `backend`, or refreshes the pin.
    pub fn set(&self, fleet: &Fleet, key: ConversationKey, backend: BackendId, now: Millis) {
        let pin = Pin { tag: tag(key), backend, second: second(now) };
        let set = self.set_of(key);
        let old = loop {
            let victim = self.victim(set, key, now);
            if self.replace(fleet, victim, Some(pin), now) {
                break Pin::unpack(victim.1);
            }
        };
        if let Some(old) = old.filter(|old| old.tag == pin.tag && old.age_s(now) <= self.idle_s) {
            self.gaps.add(u64::from(old.age_s(now)));
        }
        // Relaxed: a cursor; two threads sweeping the same set is harmless.
        let next = self.sweep_at.fetch_add(1, Ordering::Relaxed) as usize;
        self.sweep_set(fleet, next, now);
    }

    /// Forgets every pin on `backend`, which is leaving. Walks the whole table: control thread only.
    pub fn forget_backend(&self, fleet: &Fleet, backend: BackendId, now: Millis) {
        self.entries.iter().for_each(|slot| {
            self.remove_if(fleet, slot, now, |pin| pin.backend == backend);
        });
    }

    /// Forgets every expired pin, so that counts fall also when no request comes. Walks the whole table: control thread.
    pub fn sweep(&self, fleet: &Fleet, now: Millis) {
        (0..self.sets).for_each(|set| self.sweep_set(fleet, set, now));
    }

    /// Calls `each` for every pin that has not expired, with a key that names it in any table of at most this size, and how
    /// long ago it was used, in seconds. Walks the whole table: control and learn thread.
    pub fn each(&self, now: Millis, mut each: impl FnMut(ConversationKey, BackendId, u16)) {
        for (place, slot) in self.entries.iter().enumerate() {
            // Relaxed: the word is the whole entry.
            let pin = Pin::unpack(slot.load(Ordering::Relaxed));
            if let Some(pin) = pin.filter(|pin| pin.age_s(now) <= self.idle_s) {
                let key = u64::from(pin.tag) << 32 | (place / AFFINITY_WAYS) as u64;
                each(ConversationKey(key), pin.backend, pin.age_s(now));
            }
        }
    }

    /// Pins the table has room for.
    pub fn capacity(&self) -> usize {
        self.entries.len()
    }

    fn sweep_set(&self, fleet: &Fleet, set: usize, now: Millis) {
        let start = (set & (self.sets - 1)) * AFFINITY_WAYS;
        for slot in self.entries.iter().skip(start).take(AFFINITY_WAYS) {
            self.remove_if(fleet, slot, now, |pin| pin.age_s(now) > self.idle_s);
        }
    }

    fn remove_if(&self, fleet: &Fleet, slot: &AtomicU64, now: Millis, gone: impl Fn(&Pin) -> bool) {
        // Relaxed: the exchange in `replace` compares again.
        while let word = slot.load(Ordering::Relaxed)
            && Pin::unpack(word).as_ref().is_some_and(&gone)
        {
            self.replace(fleet, (slot, word), None, now);
        }
    }

    /// The slot to write for `key`, with the word seen there.
    fn victim<'t>(
        &self,
        set: &'t [AtomicU64],
        key: ConversationKey,
        now: Millis,
    ) -> (&'t AtomicU64, u64) {
        let mut best: Option<(u32, (&AtomicU64, u64))> = None;
        for slot in set {
            // Relaxed: the exchange in `replace` compares again.
            let word = slot.load(Ordering::Relaxed);
            let rank = match Pin::unpack(word) {
                Some(pin) if pin.tag == tag(key) => return (slot, word),
                Some(pin) => u32::from(pin.age_s(now)),
                None => u32::MAX,
            };
            if best.as_ref().is_none_or(|(most, _)| rank > *most) {
                best = Some((rank, (slot, word)));
            }
        }
        // A set is never empty: its size is a constant.
        best.map_or((&set[0], 0), |(_, found)| found)
    }

    /// Exchanges one entry and moves the counts with it. False when another thread was first.
    fn replace(
        &self,
        fleet: &Fleet,
        (slot, old): (&AtomicU64, u64),
        new: Option<Pin>,
        now: Millis,
    ) -> bool {
        let gap_ms = self.gap_ms();
        if let Some(pin) = new {
            fleet.backend(pin.backend).load.add_conversation(now, gap_ms);
        }
        let word = new.map_or(0, Pin::pack);
        // AcqRel: releases the count added above, acquires the count of the entry taken out. Relaxed on failure: retried.
        let won = slot.compare_exchange(old, word, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let out = if won { Pin::unpack(old) } else { new };
        if let Some(pin) = out {
            let age_ms = 1000.0 * f32::from(pin.age_s(now));
            fleet.backend(pin.backend).load.sub_conversation(now, gap_ms, age_ms);
        }
        won
    }

    fn set_of(&self, key: ConversationKey) -> &[AtomicU64] {
        let start = (key.0 as usize & (self.sets - 1)) * AFFINITY_WAYS;
        &self.entries[start..start + AFFINITY_WAYS]
    }
}

/// One entry. Word: bits 0..16 second, 16..32 backend, 32..64 tag; a tag is never 0, so an empty word is no entry.
#[derive(Clone, Copy)]
struct Pin {
    tag: u32,
    backend: BackendId,
    second: u16,
}

impl Pin {
    fn pack(self) -> u64 {
        u64::from(self.tag) << 32 | u64::from(self.backend.0) << 16 | u64::from(self.second)
    }

    fn unpack(word: u64) -> Option<Pin> {
        let tag = (word >> 32) as u32;
        let pin = Pin { tag, backend: BackendId((word >> 16) as u16), second: word as u16 };
        (tag != 0).then_some(pin)
    }

    /// Seconds since the pin was used, modulo 18 hours. A pin set by a thread whose clock is a little ahead is new.
    fn age_s(&self, now: Millis) -> u16 {
        let age = second(now).wrapping_sub(self.second);
        if age > u16::MAX - CLOCK_SKEW_S { 0 } else { age }
    }
}

/// Threads read the clock apart; within this many seconds a pin from the future is a new one.
const CLOCK_SKEW_S: u16 = 60;

fn second(now: Millis) -> u16 {
    (now.0 / 1000) as u16
}

fn tag(key: ConversationKey) -> u32 {
    ((key.0 >> 32) as u32).max(1)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::FleetConfig;

    const IDLE_MS: u64 = 30_000;

    fn fleet(entries: usize) -> Fleet {
        Fleet::new(FleetConfig {
            capacity: 4,
            affinity_entries: entries,
            affinity_idle_ms: IDLE_MS,
        })
    }

    fn key(n: u64) -> ConversationKey {
        ConversationKey(crate::fingerprint::mix(n))
    }

    fn counts(fleet: &Fleet) -> Vec<u32> {
        (0..4).map(|i| fleet.backend(BackendId(i)).load.conversations()).collect()
    }

    #[test]
    fn a_pin_is_found_until_it_has_been_idle_too_long() {
        let f = fleet(64);
        f.affinity().set(&f, key(1), BackendId(2), Millis(5_000));
        assert_eq!(f.affinity().get(key(1), Millis(35_000)), Some(BackendId(2)));
        assert_eq!(f.affinity().get(key(1), Millis(36_000)), None);
        assert_eq!(f.affinity().get(key(2), Millis(5_000)), None);
    }

    #[test]
    fn moving_a_conversation_moves_its_count() {
        let f = fleet(64);
        f.affinity().set(&f, key(1), BackendId(0), Millis(0));
        f.affinity().set(&f, key(1), BackendId(0), Millis(1));
        f.affinity().set(&f, key(2), BackendId(0), Millis(2));
        f.affinity().set(&f, key(1), BackendId(3), Millis(3));
        assert_eq!(counts(&f), [1, 0, 0, 1]);
    }

    #[test]
    fn who_comes_back_counts_once_and_teaches_how_long_it_was_silent() {
        let f = fleet(64);
        let due = |id, second: u64| {
            let load = &f.backend(BackendId(id)).load;
            load.conversations_due(Millis(second * 1000), f.affinity().gap_ms())
        };
        assert_eq!(f.affinity().gap_ms(), IDLE_MS as f32, "nobody came back yet");
        f.affinity().set(&f, key(1), BackendId(0), Millis(0));
        f.affinity().set(&f, key(1), BackendId(0), Millis(10_000));
        assert_eq!(f.affinity().gap_ms(), 10_000.0);
        f.affinity().set(&f, key(2), BackendId(0), Millis(10_000));
        assert!((due(0, 10) - 2.0).abs() < 0.3, "{}", due(0, 10));
        f.affinity().set(&f, key(1), BackendId(3), Millis(20_000));
        assert!(due(0, 20) < 0.6 && (due(3, 20) - 1.0).abs() < 0.01, "it moved");
        f.affinity().forget_backend(&f, BackendId(3), Millis(20_000));
        assert!(due(3, 20) < 0.01, "{}", due(3, 20));
    }

    #[test]
    fn expired_pins_stop_counting_without_being_asked_for() {
        let f = fleet(8);
        f.affinity().set(&f, key(1), BackendId(1), Millis(0));
        f.affinity().sweep(&f, Millis(IDLE_MS + 999));
        assert_eq!(counts(&f), [0, 1, 0, 0]);
        f.affinity().sweep(&f, Millis(IDLE_MS + 1_000));
        assert_eq!(counts(&f), [0, 0, 0, 0]);
    }

    #[test]
    fn a_full_set_gives_up_its_least_recently_used_pin() {
        let f = fleet(AFFINITY_WAYS);
        for n in 0..AFFINITY_WAYS as u64 {
            f.affinity().set(&f, key(n), BackendId(0), Millis(n * 1000));
        }
        f.affinity().set(&f, key(0), BackendId(0), Millis(9_000));
        f.affinity().set(&f, key(99), BackendId(1), Millis(10_000));
        assert_eq!(f.affinity().get(key(1), Millis(10_000)), None);
        assert_eq!(f.affinity().get(key(0), Millis(10_000)), Some(BackendId(0)));
        assert_eq!(counts(&f), [7, 1, 0, 0]);
    }

    #[test]
    fn a_leaving_backend_takes_its_pins_along() {
        let f = fleet(64);
        (0..10).for_each(|n| f.affinity().set(&f, key(n), BackendId(n as u16 % 2), Millis(0)));
        f.affinity().forget_backend(&f, BackendId(1), Millis(0));
        assert_eq!(counts(&f), [5, 0, 0, 0]);
        assert_eq!(f.affinity().get(key(1), Millis(0)), None);
    }

    #[test]
    fn what_is_told_of_a_table_names_its_pins_in_another() {
        let (old, new) = (fleet(64), fleet(32));
        (0..9).for_each(|n| old.affinity().set(&old, key(n), BackendId(n as u16 % 3), Millis(0)));
        old.affinity().set(&old, key(9), BackendId(3), Millis(20_000));
        old.affinity().each(Millis(25_000), |told, backend, age_s| {
            assert_eq!(age_s, if backend == BackendId(3) { 5 } else { 25 });
            new.affinity().set(&new, told, backend, Millis(1_000));
        });
        for n in 0..9 {
            let home = new.affinity().get(key(n), Millis(1_000));
            assert_eq!(home, Some(BackendId(n as u16 % 3)), "{n}");
        }
        assert_eq!(counts(&new), counts(&old));
        let mut left = 0;
        old.affinity().each(Millis(IDLE_MS + 1_000), |_, _, _| left += 1);
        assert_eq!(left, 1, "those that expired are not told");
    }

    #[test]
    fn a_pin_from_a_clock_slightly_ahead_is_new() {
        let f = fleet(64);
        f.affinity().set(&f, key(1), BackendId(2), Millis(9_000));
        assert_eq!(f.affinity().get(key(1), Millis(7_000)), Some(BackendId(2)));
    }
}
