//! How many tokens a request took and how many of them came from cache, as the engine reports it: in the body of a reply,
//! in its last kilobytes, or in the events of a stream. Reads the shapes of OpenAI chat, completions and Responses, of
//! Anthropic Messages, llama.cpp's `timings` and SGLang's `meta_info`. It never trusts a number it cannot read, and
//! generated text cannot pose as a report: inside a JSON string its quotes are escaped.

use crate::limits::USAGE_TAIL_BYTES;
use crate::prompt::json::{Kind, Tape, Value};
use crate::sse::{Event, value_behind};
use memchr::memmem;

/// Tokens of one request, over all its prompts and choices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt, cached ones included.
    pub prompt_tokens: u64,
    /// Those of them that were served from cache; `None` if the engine does not say, which is not the same as 0.
    pub cached_tokens: Option<u64>,
    /// Generated tokens.
    pub output_tokens: u64,
}

/// Usage of a whole JSON reply, or of the last bytes of one whose beginning was not kept.
pub fn from_reply(body: &[u8]) -> Option<Usage> {
    let mut tape = Tape::default();
    let report = match tape.parse(body) {
        Ok(()) => of_root(Value::root(body, tape.tokens())),
        Err(_) => of_tail(body, &mut tape),
    };
    report.complete()
}

/// Collects the usage of a stream from its events. Later reports replace earlier ones; what a report leaves out stays.
#[derive(Debug, Default)]
pub struct Meter {
    report: Report,
    tape: Tape,
}

impl Meter {
    /// Looks at one event.
    pub fn observe(&mut self, event: &Event<'_>) {
        if event.has_usage {
            self.report.update(of_tail(event.data, &mut self.tape));
        }
    }

    /// What has been reported so far; `None` before the first report.
    pub fn usage(&self) -> Option<Usage> {
        self.report.complete()
    }
}

/// What one report says, as far as it says anything.
#[derive(Clone, Copy, Debug, Default)]
struct Report {
    prompt: Option<u64>,
    cached: Option<u64>,
    output: Option<u64>,
}

impl Report {
    fn is_empty(&self) -> bool {
        self.prompt.is_none() && self.output.is_none()
    }

    fn update(&mut self, later: Report) {
        self.prompt = later.prompt.or(self.prompt);
        self.cached = later.cached.or(self.cached);
        self.output = later.output.or(self.output);
    }

    /// Fills in what this report does not say.
    fn or(self, other: Report) -> Report {
        Report {
            prompt: self.prompt.or(other.prompt),
            cached: self.cached.or(other.cached),
            output: self.output.or(other.output),
        }
    }

    fn add(self, other: Report) -> Report {
        let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
        Report {
            prompt: sum(self.prompt, other.prompt),
            cached: sum(self.cached, other.cached),
            output: sum(self.output, other.output),
        }
    }

    fn complete(&self) -> Option<Usage> {
        let prompt_tokens = self.prompt?;
        Some(Usage {
            prompt_tokens,
            cached_tokens: self.cached.map(|cached| cached.min(prompt_tokens)),
            output_tokens: self.output.unwrap_or(0),
        })
    }
}

/// A reply, or a batch of them.
fn of_root(root: Value<'_, '_>) -> Report {
    if root.kind() == Kind::Array {
        return root.items().map(of_reply).fold(Report::default(), Report::add);
    }
    of_reply(root)
}

// A stream's object may hold the reply one level deeper.
fn of_reply(reply: Value<'_, '_>) -> Report {
    let direct = of_members(reply);
    if !direct.is_empty() {
        return direct;
    }
    let inner = reply.pick(["response", "message"]).into_iter().flatten();
    inner.map(of_members).find(|report| !report.is_empty()).unwrap_or_default()
}

fn of_members(reply: Value<'_, '_>) -> Report {
    let [usage, meta, timings] = reply.pick(["usage", "meta_info", "timings"]);
    let report = |object: Option<Value<'_, '_>>, read: fn(Value<'_, '_>) -> Report| {
        object.map(read).unwrap_or_default()
    };
    report(usage, of_usage).or(report(meta, of_usage)).or(report(timings, of_timings))
}

