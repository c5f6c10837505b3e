//! Prompts that are text or token ids already: completions, `/generate`, embeddings.

use serde_json::Value;

use super::template::Rendered;

/// The prompt in the first of these members that is there.
pub(super) fn render_first(body: &Value, names: &[&'static str]) -> Result<Rendered, &'static str> {
    let name = names.iter().find(|name| body.get(name).is_some()).or(names.first());
    render(body, name.copied().unwrap_or("prompt"))
}

/// The prompt in this member: a string, token ids, or an array of either.
pub(super) fn render(body: &Value, name: &'static str) -> Result<Rendered, &'static str> {
    let mut text = String::new();
    push(body.get(name).ok_or(name)?, &mut text).ok_or(name)?;
    Ok(Rendered::plain(text))
}

fn push(prompt: &Value, out: &mut String) -> Option<()> {
    match prompt {
        Value::String(text) => out.push_str(text),
        Value::Array(items) => items.iter().try_for_each(|item| push(item, out))?,
        // Four characters: a token id counts as one token.
        Value::Number(id) => out.push_str(&format!("{:04x}", id.as_u64()? & 0xffff)),
        _ => return None,
    }
    Some(())
}
