//! `/v1/messages` as a prompt, converted to chat turns the way engines do it: tool results become turns of their own, before
//! the rest of the user turn they came in.

use serde_json::Value;

use super::template::{Rendered, Style, Template, push_content, push_part, push_tool_call};

pub(super) fn render(body: &Value, style: Style) -> Result<Rendered, &'static str> {
    let messages = body.get("messages").and_then(Value::as_array).ok_or("messages")?;
    let mut template = Template::new(style);
    for tool in body.get("tools").and_then(Value::as_array).into_iter().flatten() {
        push_tool(tool, &mut template);
    }
    push_system(body.get("system"), &mut template);
    for message in messages {
        let role = message.get("role").and_then(Value::as_str).ok_or("messages.role")?;
        push_message(role, message.get("content").unwrap_or(&Value::Null), &mut template);
    }
    Ok(template.finish())
}

fn push_tool(tool: &Value, template: &mut Template) {
    let Some(schema) = tool.get("input_schema") else { return template.other_tool(tool) };
    let text = |name: &str| tool.get(name).and_then(Value::as_str).unwrap_or_default();
    template.tool(text("name"), text("description"), schema);
}

fn push_system(system: Option<&Value>, template: &mut Template) {
    match system {
        Some(Value::String(text)) => template.system_blocks(std::iter::once(text.as_str())),
        Some(Value::Array(blocks)) if !blocks.is_empty() => {
            let texts = blocks.iter().filter_map(|block| block.get("text")?.as_str());
            template.system_blocks(texts);
        }
        _ => {}
    }
}

fn push_message(role: &str, content: &Value, template: &mut Template) {
    let Value::Array(blocks) = content else {
        let mut text = String::new();
        push_content(content, &mut text);
        return template.turn(role, &text);
    };
    let mut text = String::new();
    let mut results = 0;
    for block in blocks {
        match block.get("type").and_then(Value::as_str) {
            Some("tool_use") => push_tool_use(block, &mut text),
            Some("tool_result") => {
                results += 1;
                template.turn("tool", &tool_result(block));
            }
            _ => push_part(block, &mut text),
        }
    }
    if results == 0 || !text.is_empty() {
        template.turn(role, &text);
    }
}

fn push_tool_use(block: &Value, text: &mut String) {
    let name = block.get("name").and_then(Value::as_str).unwrap_or_default();
    push_tool_call(name, block.get("input").unwrap_or(&Value::Null), text);
}

fn tool_result(block: &Value) -> String {
    let mut text = String::new();
    push_content(block.get("content").unwrap_or(&Value::Null), &mut text);
    text
}
