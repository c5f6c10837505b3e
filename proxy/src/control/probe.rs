//! Whether a backend lives: what to ask each engine, what its answer says, and how many answers count.
//!
//! The state here is pure: times and answers are arguments. SGLang's `/health` is never asked, because
//! it generates a token and can make a busy engine look dead; a stream that flows is proof of life.

use config::Health;

use super::http_client::{FetchError, Reply, Target, get};
use crate::published::EngineKind;

/// What one question showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sign {
    /// It answered and would serve.
    Alive,
    /// It answered that it would not: loading, paused, dead inside.
    NotReady(String),
    /// Nothing listens.
    Refused,
    /// It took the connection, and no answer came in time, or none that could be read.
    Silent(String),
    /// No connection could be made.
    Unreachable(String),
}

impl Sign {
    /// Why it is no sign of life; `None` when it is one.
    pub(crate) fn complaint(&self) -> Option<String> {
        match self {
            Sign::Alive => None,
            Sign::NotReady(why) | Sign::Silent(why) | Sign::Unreachable(why) => Some(why.clone()),
            Sign::Refused => Some(FetchError::Refused.to_string()),
        }
    }
}

impl From<FetchError> for Sign {
    fn from(error: FetchError) -> Sign {
        match error {
            FetchError::Refused => Sign::Refused,
            FetchError::Unresolved | FetchError::Unreachable(_) => {
                Sign::Unreachable(error.to_string())
            }
            other => Sign::Silent(other.to_string()),
        }
    }
}

/// Asks an engine of a known kind whether it would serve.
pub(crate) async fn probe(target: Target<'_>, kind: EngineKind) -> Sign {
    let path = match kind {
        EngineKind::Vllm | EngineKind::Llamacpp => "/health",
        EngineKind::Sglang => "/ready",
        EngineKind::Openai | EngineKind::Unknown => "/v1/models",
    };
    let sign = match get(target, path).await {
        Ok(reply) if kind == EngineKind::Sglang && reply.status == 404 => {
            // Before 0.5.2x there is no `/ready`.
            get(target, "/model_info").await.map(|reply| judge(&reply))
        }
        Ok(reply) => Ok(judge(&reply)),
        Err(error) => Err(error),
    };
    sign.unwrap_or_else(Sign::from)
}

/// A client error is an answer of a living engine: it may want a key, or not know the path.
pub(crate) fn judge(reply: &Reply) -> Sign {
    if reply.status < 500 {
        return Sign::Alive;
    }
    Sign::NotReady(format!("status {}{}", reply.status, detail(reply)))
}

/// The message of an error reply, in one of the two shapes engines use.
fn detail(reply: &Reply) -> String {
    let value: Option<serde_json::Value> = serde_json::from_slice(&reply.body).ok();
    let message = value.as_ref().and_then(|value| {
        value
            .pointer("/error/message")
            .or_else(|| value.get("message"))
            .and_then(|text| text.as_str())
    });
    message.map(|text| format!(": {}", super::http_client::clipped(text))).unwrap_or_default()
}

/// What the requests of a backend say of it, beside its probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// Nothing.
    Quiet,
    /// It has prompts to prefill, and may still be at it.
    Prefilling,
    /// Reply bytes arrived since the last probe.
    Flowing,
}

/// A change of health.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// It may serve again.
    Up {
        /// Nothing listened while it was down: what comes back is another process.
        was_refused: bool,
    },
    /// It must not serve.
    Down,
}

/// Health over time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Vitals {
    up: bool,
    misses: u32,
    hits: u32,
    refused: bool,
}

impl Default for Vitals {
    /// A backend counts as healthy until its probes say otherwise.
    fn default() -> Self {
        Vitals { up: true, misses: 0, hits: 0, refused: false }
    }
}

impl Vitals {
    /// Whether it may serve.
    pub(crate) fn up(&self) -> bool {
        self.up
    }

    /// Whether the next answer may change things, so that it should not be waited for long.
    pub(crate) fn undecided(&self) -> bool {
        if self.up { self.misses > 0 } else { self.hits > 0 }
    }

