//! vLLM: everything it says of itself is in `/metrics` (58 KB), once a data-parallel rank.
//!
//! Names are those of vLLM 0.32 and of the versions before it; what is missing stays unknown.

use super::metrics_text::{Sample, count, samples};
use super::reading::{Counter, Reading, Signs, permille};

/// Reads the exposition.
pub(crate) fn read(metrics: &str) -> Reading {
    let mut seen = Seen::default();
    for sample in samples(metrics, "vllm:") {
        seen.take(&sample);
    }
    let started = samples(metrics, "process_start_time_seconds").next();
    Reading {
        slots: None,
        kv_tokens: (seen.kv_tokens > 0).then_some(seen.kv_tokens),
        page_tokens: seen.page_tokens,
        ranks: narrow(seen.usage_ranks).filter(|ranks| *ranks > 0),
        running: seen.running.and_then(narrow),
        waiting: seen.waiting.and_then(narrow),
        // Prompt tokens are counted when their prefill ends; until then the pool fills chunk by chunk.
        progress: seen.prompt_tokens.map(|prompt| prompt + seen.generated_tokens + seen.usage_sum),
        kv_usage_permille: seen.usage().and_then(permille),
        asleep: seen.asleep,
        signs: Signs {
            started: started.map(|sample| sample.value.to_string()),
            identity: None,
            counters: seen
                .prompt_tokens
                .map(|sum| Counter::strict("prompt_tokens", sum))
                .into_iter()
                .collect(),
        },
        ..Reading::default()
    }
}

/// Sums over the ranks of one server.
#[derive(Default)]
struct Seen {
    kv_tokens: u64,
    page_tokens: Option<u32>,
    running: Option<f64>,
    waiting: Option<f64>,
    usage_sum: f64,
    usage_ranks: f64,
    prompt_tokens: Option<f64>,
    generated_tokens: f64,
    asleep: bool,
}

impl Seen {
    fn take(&mut self, sample: &Sample<'_>) {
        match sample.name {
            "vllm:cache_config_info" => self.take_cache(sample),
            "vllm:num_requests_running" => add(&mut self.running, sample.value),
            "vllm:num_requests_waiting" => add(&mut self.waiting, sample.value),
            "vllm:prompt_tokens_total" => add(&mut self.prompt_tokens, sample.value),
            "vllm:generation_tokens_total" => self.generated_tokens += sample.value,
            // The second is the name before 0.10; no version shows both.
            "vllm:kv_cache_usage_perc" | "vllm:gpu_cache_usage_perc" => {
                self.usage_sum += sample.value;
                self.usage_ranks += 1.0;
            }
            "vllm:engine_sleep_state" if sample.label("sleep_state") == Some("awake") => {
                self.asleep |= sample.value == 0.0;
            }
            _ => {}
        }
    }

    fn take_cache(&mut self, sample: &Sample<'_>) {
        let number = |key| sample.label(key).and_then(|text| text.parse::<u64>().ok());
        let page = number("block_size");
        let whole = number("kv_cache_size_tokens").or_else(|| {
            // Before 0.32 only the blocks are given.
            number("num_gpu_blocks").zip(page).map(|(blocks, page)| blocks.saturating_mul(page))
        });
        self.kv_tokens = self.kv_tokens.saturating_add(whole.unwrap_or(0));
        self.page_tokens = page.and_then(|page| u32::try_from(page).ok()).or(self.page_tokens);
    }

    fn usage(&self) -> Option<f64> {
        (self.usage_ranks > 0.0).then(|| self.usage_sum / self.usage_ranks)
    }
}

fn add(sum: &mut Option<f64>, value: f64) {
    *sum = Some(sum.unwrap_or(0.0) + value);
}

fn narrow(value: f64) -> Option<u32> {
    count(value).map(|value| u32::try_from(value).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.79595369798e+09
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
vllm:num_requests_waiting{engine="0",model_name="m"} 4.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 4.0
vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="awake"} 1.0
vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="discard_all"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
vllm:prompt_tokens_total{engine="0",model_name="m"} 10841.0
vllm:cache_config_info{_block_size_resolved="True",block_size="32",engine="0",kv_cache_dtype_skip_layers="[]",kv_cache_size_tokens="4096",num_cpu_blocks="None",num_gpu_blocks="128"} 1.0
vllm:cache_config_info{block_size="32",engine="1",kv_cache_size_tokens="4096",num_gpu_blocks="128"} 1.0
"#;

    #[test]
    fn capacity_and_load_are_summed_over_the_ranks() {
        let reading = read(TEXT);
        assert_eq!(reading.kv_tokens, Some(8192));
        assert_eq!((reading.page_tokens, reading.ranks), (Some(32), Some(2)));
        assert_eq!((reading.running, reading.waiting), (Some(5), Some(4)));
        assert_eq!(reading.kv_usage_permille, Some(500));
        assert!(!reading.asleep && reading.slots.is_none());
        assert_eq!(reading.signs.started.as_deref(), Some("1795953697.98"));
    }

    #[test]
    fn older_versions_give_blocks_instead_of_tokens() {
        let old = "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"1000\"} 1.0\nvllm:gpu_cache_usage_perc 0.1\n";
        let reading = read(old);
        assert_eq!(reading.kv_tokens, Some(16_000));
        assert_eq!(reading.kv_usage_permille, Some(100));
    }

    #[test]
    fn a_sleeping_engine_says_so() {
        assert!(read(&TEXT.replace("awake\"} 1.0", "awake\"} 0.0")).asleep);
    }

    #[test]
    fn an_engine_still_profiling_its_memory_has_no_capacity_yet() {
        let early = "vllm:cache_config_info{block_size=\"32\",num_gpu_blocks=\"None\"} 1.0\n";
        assert_eq!(read(early).kv_tokens, None);
        assert_eq!(read("").running, None);
    }
}
