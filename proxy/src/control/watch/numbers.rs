//! The part of a backend's task that reads the engine's own numbers and its model list, and turns them
//! into limits, load figures and routes. A restart it notices makes the learn thread forget the evidence.

use config::Level;

use super::{Watch, now};
use crate::control::http_client::get;
use crate::control::models;
use crate::control::reading::{Reading, Signs};
use crate::insight::Model;
use crate::limits::{MODELS_INTERVAL_MS, POOL_REGAIN_DIVISOR};

/// Readings that fail in a row before a reported queue no longer counts.
const STALE_AFTER_FAILURES: u32 = 3;

impl Watch {
    pub(super) async fn scrape(&mut self) {
        let asked = now();
        let slots_asked = self.upstream.pins.ask();
        if self.upstream.ran_out_at().is_some() {
            self.scraper.pool_ran_out();
        }
        let read = self.scraper.read(self.target(), self.upstream.kind()).await;
        match read {
            Ok(None) => {}
            Ok(Some(reading)) => {
                self.report(|report| report.scrape.answered(asked, now()));
                self.upstream.pins.look(&reading.computing, slots_asked);
                if !reading.computing.is_empty() {
                    let in_flight = || self.shared.fleet.backend(self.id).slots.in_flight().0;
                    let running = reading.running.unwrap_or(u32::MAX);
                    self.orphans.look(running, asked, &self.upstream.orphans, in_flight);
                }
                self.take_reading(reading);
            }
            Err(why) => self.scrape_failed(&why),
        }
    }

    pub(super) fn scrape_failed(&mut self, why: &str) {
        let failures = self.report_returning(|report| {
            report.scrape.failed(now(), why);
            report.scrape.failures_in_row
        });
        if failures == STALE_AFTER_FAILURES {
            self.backend().set_queue_depth(0);
            self.backend().set_kv_usage_permille(0);
            self.progress_seen = None;
            self.say(Level::Warn, format!("its own numbers cannot be read: {why}"));
        }
    }

    pub(super) fn take_reading(&mut self, mut reading: Reading) {
        if let Some(why) = reading.signs.restarted_since(&self.signs) {
            self.restarted(why);
        } else {
            reading.signs.complete_from(&self.signs);
        }
        self.signs = reading.signs.clone();
        self.apply_limits(&reading);
        self.backend().set_queue_depth(reading.waiting.unwrap_or(0));
        self.backend().set_kv_usage_permille(reading.kv_usage_permille.unwrap_or(0));
        self.asleep = reading.asleep;
        self.progress_seen = reading.progress;
        self.report(|report| report.reading = reading);
    }

    pub(super) fn apply_limits(&mut self, reading: &Reading) {
        let counts = reading.clone().under(self.settings);
        let limits = counts.limits();
        self.backend().set_prefills_in_turn(counts.ranks == Some(1));
        self.backend().set_stops_at_once(self.upstream.kind().stops_at_once());
        let before = self.limits.replace(limits);
        let told_before = before.map(|told| told.tokens_max);
        self.backend().regrant(limits.requests_max, |granted| {
            tokens_to_grant(told_before, granted, limits.tokens_max)
        });
        if let Some(mine) = self.mine() {
            mine.set_cache(&counts);
        }
    }

    pub(super) fn restarted(&mut self, why: &str) {
        self.insight.order_cleared(self.id);
        self.upstream.pins.forget();
        self.orphans.forget(&self.upstream.orphans);
        self.upstream.forget_ran_out();
        self.signs = Signs::default();
        self.report(|report| {
            report.restarts = report.restarts.saturating_add(1);
            report.restart_reason = Some(why.to_owned());
        });
        self.say(Level::Info, format!("it restarted ({why}): its evidence is forgotten"));
    }

    pub(super) fn lists_models(&self) -> bool {
        self.settings.models.is_empty()
    }

    pub(super) async fn list(&mut self) {
        let asked = now();
        let listed = get(self.target(), "/v1/models").await;
        let why = match listed {
            Ok(reply) => match models::listed(&reply) {
                Some(models) => {
                    self.report(|report| report.listing.answered(asked, now()));
                    return self.take_models(models);
                }
                None => format!("/v1/models answered {} and no list", reply.status),
            },
            Err(error) => error.to_string(),
        };
        self.report(|report| report.listing.failed(now(), &why));
    }

    pub(super) fn take_models(&mut self, models: Vec<Model>) {
        self.due.listing = self.after(MODELS_INTERVAL_MS);
        let changed = self.report_returning(|report| {
            let changed = !report.told || !same_names(&report.models, &models);
            report.told = true;
            report.models = models;
            changed
        });
        if changed {
            self.progress.changed();
        }
    }
}

/// What to grant of a pool of `told` tokens, of which shards left `granted` after it had run out; 0 means unlimited.
fn tokens_to_grant(told_before: Option<u64>, granted: u64, told: u64) -> u64 {
    let lowered = |before: u64| granted != 0 && (before == 0 || granted < before);
    if !told_before.is_some_and(lowered) {
        return told;
    }
    let whole = if told == 0 { granted } else { told };
    let regained = granted + whole / POOL_REGAIN_DIVISOR + 1;
    if told == 0 { regained } else { regained.min(told) }
}

/// Whether two lists name the same models; engines say another `created` each time.
fn same_names(left: &[Model], right: &[Model]) -> bool {
    left.len() == right.len()
        && left.iter().zip(right).all(|(l, r)| l.id == r.id && l.alias == r.alias)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_that_never_ran_out_is_granted_whole_at_every_change() {
        assert_eq!(tokens_to_grant(None, 0, 1_000), 1_000);
        assert_eq!(tokens_to_grant(Some(1_000), 1_000, 1_000), 1_000);
        assert_eq!(tokens_to_grant(Some(1_000), 1_000, 4_000), 4_000);
        assert_eq!(tokens_to_grant(Some(0), 0, 0), 0);
    }

    #[test]
    fn what_a_pool_that_ran_out_lost_comes_back_bit_by_bit_and_no_further() {
        assert_eq!(tokens_to_grant(Some(5_120), 3_000, 5_120), 3_011);
        assert_eq!(tokens_to_grant(Some(5_120), 5_119, 5_120), 5_120);
        assert_eq!(tokens_to_grant(Some(9_000), 3_000, 2_000), 2_000);
        assert_eq!(tokens_to_grant(Some(0), 512, 0), 514);
    }
}
