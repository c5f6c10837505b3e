//! The order of each API's body: which fields hold the prompt, and in which order the template will show them.

use super::Canon;
use super::canonical::{Frame, Writer};
use super::fields::{Fields, Name};
use super::json::{Kind, Text, Value};
use super::messages::is_random;
use crate::api::Api;

impl<'a, C: Canon> Writer<'_, 'a, C> {
    /// The whole prompt of one body.
    pub(super) fn body(&mut self, api: Api, fields: &Fields<'_, 'a>) {
        for name in [Name::LoraPath, Name::CacheSalt, Name::ChatTemplate] {
            if let Some(value) = fields.get(name).filter(|value| !value.is_empty()) {
                self.root(name.spelling(), value);
            }
        }
        match api {
            Api::Responses => self.responses(fields),
            Api::ChatCompletions | Api::Messages | Api::CountTokens => self.chat(fields),
            _ => self.plain(fields),
        }
    }

    fn chat(&mut self, fields: &Fields<'_, 'a>) {
        for name in [Name::Tools, Name::Functions] {
            fields.with(name, |tools| self.tools(tools));
        }
        fields.with(Name::Documents, |documents| self.json(Frame::Json, documents));
        fields.with(Name::System, |system| self.system_or(system, "system"));
        fields.with(Name::Messages, |messages| self.messages(messages));
    }

    fn responses(&mut self, fields: &Fields<'_, 'a>) {
        fields.with(Name::Tools, |tools| self.tools(tools));
        fields.with(Name::Instructions, |text| self.system_or(text, "system"));
        for name in [Name::PreviousResponseId, Name::Conversation] {
            fields.with(name, |earlier| self.json(Frame::Earlier, earlier));
        }
        fields.with(Name::Input, |input| match input.kind() {
            Kind::Array => input.items().for_each(|item| self.item(item)),
            _ => self.messages(input),
        });
    }

    /// One item of a Responses input.
    fn item(&mut self, item: Value<'_, 'a>) {
        let kind = item.get("type").and_then(|kind| kind.text());
        let kind = kind.map(|kind| kind.canonical_bytes());
        if matches!(kind.as_deref(), None | Some(b"message")) {
            return self.whole_message(item);
        }
        self.parts = self.parts.saturating_add(1);
        self.frame(Frame::Item);
        match kind.as_deref() {
            Some(b"function_call") => self.function_call(item),
            Some(b"function_call_output" | b"custom_tool_call_output") => {
                self.outcome(item, "output")
            }
            Some(b"reasoning") => self.reasoning_item(item),
            _ => self.json_without(Frame::Json, item, is_random),
        }
    }

    fn function_call(&mut self, item: Value<'_, 'a>) {
        let [name, namespace, arguments] = item.pick(["name", "namespace", "arguments"]);
        self.call(name, arguments);
        if let Some(space) = namespace.and_then(|space| space.text()) {
            self.named(Frame::Name, space);
        }
    }

    // The encrypted form is opaque to every engine and new with every generation.
    fn reasoning_item(&mut self, item: Value<'_, 'a>) {
        for list in item.pick(["summary", "content"]).into_iter().flatten() {
            for part in list.items() {
                match part.get("text").and_then(|text| text.text()) {
                    Some(text) => self.named(Frame::Reasoning, text),
                    None => self.json_without(Frame::Json, part, is_random),
                }
            }
        }
    }

    /// Engines' own APIs, text completions, pooling and tokenizing: one prompt or a batch, and messages where an engine
    /// takes them.
    fn plain(&mut self, fields: &Fields<'_, 'a>) {
        self.chat(fields);
        for name in [Name::InputExtra, Name::InputPrefix, Name::InputSuffix] {
            fields.with(name, |value| self.json(Frame::Json, value));
        }
        for name in
            [Name::Prompt, Name::Text, Name::InputIds, Name::Input, Name::Content, Name::Query]
        {
            fields.with(name, |value| self.prompts(value));
        }
        for name in [Name::Text1, Name::Text2] {
            fields.with(name, |value| self.prompts(value));
        }
        fields.with(Name::ImageData, |images| match images.kind() {
            Kind::Array => images.items().for_each(|image| self.attachment(image)),
            _ if images.is_empty() => {}
            _ => self.attachment(images),
        });
    }

    fn prompts(&mut self, value: Value<'_, 'a>) {
        if value.kind() != Kind::Array {
            return self.one_prompt(value);
        }
        // llama.cpp takes texts and token ids mixed in one array: that is one prompt.
        let mixed = value.items().any(|item| item.kind() == Kind::Number);
        if !mixed {
            let count = u32::try_from(value.items().count()).unwrap_or(u32::MAX);
            self.prompts = self.prompts.max(count);
        }
        value.items().for_each(|item| self.one_prompt(item));
    }

    fn one_prompt(&mut self, value: Value<'_, 'a>) {
        self.parts = self.parts.saturating_add(1);
        match value.kind() {
            Kind::Text => self.plain_text(value),
            Kind::Number | Kind::Numbers => self.ids(value),
            Kind::Object => self.prompt_with_media(value),
            _ => self.json(Frame::Json, value),
        }
    }

    fn plain_text(&mut self, value: Value<'_, 'a>) {
        if let Some(text) = value.text().filter(|text: &Text<'a>| !text.raw().is_empty()) {
            self.head.enter_plain();
            self.head.see(text);
            self.named(Frame::Text, text);
        }
    }

    /// llama.cpp's `{"prompt_string":…,"multimodal_data":[…]}`, and whatever else an object may be.
    fn prompt_with_media(&mut self, value: Value<'_, 'a>) {
        let [text, media] = value.pick(["prompt_string", "multimodal_data"]);
        let Some(text) = text else { return self.json_without(Frame::Json, value, is_random) };
        self.plain_text(text);
        if let Some(media) = media {
            media.items().for_each(|media| self.attachment(media));
        }
    }
}
