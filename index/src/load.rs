//! What one backend is busy with, beyond its slots: prefill work still to be done, conversations that live there, and
//! what its engine last reported. Exact and shared by all shards at once: load 50 ms old costs more than an index ten
//! seconds old. It never refuses anything; that is the business of [`Slots`](crate::Slots).
//!
//! # Orderings
//! Independent gauges that publish nothing, so every operation is Relaxed.

use crate::Millis;
use crate::due::Due;
use crate::latency::{Latency, Seen};
use crate::pace::Pace;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::turn::Turn;

/// Load gauges of one backend.
#[derive(Debug)]
pub struct Load {
    uncached_tokens: AtomicU64,
    conversations: AtomicU32,
    due: Due,
    queue_depth: AtomicU32,
    kv_usage_permille: AtomicU32,
    latency: Latency,
    pub(crate) pace: Pace,
    pub(crate) turn: Turn,
}

impl Load {
    pub(crate) fn new() -> Self {
        Self {
            uncached_tokens: AtomicU64::new(0),
            conversations: AtomicU32::new(0),
            due: Due::new(),
            queue_depth: AtomicU32::new(0),
            kv_usage_permille: AtomicU32::new(0),
            latency: Latency::new(),
            pace: Pace::new(),
            turn: Turn::new(),
        }
    }

    /// Prompt tokens routed here, believed not cached, whose prefill has not ended yet.
    pub fn uncached_tokens(&self) -> u64 {
        // Relaxed: an independent gauge.
        self.uncached_tokens.load(Ordering::Relaxed)
    }

    /// What is left of [`uncached_tokens`](Self::uncached_tokens) if the engine goes on at the rate it has shown: the
    /// prompt it is at is part done.
    pub fn remaining_tokens(&self, now: Millis) -> u64 {
        self.pace.remaining(self.uncached_tokens(), now)
    }

    /// How long all of [`uncached_tokens`](Self::uncached_tokens) take to prefill at the rate the engine has shown, ms;
    /// `None` until it has shown one.
    pub fn prefill_ms(&self) -> Option<u64> {
        self.pace.takes_ms(self.uncached_tokens())
    }

    /// Conversations pinned here.
    pub fn conversations(&self) -> u32 {
        // Relaxed: an independent gauge.
        self.conversations.load(Ordering::Relaxed)
    }

    /// The same, each counted the less the longer it has been silent, where a silence is `gap_ms` long on average.
    pub fn conversations_due(&self, now: Millis, gap_ms: f32) -> f32 {
        self.due.at(now, gap_ms)
    }

    /// How long first tokens took to come from here.
    pub fn first_token(&self) -> Seen {
        self.latency.seen()
    }

    /// Requests waiting inside the engine, as it last reported.
    pub fn queue_depth(&self) -> u32 {
        // Relaxed: an independent gauge.
        self.queue_depth.load(Ordering::Relaxed)
    }

    /// Share of the engine's KV cache in use, in thousandths, as it last reported.
    pub fn kv_usage_permille(&self) -> u32 {
        // Relaxed: an independent gauge.
        self.kv_usage_permille.load(Ordering::Relaxed)
    }

    /// A first token came after so long.
    pub(crate) fn note_first_token(&self, ms: u64, now: Millis) {
        self.latency.add(ms, now);
    }

    /// What was learned of the engine's speed is of another one, or of before it was restarted.
    pub(crate) fn forget_speed(&self) {
        self.latency.forget();
        self.pace.forget();
        self.turn.forget();
    }

    pub(crate) fn set_queue_depth(&self, requests: u32) {
        // Relaxed: an independent gauge.
        self.queue_depth.store(requests, Ordering::Relaxed);
    }

    pub(crate) fn set_kv_usage_permille(&self, permille: u32) {
        // Relaxed: an independent gauge.
        self.kv_usage_permille.store(permille.min(1000), Ordering::Relaxed);
    }

    pub(crate) fn add_uncached(&self, tokens: u64) {
        // Relaxed: an independent gauge.
        self.uncached_tokens.fetch_add(tokens, Ordering::Relaxed);
    }

    pub(crate) fn sub_uncached(&self, tokens: u64) {
        // Relaxed: an independent gauge; every subtraction follows its own addition.
        let before = self.uncached_tokens.fetch_sub(tokens, Ordering::Relaxed);
        debug_assert!(before >= tokens, "gave back prefill work that was never there");
    }

    pub(crate) fn add_conversation(&self, now: Millis, gap_ms: f32) {
        // Relaxed: an independent gauge.
        self.conversations.fetch_add(1, Ordering::Relaxed);
        self.due.add(now, gap_ms);
    }

    pub(crate) fn sub_conversation(&self, now: Millis, gap_ms: f32, age_ms: f32) {
        // Relaxed: the pin's exchange in the affinity table orders this after the addition it undoes.
        let before = self.conversations.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before >= 1, "unpinned a conversation that was never pinned");
        self.due.sub(now, gap_ms, age_ms);
    }
}