    /// Takes in an answer. While reply bytes arrive, silence means busy; during a long prefill it does where the
    /// connection at least was taken. A refused connection or a plain "no" is never excused.
    pub(crate) fn note(&mut self, sign: &Sign, traffic: Traffic, rules: &Health) -> Option<Change> {
        match (sign, traffic) {
            (Sign::Alive, _) => self.hit(rules),
            (Sign::Silent(_), Traffic::Flowing | Traffic::Prefilling)
            | (Sign::Unreachable(_), Traffic::Flowing) => None,
            _ => {
                self.refused |= *sign == Sign::Refused;
                self.miss(rules)
            }
        }
    }

    fn hit(&mut self, rules: &Health) -> Option<Change> {
        self.misses = 0;
        if self.up {
            return None;
        }
        self.hits = self.hits.saturating_add(1);
        if self.hits < rules.successes_to_up {
            return None;
        }
        self.up = true;
        Some(Change::Up { was_refused: std::mem::take(&mut self.refused) })
    }

    fn miss(&mut self, rules: &Health) -> Option<Change> {
        self.hits = 0;
        self.misses = self.misses.saturating_add(1);
        if !self.up || self.misses < rules.failures_to_down {
            return None;
        }
        self.up = false;
        Some(Change::Down)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Health {
        Health {
            interval_ms: 1_000,
            timeout_ms: 1_000,
            failures_to_down: 3,
            successes_to_up: 2,
            scrape_interval_ms: 1_000,
            wedged_after_ms: None,
        }
    }

    fn silent() -> Sign {
        Sign::Silent("no answer".into())
    }

    #[test]
    fn one_miss_takes_nothing_down_and_the_third_does() {
        let mut vitals = Vitals::default();
        assert_eq!(vitals.note(&silent(), Traffic::Quiet, &rules()), None);
        assert!(vitals.undecided());
        assert_eq!(vitals.note(&Sign::Alive, Traffic::Quiet, &rules()), None);
        for expected in [None, None, Some(Change::Down)] {
            assert_eq!(vitals.note(&silent(), Traffic::Quiet, &rules()), expected);
        }
        assert!(!vitals.up());
    }

    #[test]
    fn silence_is_excused_while_replies_flow() {
        let mut vitals = Vitals::default();
        for _ in 0..100 {
            assert_eq!(vitals.note(&silent(), Traffic::Flowing, &rules()), None);
        }
        assert!(vitals.up());
    }

    #[test]
    fn silence_is_excused_during_a_long_prefill_and_a_machine_that_is_gone_is_not() {
        let mut vitals = Vitals::default();
        for _ in 0..100 {
            assert_eq!(vitals.note(&silent(), Traffic::Prefilling, &rules()), None);
        }
        let gone = Sign::Unreachable("no connection".into());
        for expected in [None, None, Some(Change::Down)] {
            assert_eq!(vitals.note(&gone, Traffic::Prefilling, &rules()), expected);
        }
    }

    #[test]
    fn a_refused_connection_is_not_excused_and_means_another_process_afterwards() {
        let mut vitals = Vitals::default();
        for expected in [None, None, Some(Change::Down)] {
            assert_eq!(vitals.note(&Sign::Refused, Traffic::Flowing, &rules()), expected);
        }
        assert_eq!(vitals.note(&Sign::Alive, Traffic::Quiet, &rules()), None);
        assert_eq!(
            vitals.note(&Sign::Alive, Traffic::Quiet, &rules()),
            Some(Change::Up { was_refused: true })
        );
    }

    #[test]
    fn one_good_answer_among_bad_ones_does_not_bring_it_back() {
        let mut vitals = Vitals::default();
        for _ in 0..3 {
            vitals.note(&Sign::NotReady("loading".into()), Traffic::Quiet, &rules());
        }
        vitals.note(&Sign::Alive, Traffic::Quiet, &rules());
        vitals.note(&silent(), Traffic::Quiet, &rules());
        assert_eq!(vitals.note(&Sign::Alive, Traffic::Quiet, &rules()), None);
        assert_eq!(
            vitals.note(&Sign::Alive, Traffic::Quiet, &rules()),
            Some(Change::Up { was_refused: false })
        );
    }
}
