//! `/v1/chat/completions` as a prompt.

use serde_json::Value;

use super::template::{Rendered, Style, Template, push_content, push_tool_call};

pub(super) fn render(body: &Value, style: Style) -> Result<Rendered, &'static str> {
    let messages = body.get("messages").and_then(Value::as_array).ok_or("messages")?;
    let mut template = Template::new(style);
    for tool in body.get("tools").and_then(Value::as_array).into_iter().flatten() {
        push_tool(tool, &mut template);
    }
    for message in messages {
        let role = message.get("role").and_then(Value::as_str).ok_or("messages.role")?;
        template.turn(role, &turn_text(message));
    }
    Ok(template.finish())
}

fn push_tool(tool: &Value, template: &mut Template) {
    let Some(function) = tool.get("function") else { return template.other_tool(tool) };
    let text = |name: &str| function.get(name).and_then(Value::as_str).unwrap_or_default();
    let parameters = function.get("parameters").unwrap_or(&Value::Null);
    template.tool(text("name"), text("description"), parameters);
}

fn turn_text(message: &Value) -> String {
    let mut text = String::new();
    push_content(message.get("content").unwrap_or(&Value::Null), &mut text);
    for call in message.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
        let function = call.get("function").unwrap_or(call);
        let name = function.get("name").and_then(Value::as_str).unwrap_or_default();
        push_tool_call(name, function.get("arguments").unwrap_or(&Value::Null), &mut text);
    }
    text
}
