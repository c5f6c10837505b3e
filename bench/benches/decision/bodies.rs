//! Request bodies as clients send them, made from a seed: prose and code with the escapes they bring, tool definitions,
//! calls and results. And recorded ones, where they are at hand; they are no part of the repository.

use std::io::Read;
use std::path::Path;

use fastrand::Rng;
use proxy::api::Api;
use serde_json::{Value, json};

/// A kind of body.
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) api: Api,
    /// A body of about so many bytes, by seed.
    pub(crate) make: fn(usize, u64) -> String,
}

pub(crate) const SHAPES: [Shape; 4] = [
    Shape { name: "chat", api: Api::ChatCompletions, make: chat },
    Shape { name: "chat, one text", api: Api::ChatCompletions, make: one_text },
    Shape { name: "messages with tools", api: Api::Messages, make: messages },
    Shape { name: "responses", api: Api::Responses, make: responses },
];

impl Shape {
    /// How many different bodies take turns, so that no branch predictor learns one by heart.
    pub(crate) fn count(&self, bytes: usize) -> u64 {
        if bytes > 1_000_000 { 4 } else { 16 }
    }
}

const WORDS: [&str; 24] = [
    "the",
    "connection",
    "is",
    "closed",
    "before",
    "a",
    "reply",
    "returns",
    "when",
    "pool",
    "should",
    "be",
    "read",
    "from",
    "cache",
    "of",
    "requests",
    "and",
    "every",
    "state",
    "waits",
    "for",
    "backend",
    "so",
];

fn prose(rng: &mut Rng, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        text.push_str(WORDS[rng.usize(..WORDS.len())]);
        text.push_str(match rng.u8(..) {
            0..12 => ".\n",
            12..16 => " \u{2014} ",
            16..20 => ", \"",
            _ => " ",
        });
    }
    text
}

/// Lines of a program: a newline every forty bytes, quotes, tabs, now and then a backslash.
fn code(rng: &mut Rng, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 64);
    while text.len() < bytes {
        let name = WORDS[rng.usize(..WORDS.len())];
        let line = rng.u32(..10_000);
        match rng.u8(..8) {
            0 => text.push_str(&format!("{line}\tfn {name}(&self) -> Option<u64> {{\n")),
            1 => text.push_str(&format!("{line}\t    log(\"{name} failed: {{error}}\\n\");\n")),
            2 => {
                text.push_str(&format!("{line}\t    // {} {name} again.\n", prose(rng, 30).trim()))
            }
            3 => text.push('\n'),
            _ => text.push_str(&format!("{line}\t        let {name} = self.{name}.get({line});\n")),
        }
    }
    text
}

fn tool(n: usize, rng: &mut Rng) -> Value {
    json!({ "name": format!("tool_{n}"), "description": prose(rng, 600), "input_schema": {
        "type": "object", "required": ["path"], "additionalProperties": false,
        "properties": { "path": { "type": "string", "description": prose(rng, 80) },
            "limit": { "type": "integer", "minimum": 1, "maximum": 2000 },
            "mode": { "enum": ["read", "write"], "description": prose(rng, 60) } } } })
}

/// Templates are the same in all bodies.
fn shared(bytes: usize) -> (String, Vec<Value>) {
    let mut rng = Rng::with_seed(1);
    let tools = if bytes < 10_000 { 1 } else { 12 };
    (prose(&mut rng, bytes / 10), (0..tools).map(|n| tool(n, &mut rng)).collect())
}

/// Turns until the body is as long as wanted.
fn turns(bytes: usize, before: usize, mut turn: impl FnMut(usize) -> Vec<Value>) -> Vec<Value> {
    let (mut list, mut size) = (Vec::new(), before);
    while size < bytes {
        for value in turn(list.len()) {
            size += value.to_string().len() + 1;
            list.push(value);
        }
    }
    list
}

/// About seventy messages, of prose and some code.
fn chat(bytes: usize, seed: u64) -> String {
    let mut rng = Rng::with_seed(seed + 10);
    let (system, tools) = shared(bytes);
    let tools: Vec<_> = tools
        .into_iter()
        .map(|mut tool| {
            let parameters = tool["input_schema"].take();
            json!({ "type": "function", "function": { "name": tool["name"], "description": tool["description"], "parameters": parameters } })
        })
        .collect();
    let before = system.len() + json!(tools).to_string().len();
    let mut list = vec![json!({ "role": "system", "content": system })];
    let each = (bytes / 70).max(200);
    list.extend(turns(bytes, before, |at| {
        let role = if at % 2 == 0 { "user" } else { "assistant" };
        let text = if at % 3 == 0 { code(&mut rng, each) } else { prose(&mut rng, each) };
        vec![json!({ "role": role, "content": text })]
    }));
    json!({ "model": "m", "messages": list, "stream": true, "tools": tools }).to_string()
}

