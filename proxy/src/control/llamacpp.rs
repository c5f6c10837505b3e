//! llama.cpp's server: `/props` tells what it was started with, `/slots` what its slots do.
//!
//! `/metrics` is never asked: reading it resets the window of its averages, which belong to whoever
//! monitors the engine. `/slots` is not asked while it sleeps, since that would wake it.

use serde_json::Value;

use super::reading::{Counter, Reading, Signs, permille};
use crate::limits::PINNED_SLOTS_MAX;

/// Task numbers are given out in order, and a deferred task may start after younger ones.
const TASK_SLACK: f64 = 64.0;

/// What `/props` says.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Props {
    /// Requests it runs at once.
    pub(crate) slots: u32,
    /// Tokens of one slot's context; the whole pool's when slots share one.
    pub(crate) slot_tokens: u64,
    /// Whether `/slots` may be asked.
    pub(crate) shows_slots: bool,
    /// Weights are unloaded; the next request loads them.
    pub(crate) sleeping: bool,
    identity: String,
}

/// Reads `/props`; `None` when it is no such reply.
pub(crate) fn props(body: &[u8]) -> Option<Props> {
    let value: Value = serde_json::from_slice(body).ok()?;
    let slots = value.get("total_slots")?.as_u64()?;
    let slot_tokens = value.pointer("/default_generation_settings/n_ctx").and_then(Value::as_u64);
    let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
    let flag = |key: &str| value.get(key).and_then(Value::as_bool);
    let slot_tokens = slot_tokens.unwrap_or(0);
    Some(Props {
        slots: u32::try_from(slots).unwrap_or(u32::MAX),
        slot_tokens,
        shows_slots: flag("endpoint_slots").unwrap_or(true),
        sleeping: flag("is_sleeping").unwrap_or(false),
        // The media marker is drawn anew at every start of newer builds, and absent from older ones.
        identity: format!(
            "{} {} {slots} {slot_tokens} {}",
            text("model_path"),
            text("build_info"),
            text("media_marker")
        ),
    })
}

impl Props {
    /// What follows from them alone. `/props` does not say whether the slots share one pool of
    /// `slot_tokens` or have as many each, and overfilling a shared pool ends every generation in it:
    /// the smaller is assumed until the slots prove the larger.
    pub(crate) fn reading(&self, proven_split: bool) -> Reading {
        let all = self.slot_tokens.saturating_mul(u64::from(self.slots));
        let pool = if proven_split { all } else { self.slot_tokens };
        Reading {
            slots: Some(self.slots).filter(|slots| *slots > 0),
            kv_tokens: Some(pool).filter(|tokens| *tokens > 0),
            // Its batches are filled from the first slot on: one long prompt takes them whole.
            ranks: Some(1),
            // It saves what its slots drop in a cache in main memory whose size it does not tell.
            caches_more: true,
            signs: Signs { identity: Some(self.identity.clone()), ..Signs::default() },
            ..Reading::default()
        }
    }
}

/// What `/slots` says.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Slots {
    /// Of each slot by its number whether it computes.
    computing: Vec<bool>,
    /// Slots computing now.
    pub(crate) busy: u32,
    /// Tokens that slots certainly hold: idle ones what they kept, busy ones all but the token being computed. A prompt in
    /// prefill is left out: it is counted before there is room for it.
    pub(crate) held_tokens: u64,
    /// Tokens that busy slots hold.
    pub(crate) busy_tokens: u64,
    /// Tokens that busy slots have computed of their prompts and replies.
    pub(crate) computed_tokens: u64,
    /// The highest task number seen; it only grows while the server lives.
    pub(crate) last_task: Option<u64>,
}

/// Reads `/slots`; `None` when it is no such reply.
pub(crate) fn slots(body: &[u8]) -> Option<Slots> {
    let value: Value = serde_json::from_slice(body).ok()?;
    let mut slots = Slots::default();
    for slot in value.as_array()? {
        let number = |key: &str| slot.get(key).and_then(Value::as_u64);
        let decoded = slot.pointer("/next_token/0/n_decoded").and_then(Value::as_u64).unwrap_or(0);
        // Newer builds count the reply into the prompt's tokens, older ones do not.
        let computed = number("n_prompt_tokens_cache").unwrap_or(0)
            + number("n_prompt_tokens_processed").unwrap_or(0)
            + decoded;
        let prompt = number("n_prompt_tokens").unwrap_or(0);
        let busy = slot.get("is_processing").and_then(Value::as_bool) == Some(true);
        slots.note(number("id"), busy);
        if !busy {
            slots.held_tokens = slots.held_tokens.saturating_add(prompt);
        } else if decoded > 0 {
            slots.held_tokens = slots.held_tokens.saturating_add(prompt.saturating_sub(1));
        }
        if busy {
            slots.busy = slots.busy.saturating_add(1);
            slots.busy_tokens = slots.busy_tokens.saturating_add(prompt.max(computed));
            let processed = number("n_prompt_tokens_processed").unwrap_or(0);
            slots.computed_tokens =
                slots.computed_tokens.saturating_add(processed.saturating_add(decoded));
        }
        slots.last_task = slots.last_task.max(number("id_task"));
    }
    Some(slots)
}

impl Slots {
    fn note(&mut self, number: Option<u64>, computes: bool) {
        let place = number.and_then(|number| usize::try_from(number).ok());
        let Some(place) = place.filter(|place| *place < PINNED_SLOTS_MAX) else { return };
        if self.computing.len() <= place {
            self.computing.resize(place + 1, false);
        }
        if let Some(here) = self.computing.get_mut(place) {
            *here = computes;
        }
    }

