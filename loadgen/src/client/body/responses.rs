//! Bodies of `/v1/responses`, plain and as Codex CLI sends them.

use super::{Rendered, Renderer, join, put};
use crate::client::conversation::{Conversation, Message, Role};

pub(super) fn plain(renderer: &Renderer, talk: &Conversation, max_tokens: u32) -> Rendered {
    let mut body = renderer.body(talk);
    put(&mut body, format_args!(r#"{{"model":"{}""#, renderer.model));
    let system = renderer.system(talk);
    if !system.is_empty() {
        put(&mut body, format_args!(r#","instructions":"{system}""#));
    }
    body.push_str(r#","input":["#);
    join(&mut body, &talk.messages, push_item);
    let stream = renderer.stream;
    put(&mut body, format_args!(r#"],"max_output_tokens":{max_tokens},"stream":{stream}}}"#));
    Rendered { path: "/v1/responses", headers: Vec::new(), body }
}

/// Codex' project facts are the first input message, so instructions and tools are the same in all
/// conversations. The token limit is ours: the real client sends none, but a load must be bounded.
pub(super) fn codex(renderer: &Renderer, talk: &Conversation, max_tokens: u32) -> Rendered {
    let mut body = renderer.body(talk);
    let (model, system) = (&renderer.model, renderer.system(talk));
    put(&mut body, format_args!(r#"{{"model":"{model}","instructions":"{system}","input":["#));
    let group = talk.group.unwrap_or_default();
    put(
        &mut body,
        format_args!(
            r#"{{"type":"message","role":"user","content":[{{"type":"input_text","text":"cwd: /home/dev/project-{group}\nshell: bash"}}]}},"#
        ),
    );
    join(&mut body, &talk.messages, push_item);
    let (tools, stream, session) = (&renderer.library.tools, renderer.stream, &talk.session_id);
    put(
        &mut body,
        format_args!(
            r#"],"max_output_tokens":{max_tokens},"tools":{tools},"tool_choice":"auto","parallel_tool_calls":true,"store":false,"stream":{stream},"include":["reasoning.encrypted_content"],"prompt_cache_key":"{session}","client_metadata":{{"session_id":"{session}","thread_id":"{session}"}}}}"#
        ),
    );
    Rendered { path: "/v1/responses", headers: codex_headers(session), body }
}

fn push_item(out: &mut String, message: &Message) {
    let part = if message.role == Role::User { "input_text" } else { "output_text" };
    let (role, text) = (message.role.name(), &message.text);
    put(
        out,
        format_args!(
            r#"{{"type":"message","role":"{role}","content":[{{"type":"{part}","text":"{text}"}}]}}"#
        ),
    );
}

fn codex_headers(session: &str) -> Vec<(&'static str, String)> {
    vec![
        ("user-agent", "codex_cli_rs/0.130.0".to_owned()),
        ("originator", "codex_cli_rs".to_owned()),
        ("session-id", session.to_owned()),
        ("thread-id", session.to_owned()),
        ("x-client-request-id", session.to_owned()),
        ("x-codex-window-id", format!("{session}:0")),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::tests::{header, json, third_turn};
    use crate::client::options::{Dialect, Shape};

    #[test]
    fn plain_responses_mark_who_said_what_by_the_kind_of_text() {
        let (renderer, talk) = third_turn(Dialect::Responses, Shape::Plain);
        let body = json(&renderer.render(&talk, 9, 0));
        let kinds: Vec<_> = body["input"].as_array().expect("array").iter().collect();
        let kinds: Vec<_> = kinds.iter().map(|item| &item["content"][0]["type"]).collect();
        let expected = ["input_text", "output_text", "input_text", "output_text", "input_text"];
        assert_eq!(kinds, expected);
        assert_eq!(body["max_output_tokens"], 9);
        assert!(body["instructions"].as_str().is_some_and(|text| text.len() > 3_000));
    }

    #[test]
    fn codex_names_its_session_in_headers_and_in_the_cache_key() {
        let (renderer, talk) = third_turn(Dialect::Responses, Shape::Codex);
        let rendered = renderer.render(&talk, 9, 0);
        let session = Some(talk.session_id.as_str());
        assert_eq!(header(&rendered, "session-id"), session);
        assert_eq!(header(&rendered, "thread-id"), session);
        let body = json(&rendered);
        assert_eq!(body["prompt_cache_key"].as_str(), session);
        assert_eq!(body["tools"].as_array().expect("array").len(), 10);
        assert!(body["input"][0]["content"][0]["text"].as_str().expect("text").starts_with("cwd:"));
    }

    #[test]
    fn codex_requests_of_one_conversation_extend_each_other() {
        let (renderer, mut talk) = third_turn(Dialect::Responses, Shape::Codex);
        let before = json(&renderer.render(&talk, 9, 0));
        talk.answer("third");
        talk.ask();
        let after = json(&renderer.render(&talk, 9, 1));
        let (before, after) = (before["input"].as_array(), after["input"].as_array());
        let (before, after) = (before.expect("array"), after.expect("array"));
        assert_eq!(after[..before.len()], before[..]);
    }
}
