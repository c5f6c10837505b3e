//! 874 real request bodies, recorded from SDKs (chat, Messages, Responses). They are no part of the repository: the
//! test says so loudly and passes where they are missing.

use crate::support::{Kept, prompt};
use proxy::api::Api;
use serde_json::Value;
use std::collections::HashMap;
use std::io::Read;
use std::path::PathBuf;

const BODIES: usize = 874;

struct Recorded {
    source: String,
    api: Api,
    body: String,
}

/// The traces stand beside the workspace, or where `SHEARWATER_TRACES` says.
fn recorded() -> Option<Vec<Recorded>> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces");
    let folder = std::env::var_os("SHEARWATER_TRACES").map_or_else(beside, PathBuf::from);
    let path = folder.join("bodies/pydantic_ai.jsonl.gz");
    let Ok(file) = std::fs::File::open(&path) else {
        eprintln!("SKIPPED: no recorded bodies at {}", path.display());
        return None;
    };
    let mut lines = String::new();
    flate2::read::GzDecoder::new(file)
        .read_to_string(&mut lines)
        .expect("the recording is readable");
    Some(lines.lines().map(record).collect())
}

fn record(line: &str) -> Recorded {
    let record: Value = serde_json::from_str(line).expect("a record");
    let text = |key: &str| record[key].as_str().unwrap_or_default().to_owned();
    let path = text("path");
    let api = [
        ("/messages", Api::Messages),
        ("/responses", Api::Responses),
        ("/chat/completions", Api::ChatCompletions),
    ];
    let api = api.into_iter().find(|(end, _)| path.ends_with(end)).expect("a known path").1;
    Recorded { source: text("src"), api, body: text("body") }
}

/// The messages of a body, and everything the template shows before them.
fn conversation(body: &str) -> (String, Vec<Value>) {
    let mut body: Value = serde_json::from_str(body).expect("JSON");
    let mut take =
        |key: &str| body.as_object_mut().and_then(|body| body.remove(key)).unwrap_or_default();
    let before =
        ["model", "tools", "system", "instructions", "previous_response_id", "conversation"];
    let before: Vec<_> = before.into_iter().map(|key| take(key).to_string()).collect();
    let list = match (take("messages"), take("input")) {
        (Value::Array(list), _) | (_, Value::Array(list)) => list,
        (_, single) => vec![single],
    };
    (before.join("\n"), list)
}

#[test]
fn every_recorded_body_is_read() {
    let Some(recorded) = recorded() else { return };
    assert_eq!(recorded.len(), BODIES);
    for Recorded { source, api, body } in &recorded {
        let (read, kept) = prompt(*api, body);
        let expected: Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(read.model.as_deref(), expected["model"].as_str(), "{source}");
        assert_eq!(read.stream, expected["stream"].as_bool().unwrap_or(false), "{source}");
        assert!(read.parts > 0 && !kept.bytes.is_empty(), "{source}");
    }
}

#[test]
fn another_spelling_of_every_recorded_body_has_the_same_canonical_prompt() {
    let Some(recorded) = recorded() else { return };
    for Recorded { source, api, body } in &recorded {
        let value: Value = serde_json::from_str(body).expect("JSON");
        let spelled = respell(&value);
        assert_eq!(prompt(*api, body).1.bytes, prompt(*api, &spelled).1.bytes, "{source}");
    }
}

/// Reversed keys, white space, and the first of every ten characters of a text as an escape.
fn respell(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let members: Vec<_> = members
                .iter()
                .rev()
                .map(|(key, value)| format!("{} :\n{}", escape(key), respell(value)))
                .collect();
            format!("{{ {} }}", members.join(" , "))
        }
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(respell).collect();
            format!("[ {} ]", items.join(" ,\t"))
        }
        Value::String(text) => escape(text),
        other => other.to_string(),
    }
}

fn escape(text: &str) -> String {
    let mut units = [0; 2];
    let mut escaped = String::from("\"");
    for (at, character) in text.chars().enumerate() {
        if at % 10 == 0 || matches!(character, '"' | '\\') || character.is_control() {
            for unit in character.encode_utf16(&mut units) {
                escaped.push_str(&format!("\\u{unit:04X}"));
            }
        } else {
            escaped.push(character);
        }
    }
    escaped.push('"');
    escaped
}

#[test]
fn every_growing_recorded_conversation_overlaps_its_previous_turn() {
    let Some(recorded) = recorded() else { return };
    let mut last: HashMap<(&str, Api), Vec<&Recorded>> = HashMap::new();
    for one in &recorded {
        last.entry((&one.source, one.api)).or_default().push(one);
    }
    let mut pairs = 0;
    for turns in last.values() {
        for pair in turns.windows(2) {
            pairs += usize::from(overlaps(pair[0], pair[1]));
        }
    }
    assert!(pairs >= 150, "only {pairs} growing pairs were found");
}

/// Whether the second body extends the first; then its canonical prompt must extend the first's.
fn overlaps(before: &Recorded, after: &Recorded) -> bool {
    let ((front, messages), (later_front, later)) =
        (conversation(&before.body), conversation(&after.body));
    if front != later_front || messages.len() >= later.len() || !later.starts_with(&messages) {
        return false;
    }
    let (first, second): (Kept, Kept) =
        (prompt(before.api, &before.body).1, prompt(after.api, &after.body).1);
    assert!(second.bytes.starts_with(&first.bytes), "{} breaks its prefix", before.source);
    true
}
