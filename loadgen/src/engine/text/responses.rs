//! `/v1/responses` as a prompt.

use serde_json::Value;

use super::template::{Rendered, Style, Template, push_content, push_part, push_tool_call};

pub(super) fn render(body: &Value, style: Style) -> Result<Rendered, &'static str> {
    let input = body.get("input").ok_or("input")?;
    let mut template = Template::new(style);
    for tool in body.get("tools").and_then(Value::as_array).into_iter().flatten() {
        push_tool(tool, &mut template);
    }
    if let Some(instructions) = body.get("instructions").and_then(Value::as_str) {
        template.turn("system", instructions);
    }
    match input {
        Value::String(text) => template.turn("user", text),
        Value::Array(items) => items.iter().for_each(|item| push_item(item, &mut template)),
        _ => return Err("input"),
    }
    Ok(template.finish())
}

fn push_tool(tool: &Value, template: &mut Template) {
    let (Some(name), Some(parameters)) =
        (tool.get("name").and_then(Value::as_str), tool.get("parameters"))
    else {
        return template.other_tool(tool);
    };
    let description = tool.get("description").and_then(Value::as_str).unwrap_or_default();
    template.tool(name, description, parameters);
}

fn push_item(item: &Value, template: &mut Template) {
    let mut text = String::new();
    let member = |name: &str| item.get(name).unwrap_or(&Value::Null);
    let role = match item.get("type").and_then(Value::as_str) {
        Some("function_call") => {
            push_tool_call(
                member("name").as_str().unwrap_or_default(),
                member("arguments"),
                &mut text,
            );
            "assistant"
        }
        Some("function_call_output") => {
            push_content(member("output"), &mut text);
            "tool"
        }
        Some("reasoning") => return,
        Some("message") | None => {
            push_content(member("content"), &mut text);
            member("role").as_str().unwrap_or("user")
        }
        Some(_) => {
            push_part(item, &mut text);
            "user"
        }
    };
    template.turn(role, &text);
}
