//! What an engine says of its tokens, found in whatever shape it says it.
//!
//! Every reply is asked how much of its prompt came from cache, because that is what corrects the index.
//! The figures are dug out of the last bytes of a document or out of one event; text is never kept.

use serde::Deserialize;

/// Tokens of one request as its engine reported them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// All tokens of the prompt, cached ones included.
    pub prompt_tokens: u64,
    /// How many of them were not computed again; `None` when the engine does not say.
    pub cached_tokens: Option<u64>,
    /// Tokens generated.
    pub output_tokens: u64,
}

/// Figures as they come in, piece by piece; a later piece overrides an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    prompt: Option<u64>,
    cached: Option<u64>,
    output: Option<u64>,
}

impl Seen {
    /// Takes what `json`, one event or the end of a document, says. Returns whether it said anything.
    pub fn read(&mut self, json: &[u8]) -> bool {
        let mut any = false;
        for (key, read) in SHAPES {
            if let Some(object) = last_object(json, key) {
                any |= read(self, object);
            }
        }
        any
    }

    /// The sum of it; `None` when nothing was said of the prompt.
    pub fn usage(&self) -> Option<Usage> {
        let prompt_tokens = self.prompt?;
        let cached_tokens = self.cached.map(|cached| cached.min(prompt_tokens));
        Some(Usage { prompt_tokens, cached_tokens, output_tokens: self.output.unwrap_or(0) })
    }

    fn set(&mut self, prompt: Option<u64>, cached: Option<u64>, output: Option<u64>) -> bool {
        // Zero is what a placeholder says: it never replaces a figure.
        self.prompt = prompt.filter(|tokens| *tokens > 0).or(self.prompt);
        self.cached = cached.or(self.cached);
        self.output = output.filter(|tokens| *tokens > 0).or(self.output);
        prompt.is_some() || cached.is_some() || output.is_some()
    }
}

/// The usage in the last bytes of a JSON document.
pub fn of_tail(tail: &[u8]) -> Option<Usage> {
    let mut seen = Seen::default();
    seen.read(tail);
    seen.usage()
}

type Reader = fn(&mut Seen, &[u8]) -> bool;

/// In order of trust: llama.cpp's timings count exactly what was computed, so they come last and win.
const SHAPES: [(&[u8], Reader); 3] = [
    (b"\"usage\"", read_usage),
    (b"\"meta_info\"", read_meta_info),
    (b"\"timings\"", read_timings),
];

/// `usage` of OpenAI's chat and completions (`prompt_tokens`), of Responses (`input_tokens` with details)
/// and of Anthropic's messages (`input_tokens` without the cached ones, which stand apart).
#[derive(Deserialize)]
struct UsageObject {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<Details>,
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    input_tokens_details: Option<Details>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
}

fn read_usage(seen: &mut Seen, object: &[u8]) -> bool {
    let Ok(usage) = serde_json::from_slice::<UsageObject>(object) else { return false };
    let details = usage.prompt_tokens_details.or(usage.input_tokens_details);
    let detailed = details.and_then(|details| details.cached_tokens);
    let read = usage.cache_read_input_tokens;
    let beside = read.unwrap_or(0).saturating_add(usage.cache_creation_input_tokens.unwrap_or(0));
    let input = usage.input_tokens.map(|tokens| tokens.saturating_add(beside));
    let output = usage.completion_tokens.or(usage.output_tokens);
    seen.set(usage.prompt_tokens.or(input), detailed.or(read), output)
}

/// SGLang's own API.
#[derive(Deserialize)]
struct MetaInfo {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    cached_tokens: Option<u64>,
}

fn read_meta_info(seen: &mut Seen, object: &[u8]) -> bool {
    let Ok(meta) = serde_json::from_slice::<MetaInfo>(object) else { return false };
    seen.set(meta.prompt_tokens, meta.cached_tokens, meta.completion_tokens)
}

/// llama.cpp's timings: `cache_n` reused, `prompt_n` computed, `predicted_n` generated.
#[derive(Deserialize)]
struct Timings {
    cache_n: Option<u64>,
    prompt_n: Option<u64>,
    predicted_n: Option<u64>,
}

fn read_timings(seen: &mut Seen, object: &[u8]) -> bool {
    let Ok(timings) = serde_json::from_slice::<Timings>(object) else { return false };
    let prompt = match (timings.cache_n, timings.prompt_n) {
        (Some(cached), Some(computed)) => Some(cached.saturating_add(computed)),
        _ => None,
    };
    seen.set(prompt, timings.cache_n, timings.predicted_n)
}

