//! Messages and their content, for chat, Responses and Messages alike: role, reasoning, content, calls, and whatever else
//! a message carries.

use super::Canon;
use super::canonical::{Frame, Writer};
use super::json::{Kind, Spelling, Text, Value};

/// The first bytes of the accounting line that one client sends as its first system block, new with every request. vLLM
/// drops such blocks, wherever they stand.
const BILLING: &str = "x-anthropic-billing-header";

/// Members of a message that have a place of their own, or none in the prompt.
fn is_named(member: &[u8]) -> bool {
    matches!(
        member,
        b"role"
            | b"content"
            | b"reasoning_content"
            | b"reasoning"
            | b"thinking"
            | b"name"
            | b"tool_calls"
            | b"function_call"
            // Random, or about accounting.
            | b"type"
            | b"id"
            | b"tool_call_id"
            | b"status"
            | b"annotations"
            | b"refusal"
            // They say how the reply should go on behind this message, not what it holds.
            | b"prefix"
            | b"partial"
            | b"audio"
            | b"cache_control"
    )
}

/// Members of a part or item that are random per call.
pub(super) fn is_random(member: &[u8]) -> bool {
    matches!(member, b"id" | b"call_id" | b"tool_use_id" | b"tool_call_id" | b"status")
}

impl<'a, C: Canon> Writer<'_, 'a, C> {
    /// A list of messages, or one text from the user.
    pub(super) fn messages(&mut self, list: Value<'_, 'a>) {
        match list.kind() {
            Kind::Text => self.system_or(list, "user"),
            Kind::Array => list.items().for_each(|message| self.whole_message(message)),
            _ => self.json(Frame::Json, list),
        }
    }

    /// A message with this role and nothing but content; nothing at all if the content is empty.
    pub(super) fn system_or(&mut self, content: Value<'_, 'a>, role: &'static str) {
        let only_billing = content.kind() == Kind::Array && content.items().all(is_billing);
        if !content.is_empty() && !only_billing {
            self.message(Text::new(role.as_bytes(), Spelling::Plain));
            self.content(content);
        }
    }

    /// One message with all it carries.
    pub(super) fn whole_message(&mut self, message: Value<'_, 'a>) {
        if message.kind() != Kind::Object {
            return self.system_or(message, "user");
        }
        let [role, content, name, calls, call, reasoning @ ..] = message.pick([
            "role",
            "content",
            "name",
            "tool_calls",
            "function_call",
            // Engines and clients disagree on the name; a message has one of them.
            "reasoning_content",
            "reasoning",
            "thinking",
        ]);
        self.message(role.and_then(|role| role.text()).unwrap_or(Text::new(b"", Spelling::Plain)));
        if let Some(name) = name.and_then(|name| name.text()).filter(|name| !name.raw().is_empty())
        {
            self.named(Frame::Name, name);
        }
        reasoning.into_iter().flatten().for_each(|value| self.reasoning(value));
        if let Some(content) = content {
            self.content(content);
        }
        if let Some(calls) = calls {
            calls.items().for_each(|call| self.chat_call(call));
        }
        if let Some(call) = call {
            self.chat_call(call);
        }
        self.json_without(Frame::Extra, message, is_named);
    }

    fn reasoning(&mut self, value: Value<'_, 'a>) {
        match value.text() {
            Some(text) if text.raw().is_empty() => {}
            Some(text) => self.named(Frame::Reasoning, text),
            None => self.json(Frame::Reasoning, value),
        }
    }

    /// Content: a text, a list of parts, or one part.
    pub(super) fn content(&mut self, content: Value<'_, 'a>) {
        match content.kind() {
            Kind::Text | Kind::Object => self.part(content),
            Kind::Array => content.items().for_each(|part| self.part(part)),
            _ => self.json(Frame::Json, content),
        }
    }

    fn part(&mut self, part: Value<'_, 'a>) {
        if let Some(text) = part.text() {
            return self.text(text);
        }
        let [kind, text] = part.pick(["type", "text"]);
        let text = text.and_then(|text| text.text());
        let kind = kind.and_then(|kind| kind.text());
        match (part_kind(kind.map(|kind| kind.canonical_bytes()).as_deref()), text) {
            (Part::Text, Some(text)) if text.begins_with(BILLING) => {}
            (Part::Text, Some(text)) => self.text(text),
            (Part::Thinking, _) => self.thinking(part),
            (Part::Call, _) => self.block_call(part),
            (Part::Outcome, _) => self.outcome(part, "content"),
            (Part::Media, _) if !holds_text(part) => self.attachment(part),
            _ => self.json_without(Frame::Json, part, is_random),
        }
    }

    fn thinking(&mut self, part: Value<'_, 'a>) {
        match part.get("thinking").and_then(|thinking| thinking.text()) {
            Some(text) if text.raw().is_empty() => {}
            Some(text) => self.named(Frame::Reasoning, text),
            None => self.json_without(Frame::Json, part, is_random),
        }
    }

    /// `{"type":"tool_use","name":…,"input":{…}}`
    fn block_call(&mut self, part: Value<'_, 'a>) {
        let [name, input] = part.pick(["name", "input"]);
        self.call(name, input);
    }

    /// `{"type":"function","function":{"name":…,"arguments":"{…}"}}`, or the inner object alone.
    fn chat_call(&mut self, call: Value<'_, 'a>) {
        let function = call.get("function").unwrap_or(call);
        let [name, arguments] = function.pick(["name", "arguments"]);
        if name.is_none() {
            return self.json_without(Frame::Json, call, is_random);
        }
        self.call(name, arguments);
    }

    /// A call with its arguments.
    pub(super) fn call(&mut self, name: Option<Value<'_, 'a>>, arguments: Option<Value<'_, 'a>>) {
        let name = name.and_then(|name| name.text()).unwrap_or(Text::new(b"", Spelling::Plain));
        self.named(Frame::Call, name);
        if let Some(arguments) = arguments {
            self.arguments(arguments);
        }
    }

    /// A result, whose content stands under `member`.
    pub(super) fn outcome(&mut self, part: Value<'_, 'a>, member: &str) {
        self.frame(Frame::Outcome);
        let [content, failed] = part.pick([member, "is_error"]);
        if let Some(content) = content {
            self.content(content);
        }
        if let Some(failed) = failed {
            self.json(Frame::Extra, failed);
        }
        self.frame(Frame::End);
    }

    /// Tool definitions, each in a frame of its own.
    pub(super) fn tools(&mut self, tools: Value<'_, 'a>) {
        if tools.kind() != Kind::Array {
            return self.json(Frame::Tool, tools);
        }
        for tool in tools.items() {
            self.parts = self.parts.saturating_add(1);
            self.json(Frame::Tool, tool);
        }
    }
}

