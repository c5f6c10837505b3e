//! SGLang: `/v1/loads` (1 KB) tells load and capacity of every rank; `/server_info` (37 KB) tells what
//! never changes and serves older versions; `/metrics` needs a flag and is only the last resort.
//!
//! `/health` is never asked: it generates a token and takes a second.

use serde_json::Value;

use super::metrics_text::{count, samples};
use super::reading::{Counter, Reading, Signs, permille};

/// Where load is asked for.
pub(crate) const LOADS_PATH: &str = "/v1/loads?include=core";

/// Reads `/v1/loads`; `None` when it is no such reply.
pub(crate) fn loads(body: &[u8]) -> Option<Reading> {
    let value: Value = serde_json::from_slice(body).ok()?;
    let ranks = value.get("loads")?.as_array().filter(|ranks| !ranks.is_empty())?;
    let sum = |key: &str| {
        ranks.iter().filter_map(|rank| rank.get(key)?.as_f64()).reduce(|left, right| left + right)
    };
    let usage = sum("token_usage").map(|usage| usage / float(ranks.len()));
    let counters = ["total_prefill_uncached_tokens", "total_prefill_busy_us"];
    Some(Reading {
        ranks: u32::try_from(ranks.len()).ok(),
        slots: sum("max_running_requests").and_then(narrow).filter(|slots| *slots > 0),
        kv_tokens: sum("max_total_num_tokens").and_then(count).filter(|tokens| *tokens > 0),
        running: sum("num_running_reqs").and_then(narrow),
        waiting: sum("num_waiting_reqs").and_then(narrow),
        progress: sum("num_used_tokens")
            .map(|used| used + counters.iter().filter_map(|key| sum(key)).sum::<f64>()),
        kv_usage_permille: usage.and_then(permille),
        signs: Signs {
            counters: counters
                .into_iter()
                .filter_map(|key| Some(Counter::strict(key, sum(key)?)))
                .collect(),
            ..Signs::default()
        },
        ..Reading::default()
    })
}

/// Reads `/server_info`: the page size, the model's path as identity, and capacity a rank times ranks.
pub(crate) fn server_info(body: &[u8]) -> Option<Reading> {
    let value: Value = serde_json::from_slice(body).ok()?;
    let number = |key: &str| value.get(key).and_then(Value::as_u64).filter(|number| *number > 0);
    let ranks = number("dp_size").unwrap_or(1);
    let tokens = number("max_total_num_tokens")?;
    let identity = ["model_path", "served_model_name", "version"].map(|key| text(&value, key));
    Some(Reading {
        ranks: u32::try_from(ranks).ok(),
        slots: number("max_running_requests").and_then(|slots| u32::try_from(slots).ok()),
        kv_tokens: Some(tokens.saturating_mul(ranks)),
        page_tokens: number("page_size").and_then(|page| u32::try_from(page).ok()),
        signs: Signs { identity: Some(identity.join(" ")), ..Signs::default() },
        ..Reading::default()
    })
}

/// Reads the exposition of a version without `/v1/loads`.
pub(crate) fn metrics(text: &str) -> Option<Reading> {
    let mut reading = Reading::default();
    let (mut usage, mut ranks) = (0.0, 0);
    for sample in samples(text, "sglang:") {
        match sample.name {
            "sglang:num_running_reqs" => reading.running = add(reading.running, sample.value),
            "sglang:num_queue_reqs" => reading.waiting = add(reading.waiting, sample.value),
            "sglang:token_usage" => {
                usage += sample.value;
                ranks += 1;
            }
            "sglang:max_total_num_tokens" => reading.kv_tokens = sample.count(),
            "sglang:page_size" => reading.page_tokens = narrow(sample.value),
            _ => {}
        }
    }
    if ranks > 0 {
        reading.kv_usage_permille = permille(usage / float(ranks));
    }
    reading.running.is_some().then_some(reading)
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn add(sum: Option<u32>, value: f64) -> Option<u32> {
    Some(sum.unwrap_or(0).saturating_add(narrow(value)?))
}

fn narrow(value: f64) -> Option<u32> {
    count(value).map(|value| u32::try_from(value).unwrap_or(u32::MAX))
}

// A handful of ranks is exact in a float.
#[allow(clippy::cast_precision_loss)]
fn float(ranks: usize) -> f64 {
    ranks as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOADS: &str = r#"{"version":"0.5.23","loads":[
        {"dp_rank":0,"num_running_reqs":2,"num_waiting_reqs":1,"max_total_num_tokens":4096,
         "max_running_requests":4,"token_usage":0.5,"total_prefill_uncached_tokens":314},
        {"dp_rank":1,"num_running_reqs":1,"num_waiting_reqs":0,"max_total_num_tokens":4096,
         "max_running_requests":4,"token_usage":0.0,"total_prefill_uncached_tokens":6}]}"#;

    #[test]
    fn loads_are_summed_over_the_ranks() {
        let reading = loads(LOADS.as_bytes()).unwrap();
        assert_eq!((reading.slots, reading.kv_tokens), (Some(8), Some(8192)));
        assert_eq!((reading.running, reading.waiting), (Some(3), Some(1)));
        assert_eq!(reading.kv_usage_permille, Some(250));
        let counter = Counter::strict("total_prefill_uncached_tokens", 320.0);
        assert_eq!(reading.signs.counters, [counter]);
    }

    #[test]
    fn a_restarted_engine_prefilled_less_than_before() {
        let before = loads(LOADS.as_bytes()).unwrap();
        let after = loads(LOADS.replace("314", "0").as_bytes()).unwrap();
        assert!(after.signs.restarted_since(&before.signs).is_some());
    }

    #[test]
    fn server_info_gives_the_page_size_and_an_identity() {
        let body = r#"{"model_path":"a/b","served_model_name":"b","version":"0.5.23","page_size":16,
            "max_total_num_tokens":4096,"max_running_requests":null,"dp_size":2}"#;
        let reading = server_info(body.as_bytes()).unwrap();
        assert_eq!((reading.page_tokens, reading.kv_tokens), (Some(16), Some(8192)));
        assert_eq!(reading.slots, None);
        assert_eq!(reading.signs.identity.as_deref(), Some("a/b b 0.5.23"));
    }

    #[test]
    fn the_exposition_serves_versions_without_loads() {
        let text = "sglang:num_running_reqs{a=\"b\"} 2.0\nsglang:num_queue_reqs 5\nsglang:token_usage 0.125\n\
                    sglang:max_total_num_tokens 4096\nsglang:page_size 1.0\n";
        let reading = metrics(text).unwrap();
        assert_eq!((reading.running, reading.waiting), (Some(2), Some(5)));
        assert_eq!((reading.kv_usage_permille, reading.kv_tokens), (Some(125), Some(4096)));
    }

    #[test]
    fn anything_else_is_no_reading() {
        for body in ["", "{}", "[]", r#"{"loads":[]}"#, r#"{"loads":3}"#, "<html>"] {
            assert_eq!(loads(body.as_bytes()), None);
            assert_eq!(server_info(body.as_bytes()), None);
        }
        assert_eq!(metrics("vllm:num_requests_running 1"), None);
    }
}