/// Searches backwards for the last object of each kind.
fn of_tail(bytes: &[u8], tape: &mut Tape) -> Report {
    let tail = bytes.get(bytes.len().saturating_sub(USAGE_TAIL_BYTES)..).unwrap_or_default();
    let usage = last_object(tail, br#""usage""#, of_usage, tape);
    if usage.cached.is_some() {
        return usage;
    }
    let usage = usage.or(last_object(tail, br#""meta_info""#, of_usage, tape));
    usage.or(last_object(tail, br#""timings""#, of_timings, tape))
}

fn last_object(
    bytes: &[u8],
    key: &[u8],
    read: fn(Value<'_, '_>) -> Report,
    tape: &mut Tape,
) -> Report {
    for at in memmem::rfind_iter(bytes, key) {
        let Some(object) = value_behind(bytes, at + key.len()) else { continue };
        if !object.starts_with(b"{") || tape.parse_prefix(object).is_err() {
            continue;
        }
        let report = read(Value::root(object, tape.tokens()));
        if !report.is_empty() {
            return report;
        }
    }
    Report::default()
}

/// `usage` of any dialect, and SGLang's `meta_info`.
fn of_usage(usage: Value<'_, '_>) -> Report {
    let names = ["prompt_tokens", "completion_tokens", "input_tokens", "output_tokens"];
    let [prompt, completion, input, output] = usage.pick(names).map(count);
    let report = Report { prompt, cached: cached(usage), output: completion.or(output) };
    match input {
        Some(input) if prompt.is_none() => of_input(usage, input, report),
        _ => report,
    }
}

// Anthropic's input tokens exclude those read from and written to the cache, and so do those of llama.cpp, SGLang and
// vLLM (since its change 40912; before, it sent no cache counts). The Responses API knows no such counts: its input
// tokens are all of them.
fn of_input(usage: Value<'_, '_>, input: u64, report: Report) -> Report {
    let names = ["cache_read_input_tokens", "cache_creation_input_tokens"];
    let [read, created] = usage.pick(names).map(count);
    let cached = read.or(created.map(|_| 0)).or(report.cached);
    let prompt = input.saturating_add(read.unwrap_or(0)).saturating_add(created.unwrap_or(0));
    Report { prompt: Some(prompt), cached, ..report }
}

fn cached(usage: Value<'_, '_>) -> Option<u64> {
    let names = ["prompt_tokens_details", "input_tokens_details", "cached_tokens"];
    let [prompt, input, direct] = usage.pick(names);
    let inner = |details: Option<Value<'_, '_>>| count(details?.get("cached_tokens"));
    inner(prompt).or_else(|| inner(input)).or_else(|| count(direct))
}

/// llama.cpp: reused, computed and generated tokens.
fn of_timings(timings: Value<'_, '_>) -> Report {
    let [reused, computed, output] =
        timings.pick(["cache_n", "prompt_n", "predicted_n"]).map(count);
    let prompt = computed.map(|computed| computed.saturating_add(reused.unwrap_or(0)));
    Report { prompt, cached: reused, output }
}

fn count(value: Option<Value<'_, '_>>) -> Option<u64> {
    value?.as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Dialect;
    use crate::sse::Scanner;

    fn usage(
        prompt_tokens: u64,
        cached_tokens: impl Into<Option<u64>>,
        output_tokens: u64,
    ) -> Option<Usage> {
        Some(Usage { prompt_tokens, cached_tokens: cached_tokens.into(), output_tokens })
    }

    const REPLIES: [(&str, &str, Option<Usage>); 11] = [
        (
            "llama.cpp chat",
            r#"{"choices":[{"finish_reason":"length","message":{"content":"a \"usage\":{\"prompt_tokens\":9} b"}}],"usage":{"completion_tokens":8,"prompt_tokens":42,"total_tokens":50,"prompt_tokens_details":{"cached_tokens":41}},"id":"x","timings":{"cache_n":41,"prompt_n":1,"predicted_n":8}}"#,
            Some(Usage { prompt_tokens: 42, cached_tokens: Some(41), output_tokens: 8 }),
        ),
        (
            "vLLM chat",
            r#"{"choices":[],"usage":{"prompt_tokens":291,"total_tokens":297,"completion_tokens":6,"prompt_tokens_details":{"cached_tokens":288,"created_cache_tokens":0,"multimodal_tokens":null},"completion_tokens_details":null},"prompt_logprobs":null,"metrics":null}"#,
            Some(Usage { prompt_tokens: 291, cached_tokens: Some(288), output_tokens: 6 }),
        ),
        (
            "vLLM chat without details",
            r#"{"usage":{"prompt_tokens":13,"total_tokens":16,"completion_tokens":3,"prompt_tokens_details":null}}"#,
            Some(Usage { prompt_tokens: 13, cached_tokens: None, output_tokens: 3 }),
        ),
        (
            "SGLang chat",
            r#"{"usage":{"prompt_tokens":291,"total_tokens":297,"completion_tokens":6,"prompt_tokens_details":{"cached_tokens":288},"reasoning_tokens":0},"metadata":{"weight_version":"default"}}"#,
            Some(Usage { prompt_tokens: 291, cached_tokens: Some(288), output_tokens: 6 }),
        ),
        (
            "llama.cpp messages",
            r#"{"type":"message","content":[{"type":"text","text":"x"}],"usage":{"cache_read_input_tokens":3,"input_tokens":11,"output_tokens":3}}"#,
            Some(Usage { prompt_tokens: 14, cached_tokens: Some(3), output_tokens: 3 }),
        ),
        (
            "vLLM messages",
            r#"{"type":"message","usage":{"input_tokens":14,"output_tokens":2,"cache_creation_input_tokens":0,"cache_read_input_tokens":0}}"#,
            Some(Usage { prompt_tokens: 14, cached_tokens: Some(0), output_tokens: 2 }),
        ),
        (
            "vLLM messages that says nothing of the cache",
            r#"{"type":"message","usage":{"input_tokens":14,"output_tokens":2}}"#,
            Some(Usage { prompt_tokens: 14, cached_tokens: None, output_tokens: 2 }),
        ),
        (
            "llama.cpp responses",
            r#"{"object":"response","output":[],"usage":{"input_tokens":14,"output_tokens":3,"total_tokens":17,"input_tokens_details":{"cached_tokens":13}}}"#,
            Some(Usage { prompt_tokens: 14, cached_tokens: Some(13), output_tokens: 3 }),
        ),
        (
            "SGLang generate",
            r#"{"text":"x","meta_info":{"id":"1","finish_reason":{"type":"length","length":3},"prompt_tokens":10,"completion_tokens":3,"cached_tokens":8,"e2e_latency":0.1}}"#,
            Some(Usage { prompt_tokens: 10, cached_tokens: Some(8), output_tokens: 3 }),
        ),
        (
            "llama.cpp completion",
            r#"{"content":"x","tokens_cached":50,"tokens_evaluated":42,"timings":{"cache_n":41,"prompt_n":1,"prompt_ms":2.594,"predicted_n":8}}"#,
            Some(Usage { prompt_tokens: 42, cached_tokens: Some(41), output_tokens: 8 }),
        ),
        ("no report", r#"{"choices":[],"usage":null}"#, None),
    ];

    #[test]
    fn every_shape_is_read() {
        for (what, body, expected) in REPLIES {
            assert_eq!(from_reply(body.as_bytes()), expected, "{what}");
        }
    }

    #[test]
    fn the_tail_of_a_reply_is_enough() {
        for (what, body, expected) in REPLIES {
            for cut in
                1..body.find("\"usage\":{").or_else(|| body.rfind("\"meta_info\"")).unwrap_or(1)
            {
                assert_eq!(from_reply(&body.as_bytes()[cut..]), expected, "{what} from {cut}");
            }
        }
    }

    #[test]
    fn a_batch_is_summed() {
        let one = r#"{"text":"x","meta_info":{"prompt_tokens":10,"completion_tokens":3,"cached_tokens":8}}"#;
        assert_eq!(from_reply(format!("[{one},{one}]").as_bytes()), usage(20, 16, 6));
    }

    #[test]
    fn calls_that_look_like_reports_are_not_taken_for_one() {
        let body = r#"{"content":[{"type":"tool_use","input":{"usage":{"input_tokens":1,"output_tokens":1}}}],"usage":{"input_tokens":14,"output_tokens":2}}"#;
        assert_eq!(from_reply(body.as_bytes()), usage(14, None, 2));
        assert_eq!(from_reply(&body.as_bytes()[5..]), usage(14, None, 2));
        let schema = r#"{"usage":{"input_tokens":14,"output_tokens":2},"tools":[{"usage":{"type":"object"}}]}"#;
        assert_eq!(from_reply(&schema.as_bytes()[1..]), usage(14, None, 2));
    }

    #[test]
    fn numbers_that_make_no_sense_do_no_harm() {
        for body in [
            r#"{"usage":{"prompt_tokens":-5,"completion_tokens":1}}"#,
            r#"{"usage":{"prompt_tokens":"many"}}"#,
            r#"{"usage":[]}"#,
            r#"{"usage":{"prompt_tokens":"#,
            "",
            "[]",
            "\"usage\"",
        ] {
            assert_eq!(from_reply(body.as_bytes()), None, "{body}");
        }
        let over = r#"{"usage":{"prompt_tokens":5,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":9}}}"#;
        assert_eq!(from_reply(over.as_bytes()), usage(5, 5, 1));
        let huge = r#"{"usage":{"input_tokens":18446744073709551615,"cache_read_input_tokens":7}}"#;
        assert_eq!(from_reply(huge.as_bytes()), usage(u64::MAX, 7, 0));
    }

    fn metered(dialect: Dialect, stream: &str) -> Option<Usage> {
        let (mut scanner, mut meter) = (Scanner::new(dialect), Meter::default());
        for mut input in stream.as_bytes().chunks(7) {
            while let Some(event) = scanner.next(&mut input) {
                meter.observe(&event);
            }
        }
        meter.usage()
    }

    #[test]
    fn streams_are_metered_in_every_dialect() {
        let llama = "data: {\"choices\":[{\"delta\":{}}],\"timings\":{\"cache_n\":41,\"prompt_n\":1,\"predicted_n\":3}}\n\ndata: [DONE]\n\n";
        assert_eq!(metered(Dialect::Chat, llama), usage(42, 41, 3));
        let continuous = concat!(
            "data: {\"usage\":{\"prompt_tokens\":291,\"total_tokens\":291,\"completion_tokens\":0}}\n\n",
            "data: {\"usage\":{\"prompt_tokens\":291,\"total_tokens\":293,\"completion_tokens\":2}}\n\n",
            "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":291,\"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":288}}}\n\n",
            "data: {\"choices\":[],\"usage\":null}\n\n",
        );
        assert_eq!(metered(Dialect::Chat, continuous), usage(291, 288, 2));
        let messages = |start: &str, delta: &str| {
            format!(
                "event: message_start\ndata: {{\"message\":{{\"usage\":{{{start}}}}}}}\n\nevent: message_delta\ndata: {{\"usage\":{{{delta}}}}}\n\n"
            )
        };
        let llama = messages(
            r#""cache_read_input_tokens":13,"input_tokens":1,"output_tokens":0"#,
            r#""output_tokens":2"#,
        );
        assert_eq!(metered(Dialect::Messages, &llama), usage(14, 13, 2));
        let vllm = messages(
            r#""input_tokens":14,"output_tokens":0"#,
            r#""input_tokens":2,"output_tokens":5,"cache_creation_input_tokens":0,"cache_read_input_tokens":12"#,
        );
        assert_eq!(metered(Dialect::Messages, &vllm), usage(14, 12, 5));
        let responses = "event: response.completed\ndata: {\"response\":{\"usage\":{\"input_tokens\":14,\"input_tokens_details\":{\"cached_tokens\":13},\"output_tokens\":3}}}\n\n";
        assert_eq!(metered(Dialect::Responses, responses), usage(14, 13, 3));
        let generate = "data: {\"text\":\"a\",\"meta_info\":{\"prompt_tokens\":4,\"completion_tokens\":1,\"cached_tokens\":2}}\n\ndata: {\"text\":\"ab\",\"meta_info\":{\"prompt_tokens\":4,\"completion_tokens\":2,\"cached_tokens\":2}}\n\n";
        assert_eq!(metered(Dialect::Plain, generate), usage(4, 2, 2));
        assert_eq!(metered(Dialect::Chat, "data: {\"choices\":[]}\n\n"), None);
    }

    #[test]
    fn the_end_of_a_huge_responses_event_is_enough() {
        let text = "x".repeat(300_000);
        let stream = format!(
            "event: response.completed\ndata: {{\"type\":\"response.completed\",\"response\":{{\"output\":\"{text}\",\"usage\":{{\"input_tokens\":14,\"output_tokens\":3}}}}}}\n\n"
        );
        assert_eq!(metered(Dialect::Responses, &stream), usage(14, None, 3));
    }
}
