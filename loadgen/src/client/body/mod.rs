//! Requests as bytes: path, headers and JSON body of one turn, by dialect and shape.
//!
//! Written by hand from parts that are already escaped, because a body of 126 kB is built for
//! every request. The tests read each one back with a JSON parser.

mod anthropic;
mod openai;
mod responses;

use std::fmt::Write;

use super::conversation::{Conversation, Role};
use super::library::Library;
use super::options::{Dialect, Options, Shape};
use super::text::escape;

/// One request, ready to be sent.
#[derive(Debug)]
pub(crate) struct Rendered {
    /// Path with query, after the target's prefix.
    pub(crate) path: &'static str,
    /// Headers that belong to this dialect and shape.
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: String,
}

/// What is the same in all requests of a workload.
#[derive(Debug)]
pub(crate) struct Renderer {
    dialect: Dialect,
    shape: Shape,
    stream: bool,
    api_key: Option<String>,
    /// Escaped.
    model: String,
    pub(crate) library: Library,
}

impl Renderer {
    pub(crate) fn new(options: &Options) -> Renderer {
        Renderer {
            dialect: options.dialect,
            shape: options.shape,
            stream: options.stream,
            api_key: options.api_key.clone(),
            model: escape(&options.model),
            library: Library::new(options.seed, options.shape, &options.sizes),
        }
    }

    /// The request that asks `conversation`'s last question. `nonce` is fresh for each request.
    pub(crate) fn render(
        &self,
        conversation: &Conversation,
        max_tokens: u32,
        nonce: u64,
    ) -> Rendered {
        let mut rendered = match (self.dialect, self.shape) {
            (Dialect::Openai, _) => openai::chat(self, conversation, max_tokens),
            (Dialect::Completions, _) => openai::completions(self, conversation, max_tokens),
            (Dialect::Anthropic, Shape::ClaudeCode) => {
                anthropic::claude_code(self, conversation, max_tokens, nonce)
            }
            (Dialect::Anthropic, _) => anthropic::plain(self, conversation, max_tokens),
            (Dialect::Responses, Shape::Codex) => responses::codex(self, conversation, max_tokens),
            (Dialect::Responses, _) => responses::plain(self, conversation, max_tokens),
        };
        if let Some(key) = &self.api_key {
            rendered.headers.push(match self.dialect {
                Dialect::Anthropic => ("x-api-key", key.clone()),
                _ => ("authorization", format!("Bearer {key}")),
            });
        }
        rendered
    }

    /// The system prompt of a conversation, escaped; empty without one.
    fn system<'a>(&'a self, conversation: &Conversation) -> &'a str {
        conversation.group.map_or("", |group| self.library.system(group))
    }

    /// Room for a body, so that it is written without growing.
    fn body(&self, conversation: &Conversation) -> String {
        let said: usize = conversation.messages.iter().map(|message| message.text.len() + 64).sum();
        let shared = self.system(conversation).len() + self.library.tools.len();
        String::with_capacity(said + shared + 1024)
    }
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Role::User => "user",
            Role::Assistant => "assistant",
        }
    }
}

/// Writes `items` with commas between them.
fn join<T>(
    out: &mut String,
    items: impl IntoIterator<Item = T>,
    mut each: impl FnMut(&mut String, T),
) {
    for (number, item) in items.into_iter().enumerate() {
        if number > 0 {
            out.push(',');
        }
        each(out, item);
    }
}

/// Appends formatted text; writing to a string cannot fail.
fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::Value;

    use super::*;

    /// A renderer and a conversation whose third question waits for its answer.
    pub(crate) fn third_turn(dialect: Dialect, shape: Shape) -> (Renderer, Conversation) {
        let mut options = Options::new("http://127.0.0.1:1");
        options.dialect = dialect;
        options.shape = shape;
        options.api_key = Some("secret".to_owned());
        options.sizes = super::super::options::Sizes::of(shape);
        let renderer = Renderer::new(&options);
        let mut talk = Conversation::open(1, 1, &renderer.library, 80);
        for reply in ["first\nreply", "second \"reply\""] {
            talk.ask();
            talk.answer(reply);
        }
        talk.ask();
        (renderer, talk)
    }

    pub(crate) fn json(rendered: &Rendered) -> Value {
        serde_json::from_str(&rendered.body).expect("the body is JSON")
    }

    pub(crate) fn header<'a>(rendered: &'a Rendered, name: &str) -> Option<&'a str> {
        let header = rendered.headers.iter().find(|(header, _)| *header == name);
        header.map(|(_, value)| value.as_str())
    }

    #[test]
    fn the_key_is_sent_where_the_dialect_expects_it() {
        let (renderer, talk) = third_turn(Dialect::Openai, Shape::Plain);
        let rendered = renderer.render(&talk, 9, 0);
        assert_eq!(header(&rendered, "authorization"), Some("Bearer secret"));
        let (renderer, talk) = third_turn(Dialect::Anthropic, Shape::Plain);
        let rendered = renderer.render(&talk, 9, 0);
        assert_eq!(header(&rendered, "x-api-key"), Some("secret"));
    }

    #[test]
    fn a_question_without_a_system_prompt_sends_none() {
        for dialect in
            [Dialect::Openai, Dialect::Anthropic, Dialect::Responses, Dialect::Completions]
        {
            let (renderer, _) = third_turn(dialect, Shape::Plain);
            let talk = Conversation::of_one_question(1, 1, "only this".to_owned());
            let body = json(&renderer.render(&talk, 9, 0));
            assert!(body.get("system").is_none() && body.get("instructions").is_none(), "{body}");
            assert_eq!(body.to_string().matches("only this").count(), 1);
            assert!(!body.to_string().contains("\"system\""), "{body}");
        }
    }
}
