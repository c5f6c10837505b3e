//! What a run came to: the proxy's levels and counters, the clients' ends, side by side as text. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::clients::Ended;
use super::verdict::Outcome;

/// What the proxy and the engines hold, and what the proxy counted.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Levels {
    /// Requests in flight, as `/metrics` and `/admin/backends` say, summed.
    pub(crate) in_flight: u64,
    /// Tokens reserved, and prompt tokens routed and not computed.
    pub(crate) tokens: u64,
    pub(crate) waiting: u64,
    /// Requests running or waiting in the engines.
    pub(crate) in_engines: u64,
    pub(crate) descriptors: u64,
    pub(crate) resident_bytes: u64,
    /// Requests whose record was counted.
    pub(crate) requests: u64,
    /// Those whose client took nothing for so long that it was left.
    pub(crate) stalled_clients: u64,
    pub(crate) panics: u64,
    pub(crate) retries: u64,
    pub(crate) busy_answers: u64,
    pub(crate) breaker_opened: u64,
}

impl Levels {
    /// Out of the text of `/metrics`.
    pub(crate) fn of_metrics(text: &str) -> Levels {
        let sum = |name: &str| sum_of(text, name, "");
        Levels {
            in_flight: sum("shearwater_backend_in_flight"),
            tokens: sum("shearwater_backend_tokens") + sum("shearwater_backend_uncached_tokens"),
            waiting: sum("shearwater_requests_waiting"),
            in_engines: 0,
            descriptors: sum("process_open_fds"),
            resident_bytes: sum("process_resident_memory_bytes"),
            requests: sum("shearwater_requests_total"),
            stalled_clients: sum_of(text, "shearwater_requests_total", "client_stalled"),
            panics: sum("shearwater_panics_total"),
            retries: sum("shearwater_retries_total"),
            busy_answers: sum("shearwater_busy_answers_total"),
            breaker_opened: sum("shearwater_backend_breaker_opened_total"),
        }
    }

    /// Adds what `/admin/backends` says is held.
    pub(crate) fn add_backends(&mut self, all: &Value) {
        for backend in all["backends"].as_array().into_iter().flatten() {
            let load = |name: &str| backend["load"][name].as_u64().expect("a level");
            self.in_flight += load("requests");
            self.tokens += load("tokens") + load("uncached_tokens");
        }
    }

    /// Whether nothing is held anywhere, and no more descriptors are open than before.
    pub(crate) fn at_rest(&self, descriptors_before: u64) -> bool {
        let held = self.in_flight + self.tokens + self.waiting + self.in_engines;
        held == 0 && self.descriptors <= descriptors_before
    }
}

/// The sum of a metric over its labels, where they name this.
fn sum_of(text: &str, name: &str, label: &str) -> u64 {
    let lines = text.lines().filter_map(|line| line.strip_prefix(name));
    let values = lines.filter(|rest| rest.starts_with([' ', '{']) && rest.contains(label));
    let values = values.filter_map(|rest| rest.rsplit_once(' ')?.1.parse::<f64>().ok());
    values.sum::<f64>() as u64
}

/// How the requests of a run ended.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) sent: u64,
    pub(crate) whole: u64,
    /// Errors as a status.
    pub(crate) refused: BTreeMap<u16, u64>,
    /// Errors after the reply had begun.
    pub(crate) broken: u64,
    pub(crate) gone: u64,
    /// What clients saw that broke a rule.
    pub(crate) violations: Vec<String>,
    first_bytes: Vec<Duration>,
}

impl Figures {
    /// Counts requests that ended.
    pub(crate) fn add(&mut self, all: Vec<Ended>) {
        for ended in all {
            self.sent += 1;
            match ended.became {
                Ok(Outcome::Whole) => {
                    self.whole += 1;
                    self.first_bytes.extend(ended.first_byte);
                }
                Ok(Outcome::Refused(status)) => *self.refused.entry(status).or_default() += 1,
                Ok(Outcome::Broken) => self.broken += 1,
                Ok(Outcome::Gone) => self.gone += 1,
                Err(_) => self.violations.push(ended.seen),
            }
        }
    }

    /// Adds what another client counted.
    pub(crate) fn merge(&mut self, other: Figures) {
        self.sent += other.sent;
        self.whole += other.whole;
        self.broken += other.broken;
        self.gone += other.gone;
        self.violations.extend(other.violations);
        self.first_bytes.extend(other.first_bytes);
        for (status, count) in other.refused {
            *self.refused.entry(status).or_default() += count;
        }
    }

    /// Requests that were answered with an error.
    pub(crate) fn errors(&self) -> u64 {
        self.refused.values().sum::<u64>() + self.broken
    }

    fn first_byte_ms(&self) -> f64 {
        let sum: Duration = self.first_bytes.iter().sum();
        1_000.0 * sum.as_secs_f64() / self.first_bytes.len().max(1) as f64
    }
}

/// Runs side by side, each under its name.
pub(crate) fn table(runs: &[(&str, &Figures, &Levels)]) -> String {
    let heads = ["whole", "error", "gone", "lost", "TTFT ms", "retries", "busy", "opened"];
    let mut text = format!("{:<14}{:>8}", "", "sent");
    heads.iter().for_each(|head| text.push_str(&format!("{head:>9}")));
    for (name, figures, levels) in runs {
        let (lost, first_byte) = (figures.violations.len(), figures.first_byte_ms());
        text.push_str(&format!("\n{name:<14}{:>8}", figures.sent));
        for count in [figures.whole, figures.errors(), figures.gone, lost as u64] {
            text.push_str(&format!("{count:>9}"));
        }
        text.push_str(&format!("{first_byte:>9.1}"));
        for count in [levels.retries, levels.busy_answers, levels.breaker_opened] {
            text.push_str(&format!("{count:>9}"));
        }
        text.push_str(&format!("  errors {:?}, {} in streams", figures.refused, figures.broken));
    }
    text
}

#[test]
fn metrics_are_summed_over_labels_and_not_over_names_that_begin_alike() {
    let text = "# HELP shearwater_panics x\nshearwater_backend_tokens{backend=\"a\"} 3\nshearwater_backend_tokens{backend=\"b\"} 4\n\
                shearwater_backend_tokens_max{backend=\"a\"} 100\nshearwater_panics_total 2\nprocess_open_fds 9\n";
    let mut levels = Levels::of_metrics(text);
    assert_eq!((levels.tokens, levels.panics, levels.descriptors), (7, 2, 9));
    assert!(!levels.at_rest(9));
    levels.tokens = 0;
    assert!(levels.at_rest(9) && !levels.at_rest(8));
    let load = serde_json::json!({ "requests": 1, "tokens": 0, "uncached_tokens": 0 });
    levels.add_backends(&serde_json::json!({ "backends": [{ "load": load }] }));
    assert!(!levels.at_rest(9));
}