/// One long text, as retrieval and summaries send it.
fn one_text(bytes: usize, seed: u64) -> String {
    let text = prose(&mut Rng::with_seed(seed + 10), bytes);
    json!({ "model": "m", "messages": [{ "role": "user", "content": text }] }).to_string()
}

/// A coding agent's session: thinking, calls, and files and outputs as their results.
fn messages(bytes: usize, seed: u64) -> String {
    let mut rng = Rng::with_seed(seed + 10);
    let (system, tools) = shared(bytes);
    let before = system.len() + json!(tools).to_string().len();
    let each = (bytes / 50).clamp(200, 8_000);
    let list = turns(bytes, before, |at| {
        let id = format!("toolu_{:016x}", rng.u64(..));
        let asked = json!({ "role": "user", "content": [{ "type": "text", "text": prose(&mut rng, 120), "cache_control": { "type": "ephemeral" } }] });
        let call = json!({ "role": "assistant", "content": [
            { "type": "thinking", "thinking": prose(&mut rng, 150), "signature": "c2lnbmF0dXJl".repeat(12) },
            { "type": "text", "text": prose(&mut rng, 80) },
            { "type": "tool_use", "id": id, "name": "tool_0", "input": { "path": "src/main.rs", "old": code(&mut rng, each / 4), "limit": at } }] });
        let result = json!({ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": id, "content": code(&mut rng, each) }] });
        if at == 0 { vec![asked, call, result] } else { vec![call, result] }
    });
    json!({ "model": "m", "max_tokens": 32000, "system": [{ "type": "text", "text": system, "cache_control": { "type": "ephemeral" } }],
        "tools": tools, "messages": list, "stream": true, "metadata": { "user_id": format!("user_1_session_{seed}") } })
    .to_string()
}

/// The same by way of Responses: items, with arguments as JSON inside of text.
fn responses(bytes: usize, seed: u64) -> String {
    let mut rng = Rng::with_seed(seed + 10);
    let (system, tools) = shared(bytes);
    let before = system.len() + json!(tools).to_string().len();
    let each = (bytes / 50).clamp(200, 8_000);
    let list = turns(bytes, before, |_| {
        let id = format!("call_{:016x}", rng.u64(..));
        let arguments =
            json!({ "command": ["bash", "-lc", code(&mut rng, each / 8)], "timeout": 1000 });
        vec![
            json!({ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": prose(&mut rng, 120) }] }),
            json!({ "type": "reasoning", "summary": [{ "type": "summary_text", "text": prose(&mut rng, 80) }], "encrypted_content": "Z0FBQUFB".repeat(40) }),
            json!({ "type": "function_call", "call_id": id, "name": "shell", "arguments": arguments.to_string() }),
            json!({ "type": "function_call_output", "call_id": id, "output": code(&mut rng, each) }),
        ]
    });
    json!({ "model": "m", "instructions": system, "tools": tools, "input": list, "stream": true, "store": false, "prompt_cache_key": format!("key-{seed}") })
        .to_string()
}

/// The longest recorded bodies of each API; none, and said so, where there are none.
pub(crate) fn recorded() -> Vec<(Api, Vec<String>)> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces");
    let folder = std::env::var_os("SHEARWATER_TRACES").map_or_else(beside, Into::into);
    let Ok(file) = std::fs::File::open(folder.join("bodies/pydantic_ai.jsonl.gz")) else {
        bench::complain("SKIPPED: no recorded bodies; SHEARWATER_TRACES may say where");
        return Vec::new();
    };
    let mut lines = String::new();
    if flate2::read::GzDecoder::new(file).read_to_string(&mut lines).is_err() {
        bench::complain("SKIPPED: the recorded bodies cannot be read");
    }
    let records: Vec<Value> =
        lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let apis = [
        (Api::ChatCompletions, "/chat/completions"),
        (Api::Messages, "/messages"),
        (Api::Responses, "/responses"),
    ];
    apis.map(|(api, path)| (api, longest(&records, path))).into()
}

fn longest(records: &[Value], path: &str) -> Vec<String> {
    let is_at = |record: &&Value| record["path"].as_str().is_some_and(|at| at.ends_with(path));
    let bodies = records.iter().filter(is_at).filter_map(|record| record["body"].as_str());
    let mut bodies: Vec<String> = bodies.map(str::to_owned).collect();
    bodies.sort_by_key(|body| std::cmp::Reverse(body.len()));
    bodies.truncate(16);
    bodies
}
