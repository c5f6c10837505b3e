//! JSON as a chat template prints it into a prompt: members sorted, no spaces, without the cache marks that are for the API and
//! not for the model.

use serde_json::Value;

/// Members that no template prints.
const UNPRINTED: [&str; 1] = ["cache_control"];

/// Appends the canonical form of `value`.
pub(super) fn push_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(members) => {
            let mut sorted: Vec<_> =
                members.iter().filter(|(name, _)| !UNPRINTED.contains(&name.as_str())).collect();
            sorted.sort_by_key(|(name, _)| *name);
            out.push('{');
            for (position, (name, member)) in sorted.into_iter().enumerate() {
                if position > 0 {
                    out.push(',');
                }
                push_string(name, out);
                out.push(':');
                push_canonical(member, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (position, item) in items.iter().enumerate() {
                if position > 0 {
                    out.push(',');
                }
                push_canonical(item, out);
            }
            out.push(']');
        }
        Value::String(text) => push_string(text, out),
        Value::Null | Value::Bool(_) | Value::Number(_) => out.push_str(&value.to_string()),
    }
}

/// Appends `text` as a JSON string.
pub(super) fn push_string(text: &str, out: &mut String) {
    out.push_str(&Value::from(text).to_string());
}

/// Arguments of a tool call: the same whether they came as an object or as a string of JSON.
pub(super) fn push_arguments(arguments: &Value, out: &mut String) {
    let parsed = arguments.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    push_canonical(parsed.as_ref().unwrap_or(arguments), out);
}
