//! What one look at an engine told, whatever engine it is.
//!
//! Plain values: reading them never asks anybody and never decides anything.

/// What an engine said of itself; `None` where it says nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    /// Requests it runs at once.
    pub slots: Option<u32>,
    /// Tokens of its KV pool that requests in flight may take.
    pub kv_tokens: Option<u64>,
    /// Whether the pool is only a part of what it keeps as prefixes: it spills to memory of unknown size.
    pub caches_more: bool,
    /// Engines behind its address, each with a prefill of its own.
    pub ranks: Option<u32>,
    /// Tokens in one page of its cache: reuse is reported in whole pages.
    pub page_tokens: Option<u32>,
    /// Requests it computes now.
    pub running: Option<u32>,
    /// Requests waiting inside it.
    pub waiting: Option<u32>,
    /// Of each of its slots whether it computes; empty where it does not say.
    pub computing: Vec<bool>,
    /// A number that changes whenever it computes, and only then; compared with itself only.
    pub progress: Option<f64>,
    /// KV pool in use, in thousandths.
    pub kv_usage_permille: Option<u32>,
    /// It answers, and would not serve: weights are unloaded.
    pub asleep: bool,
    /// What would change if it restarted.
    pub signs: Signs,
}

impl Reading {
    /// Fills what this reading does not say from an earlier one of the same engine's fixed facts.
    pub fn with_facts(mut self, facts: &Reading) -> Reading {
        self.slots = self.slots.or(facts.slots);
        self.kv_tokens = self.kv_tokens.or(facts.kv_tokens);
        self.page_tokens = self.page_tokens.or(facts.page_tokens);
        self.ranks = self.ranks.or(facts.ranks);
        self.caches_more |= facts.caches_more;
        self.signs.identity = self.signs.identity.or_else(|| facts.signs.identity.clone());
        self
    }

    /// What counts of it: what the configuration says of its backend wins.
    pub fn under(mut self, settings: &config::Backend) -> Reading {
        self.slots = settings.slots.or(self.slots);
        self.kv_tokens = settings.kv_tokens.or(self.kv_tokens);
        self.ranks = settings.ranks.or(self.ranks);
        self
    }

    /// Requests and tokens its backend may hold; what nobody says is unlimited.
    pub fn limits(&self) -> index::Limits {
        index::Limits {
            requests_max: self.slots.unwrap_or(0),
            tokens_max: self.kv_tokens.unwrap_or(0),
        }
    }
}

/// What tells a restarted engine from the one before.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Signs {
    /// When its process started, in the engine's own spelling.
    pub started: Option<String>,
    /// What is drawn anew at every start.
    pub identity: Option<String>,
    /// What only grows while it lives.
    pub counters: Vec<Counter>,
}

/// A number that only grows while an engine lives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Counter {
    /// Its name, compared with itself only.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
    /// How far it may fall without a restart.
    pub slack: f64,
}

impl Counter {
    /// A counter that never falls.
    pub fn strict(name: &'static str, value: f64) -> Counter {
        Counter { name, value, slack: 0.0 }
    }
}

impl Signs {
    /// Why an engine that showed `earlier` and now shows `self` must have restarted; `None` if nothing says so.
    pub fn restarted_since(&self, earlier: &Signs) -> Option<&'static str> {
        if differ(self.started.as_deref(), earlier.started.as_deref()) {
            return Some("its start time changed");
        }
        if differ(self.identity.as_deref(), earlier.identity.as_deref()) {
            return Some("its identity changed");
        }
        let fell = |now: &Counter| {
            let before = earlier.counters.iter().find(|before| before.name == now.name);
            before.is_some_and(|before| now.value + now.slack < before.value)
        };
        self.counters.iter().any(fell).then_some("its counters went backwards")
    }

    /// Keeps what `earlier` knew and this look did not show, so that one incomplete reading hides no restart.
    pub fn complete_from(&mut self, earlier: &Signs) {
        if self.started.is_none() {
            self.started.clone_from(&earlier.started);
        }
        if self.identity.is_none() {
            self.identity.clone_from(&earlier.identity);
        }
        for before in &earlier.counters {
            if !self.counters.iter().any(|now| now.name == before.name) {
                self.counters.push(*before);
            }
        }
    }
}

fn differ(now: Option<&str>, before: Option<&str>) -> bool {
    matches!((now, before), (Some(now), Some(before)) if now != before)
}

/// A share between 0 and 1 in thousandths.
pub fn permille(share: f64) -> Option<u32> {
    let whole = super::metrics_text::count((share * 1000.0).round())?;
    Some(u32::try_from(whole).unwrap_or(u32::MAX).min(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signs(started: &str, counter: f64) -> Signs {
        Signs {
            started: Some(started.into()),
            identity: None,
            counters: vec![Counter::strict("tokens", counter)],
        }
    }

    #[test]
    fn growing_counters_are_no_restart() {
        assert_eq!(signs("1", 9.0).restarted_since(&signs("1", 8.0)), None);
        assert_eq!(signs("1", 9.0).restarted_since(&Signs::default()), None);
    }

    #[test]
    fn a_new_start_time_or_a_smaller_counter_is_one() {
        assert!(signs("2", 9.0).restarted_since(&signs("1", 8.0)).is_some());
        assert!(signs("1", 7.0).restarted_since(&signs("1", 8.0)).is_some());
    }

    #[test]
    fn a_fall_within_the_slack_is_none() {
        let loose = |value| Signs {
            counters: vec![Counter { name: "task", value, slack: 64.0 }],
            ..Signs::default()
        };
        assert_eq!(loose(36.0).restarted_since(&loose(100.0)), None);
        assert!(loose(35.0).restarted_since(&loose(100.0)).is_some());
    }

    #[test]
    fn an_incomplete_look_in_between_hides_no_restart() {
        let mut between = Signs::default();
        between.complete_from(&signs("1", 8.0));
        assert!(signs("1", 7.0).restarted_since(&between).is_some());
    }
}
