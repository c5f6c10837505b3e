//! Bodies of `/v1/chat/completions` and `/v1/completions`.

use super::{Rendered, Renderer, join, put};
use crate::client::conversation::{Conversation, Role};

pub(super) fn chat(renderer: &Renderer, talk: &Conversation, max_tokens: u32) -> Rendered {
    let mut body = renderer.body(talk);
    put(&mut body, format_args!(r#"{{"model":"{}","messages":["#, renderer.model));
    let system = renderer.system(talk);
    if !system.is_empty() {
        put(&mut body, format_args!(r#"{{"role":"system","content":"{system}"}},"#));
    }
    join(&mut body, &talk.messages, |out, message| {
        let (role, text) = (message.role.name(), &message.text);
        put(out, format_args!(r#"{{"role":"{role}","content":"{text}"}}"#));
    });
    put(&mut body, format_args!(r#"],"max_tokens":{max_tokens}"#));
    push_stream(&mut body, renderer.stream);
    Rendered { path: "/v1/chat/completions", headers: Vec::new(), body }
}

/// The old endpoint takes one string: the conversation written out, ready to be continued.
pub(super) fn completions(renderer: &Renderer, talk: &Conversation, max_tokens: u32) -> Rendered {
    let mut body = renderer.body(talk);
    put(&mut body, format_args!(r#"{{"model":"{}","prompt":""#, renderer.model));
    let system = renderer.system(talk);
    if !system.is_empty() {
        put(&mut body, format_args!(r"{system}\n\n"));
    }
    for message in &talk.messages {
        let name = if message.role == Role::User { "User" } else { "Assistant" };
        put(&mut body, format_args!(r"{name}: {}\n", message.text));
    }
    put(&mut body, format_args!(r#"Assistant: ","max_tokens":{max_tokens}"#));
    push_stream(&mut body, renderer.stream);
    Rendered { path: "/v1/completions", headers: Vec::new(), body }
}

/// Token counts come with a stream only when asked for.
fn push_stream(body: &mut String, stream: bool) {
    body.push_str(match stream {
        true => r#","stream":true,"stream_options":{"include_usage":true}}"#,
        false => r#","stream":false}"#,
    });
}

#[cfg(test)]
mod tests {
    use super::super::tests::{json, third_turn};
    use crate::client::options::{Dialect, Shape};

    #[test]
    fn chat_sends_the_whole_conversation_after_the_system_prompt() {
        let (renderer, talk) = third_turn(Dialect::Openai, Shape::Plain);
        let rendered = renderer.render(&talk, 9, 0);
        let body = json(&rendered);
        assert_eq!(rendered.path, "/v1/chat/completions");
        let roles: Vec<_> =
            body["messages"].as_array().expect("array").iter().map(|m| &m["role"]).collect();
        assert_eq!(roles, ["system", "user", "assistant", "user", "assistant", "user"]);
        assert_eq!(body["messages"][2]["content"], "first\nreply");
        assert_eq!(body["messages"][4]["content"], "second \"reply\"");
        assert_eq!(body["stream_options"]["include_usage"], true);
        assert_eq!(body["max_tokens"], 9);
    }

    #[test]
    fn completions_writes_the_conversation_as_one_growing_text() {
        let (renderer, mut talk) = third_turn(Dialect::Completions, Shape::Plain);
        let before = json(&renderer.render(&talk, 9, 0))["prompt"].as_str().map(str::to_owned);
        talk.answer("third");
        talk.ask();
        let after = json(&renderer.render(&talk, 9, 0))["prompt"].as_str().map(str::to_owned);
        let (before, after) = (before.expect("prompt"), after.expect("prompt"));
        assert!(after.starts_with(&before));
        assert!(after.contains("Assistant: third\nUser: "));
        assert!(after.ends_with("\nAssistant: "));
    }
}