/// Whether a part is the accounting line: a text that begins as it does.
pub(super) fn is_billing(part: Value<'_, '_>) -> bool {
    let [kind, text] = part.pick(["type", "text"]);
    let kind = kind.and_then(|kind| kind.text());
    let is_text = matches!(part_kind(kind.map(|k| k.canonical_bytes()).as_deref()), Part::Text);
    is_text && text.and_then(|text| text.text()).is_some_and(|text| text.begins_with(BILLING))
}

/// A document that brings its own text is text to the engine, not an attachment.
fn holds_text(part: Value<'_, '_>) -> bool {
    let kind =
        part.get("source").and_then(|source| source.get("type")).and_then(|kind| kind.text());
    kind.is_some_and(|kind| kind.is("text") || kind.is("content"))
}

enum Part {
    Text,
    Thinking,
    Call,
    Outcome,
    Media,
    Unknown,
}

fn part_kind(kind: Option<&[u8]>) -> Part {
    match kind {
        None | Some(b"text" | b"input_text" | b"output_text") => Part::Text,
        Some(b"thinking") => Part::Thinking,
        Some(b"tool_use" | b"server_tool_use" | b"mcp_tool_use") => Part::Call,
        Some(
            b"image" | b"image_url" | b"input_image" | b"audio" | b"audio_url" | b"input_audio"
            | b"video" | b"video_url" | b"input_video" | b"file" | b"file_url" | b"input_file"
            | b"document" | b"document_url" | b"container_upload",
        ) => Part::Media,
        Some(other) if other.ends_with(b"tool_result") => Part::Outcome,
        Some(_) => Part::Unknown,
    }
}