    /// Whether they hold more than one shared pool could: then each has its own. Choices of one request share what they
    /// hold, so this may be wrong; an engine whose pool runs out proves the opposite for good.
    pub(crate) fn prove_split(&self, props: &Props) -> bool {
        props.slot_tokens > 0 && self.held_tokens > props.slot_tokens
    }

    /// Adds what the slots say to what follows from `/props`.
    pub(crate) fn reading(&self, facts: Reading) -> Reading {
        let pool = facts.kv_tokens.unwrap_or(0);
        // Token counts are far below 2^52.
        #[allow(clippy::cast_precision_loss)]
        let usage = (pool > 0).then(|| self.busy_tokens as f64 / pool as f64);
        // Task numbers are far below 2^52.
        #[allow(clippy::cast_precision_loss)]
        let task = self.last_task.map(|task| Counter {
            name: "last_task",
            value: task as f64,
            slack: TASK_SLACK,
        });
        // As above.
        #[allow(clippy::cast_precision_loss)]
        let progress = Some(self.computed_tokens as f64);
        Reading {
            computing: self.computing.clone(),
            progress,
            running: Some(self.busy),
            waiting: Some(0),
            kv_usage_permille: usage.and_then(permille),
            signs: Signs { counters: task.into_iter().collect(), ..facts.signs },
            ..facts
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROPS: &str = r#"{"default_generation_settings":{"params":{"seed":1},"n_ctx":2048},"total_slots":2,
        "model_path":"m.gguf","media_marker":"<__media_A__>","endpoint_slots":true,"build_info":"b1","is_sleeping":false}"#;

    fn slot(task: i64, busy: bool, prompt: u64) -> String {
        format!(
            r#"{{"id":0,"n_ctx":2048,"is_processing":{busy},"id_task":{task},"n_prompt_tokens":{prompt},
            "n_prompt_tokens_cache":4,"n_prompt_tokens_processed":1000,"next_token":[{{"n_decoded":10}}]}}"#
        )
    }

    #[test]
    fn props_give_slots_and_the_smaller_pool() {
        let reading = props(PROPS.as_bytes()).unwrap().reading(false);
        assert_eq!((reading.slots, reading.kv_tokens), (Some(2), Some(2048)));
        assert!(reading.caches_more);
    }

    #[test]
    fn slots_holding_more_than_one_pool_prove_that_each_has_its_own() {
        let props = props(PROPS.as_bytes()).unwrap();
        let within = format!("[{},{}]", slot(3, false, 1000), slot(4, false, 1000));
        assert!(!slots(within.as_bytes()).unwrap().prove_split(&props));
        let beyond = format!("[{},{}]", slot(3, false, 1500), slot(4, false, 1000));
        let beyond = slots(beyond.as_bytes()).unwrap();
        assert!(beyond.prove_split(&props));
        assert_eq!(beyond.reading(props.reading(true)).kv_tokens, Some(4096));
    }

    #[test]
    fn prompts_in_prefill_prove_nothing() {
        let props = props(PROPS.as_bytes()).unwrap();
        let decoding = format!("[{},{}]", slot(3, true, 1500), slot(4, false, 1000));
        assert!(slots(decoding.as_bytes()).unwrap().prove_split(&props));
        let prefill = decoding.replace(r#""n_decoded":10"#, r#""n_decoded":0"#);
        assert!(!slots(prefill.as_bytes()).unwrap().prove_split(&props));
    }

    #[test]
    fn only_busy_slots_count_as_load() {
        let body = format!("[{},{}]", slot(3, true, 1024), slot(4, false, 1000));
        let reading = slots(body.as_bytes())
            .unwrap()
            .reading(props(PROPS.as_bytes()).unwrap().reading(false));
        assert_eq!((reading.running, reading.waiting), (Some(1), Some(0)));
        assert_eq!(reading.kv_usage_permille, Some(500));
    }

    #[test]
    fn task_numbers_or_a_marker_betray_a_restart() {
        let facts = props(PROPS.as_bytes()).unwrap().reading(false);
        let at = |task| {
            slots(format!("[{}]", slot(task, false, 1)).as_bytes()).unwrap().reading(facts.clone())
        };
        assert_eq!(at(800).signs.restarted_since(&at(801).signs), None);
        assert!(at(2).signs.restarted_since(&at(801).signs).is_some());
        let other = props(PROPS.replace("media_A", "media_B").as_bytes()).unwrap().reading(false);
        assert!(other.signs.restarted_since(&facts.signs).is_some());
    }

    #[test]
    fn of_each_slot_it_is_known_whether_it_computes() {
        let body =
            r#"[{"id":2,"is_processing":true},{"id":0},{"id":4000000000,"is_processing":true}]"#;
        let reading = slots(body.as_bytes()).unwrap().reading(Reading::default());
        assert_eq!(reading.computing, [false, false, true]);
    }

    #[test]
    fn a_fresh_slot_without_a_task_is_read_too() {
        let body = format!("[{}]", slot(-1, false, 0));
        assert_eq!(slots(body.as_bytes()).unwrap().last_task, None);
    }

    #[test]
    fn anything_else_is_no_reading() {
        for body in ["", "{}", "[1]x", r#"{"error":{"code":503,"message":"Loading model"}}"#] {
            assert_eq!(props(body.as_bytes()), None);
            assert_eq!(slots(body.as_bytes()), None);
        }
        assert_eq!(slots(b"[3]").map(|slots| slots.busy), Some(0));
    }
}
