//! The progress of one prefill and of all running requests between two events. Rates are constant there, so progress is a
//! product. All running requests produce at the same rate, so one clock counts tokens for all of them: a request that starts at
//! reading `r` has its k-th further token at `r + k`. Integers only: the same calls give the same times on every machine.

use super::params::Micros;

/// One token, in the unit of every progress here (a billionth of a token).
pub(super) const TOKEN: u64 = 1_000_000_000;

#[derive(Debug, Default)]
pub(super) struct Pace {
    now: Micros,
    /// What is left of the prompt being computed.
    prefill_left: u64,
    prefill_rate: u64,
    /// Tokens a request running since the beginning would have produced.
    decoded: u64,
    decode_rate: u64,
}

impl Pace {
    pub(super) fn now(&self) -> Micros {
        self.now
    }

    pub(super) fn decoded(&self) -> u64 {
        self.decoded
    }

    /// Both rates, tokens a second, from now on.
    pub(super) fn set_rates(&mut self, prefill_tps: f64, decode_tps: f64) {
        self.prefill_rate = rate(prefill_tps);
        self.decode_rate = rate(decode_tps);
    }

    pub(super) fn begin_prefill(&mut self, tokens: f64) {
        self.prefill_left = (tokens * TOKEN as f64).round() as u64;
    }

    /// Drops the prompt being computed and tells how many tokens of it were left.
    pub(super) fn drop_prefill(&mut self) -> u32 {
        let left = self.prefill_left.div_ceil(TOKEN);
        self.prefill_left = 0;
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    pub(super) fn prefill_left(&self) -> u64 {
        self.prefill_left
    }

    /// Time passes. Time never goes back: an earlier `to` changes nothing.
    pub(super) fn move_to(&mut self, to: Micros) {
        let passed = to.saturating_sub(self.now);
        self.now = self.now.max(to);
        self.prefill_left =
            self.prefill_left.saturating_sub(passed.saturating_mul(self.prefill_rate));
        self.decoded = self.decoded.saturating_add(passed.saturating_mul(self.decode_rate));
    }

    /// When the prompt being computed is done; never at rate 0.
    pub(super) fn prefill_done_at(&self) -> Option<Micros> {
        self.after(self.prefill_left, self.prefill_rate)
    }

    /// When the token clock reads `reading`.
    pub(super) fn decoded_at(&self, reading: u64) -> Option<Micros> {
        self.after(reading.saturating_sub(self.decoded), self.decode_rate)
    }

    fn after(&self, work: u64, rate: u64) -> Option<Micros> {
        match (work, rate) {
            (0, _) => Some(self.now),
            (_, 0) => None,
            _ => self.now.checked_add(work.div_ceil(rate)),
        }
    }
}

/// Billionths of a token a microsecond.
fn rate(tps: f64) -> u64 {
    let exact = tps * (TOKEN as f64 / 1e6);
    if exact > 0.0 { (exact.round() as u64).max(1) } else { 0 }
}