/// The object behind the last occurrence of `key` (with its quotes) as a key. Inside a JSON string the
/// quotes would be escaped, so a key found here is one.
fn last_object<'j>(json: &'j [u8], key: &[u8]) -> Option<&'j [u8]> {
    let mut end = json.len();
    while let Some(at) = json.get(..end).and_then(|part| memchr::memmem::rfind(part, key)) {
        if at == 0 || json.get(at - 1) != Some(&b'\\') {
            let value = json.get(at + key.len()..).unwrap_or_default().trim_ascii_start();
            if let Some(value) = value.strip_prefix(b":")
                && let Some(object) = whole_object(value.trim_ascii_start())
            {
                return Some(object);
            }
        }
        end = at;
    }
    None
}

/// The object that `json` starts with, to its closing brace.
fn whole_object(json: &[u8]) -> Option<&[u8]> {
    let (mut depth, mut in_string, mut escaped) = (0_u32, false, false);
    for (at, byte) in json.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' if !in_string => depth += 1,
            b'}' if !in_string => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return json.get(..=at);
                }
            }
            _ if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(prompt: u64, cached: Option<u64>, output: u64) -> Option<Usage> {
        Some(Usage { prompt_tokens: prompt, cached_tokens: cached, output_tokens: output })
    }

    #[test]
    fn chat_usage_of_each_engine_is_read() {
        let vllm = br#"{"choices":[],"usage":{"prompt_tokens":291,"total_tokens":293,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":288,"created_cache_tokens":0}},"system_fingerprint":"x"}"#;
        assert_eq!(of_tail(vllm), usage(291, Some(288), 2));
        let without_flag = br#"{"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13,"prompt_tokens_details":null}}"#;
        assert_eq!(of_tail(without_flag), usage(9, None, 4));
    }

    #[test]
    fn llamacpp_timings_are_read_where_usage_is_missing() {
        let last = br#"{"choices":[{"finish_reason":"length","index":0,"delta":{}}],"timings":{"cache_n":41,"prompt_n":1,"prompt_ms":0.564,"predicted_n":3}}"#;
        assert_eq!(of_tail(last), usage(42, Some(41), 3));
    }

    #[test]
    fn responses_usage_counts_cached_tokens_within_the_input() {
        let json = br#"{"status":"completed","usage":{"input_tokens":14,"output_tokens":3,"total_tokens":17,"input_tokens_details":{"cached_tokens":13}}}"#;
        assert_eq!(of_tail(json), usage(14, Some(13), 3));
    }

    #[test]
    fn messages_usage_adds_the_cached_tokens_that_stand_apart() {
        let mut seen = Seen::default();
        seen.read(br#"{"type":"message_start","message":{"usage":{"cache_read_input_tokens":13,"input_tokens":1,"output_tokens":0}}}"#);
        seen.read(br#"{"type":"message_delta","delta":{"stop_reason":"max_tokens"},"usage":{"output_tokens":2}}"#);
        assert_eq!(seen.usage(), usage(14, Some(13), 2));
    }

    #[test]
    fn sglang_meta_info_is_read() {
        let json = br#"{"text":"x","meta_info":{"id":"a","prompt_tokens":291,"cached_tokens":288,"completion_tokens":5,"finish_reason":{"type":"length"}}}"#;
        assert_eq!(of_tail(json), usage(291, Some(288), 5));
    }

    #[test]
    fn usage_spoken_of_in_the_reply_text_is_not_taken_for_usage() {
        let json = br#"{"choices":[{"message":{"content":"say \"usage\":{\"prompt_tokens\":7}"}}],"usage":null}"#;
        assert_eq!(of_tail(json), None);
    }

    #[test]
    fn a_tail_cut_anywhere_gives_the_usage_or_nothing() {
        let json = br#"{"choices":[{"message":{"content":"abc"}}],"usage":{"prompt_tokens":9,"completion_tokens":4},"id":"x"}"#;
        for start in 0..json.len() {
            let found = of_tail(&json[start..]);
            assert!(found.is_none() || found == usage(9, None, 4), "from {start}: {found:?}");
        }
    }

    #[test]
    fn more_cached_than_prompt_is_never_believed() {
        let json = br#"{"usage":{"prompt_tokens":9,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":90}}}"#;
        assert_eq!(of_tail(json), usage(9, Some(9), 1));
    }
}
