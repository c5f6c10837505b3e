//! Bodies of `/v1/messages`, plain and as Claude Code sends them.

use super::{Rendered, Renderer, join, put};
use crate::client::conversation::{Conversation, Message};

const VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");

const CACHE_CONTROL: &str = r#","cache_control":{"type":"ephemeral"}"#;

pub(super) fn plain(renderer: &Renderer, talk: &Conversation, max_tokens: u32) -> Rendered {
    let mut body = renderer.body(talk);
    put(&mut body, format_args!(r#"{{"model":"{}","max_tokens":{max_tokens}"#, renderer.model));
    let system = renderer.system(talk);
    if !system.is_empty() {
        put(&mut body, format_args!(r#","system":"{system}""#));
    }
    body.push_str(r#","messages":["#);
    join(&mut body, &talk.messages, push_string_message);
    put(&mut body, format_args!(r#"],"stream":{}}}"#, renderer.stream));
    Rendered { path: "/v1/messages", headers: vec![(VERSION.0, VERSION.1.to_owned())], body }
}

/// As Claude Code does it, what changes from one request to the next is what it should not:
/// the `cch` of the billing line, the place of `cache_control`, and the form of a message that was
/// last in one request (one text block) and is not in the next (a string).
pub(super) fn claude_code(
    renderer: &Renderer,
    talk: &Conversation,
    max_tokens: u32,
    nonce: u64,
) -> Rendered {
    let mut body = renderer.body(talk);
    put(&mut body, format_args!(r#"{{"model":"{}","max_tokens":{max_tokens}"#, renderer.model));
    push_system(&mut body, renderer, talk, nonce);
    put(&mut body, format_args!(r#","tools":{},"messages":["#, renderer.library.tools));
    let last = talk.messages.len().saturating_sub(1);
    join(&mut body, talk.messages.iter().enumerate(), |out, (number, message)| {
        if number == last {
            push_cached_block(out, message);
        } else {
            push_string_message(out, message);
        }
    });
    let (session, stream) = (&talk.session_id, renderer.stream);
    put(
        &mut body,
        format_args!(
            r#"],"metadata":{{"user_id":"{{\"device_id\":\"d\",\"account_uuid\":\"a\",\"session_id\":\"{session}\"}}"}},"stream":{stream}}}"#
        ),
    );
    Rendered { path: "/v1/messages?beta=true", headers: claude_code_headers(session), body }
}

/// Three blocks: the billing line, a short identity, the instructions. The version's suffix follows
/// the conversation, the `cch` follows the request.
fn push_system(out: &mut String, renderer: &Renderer, talk: &Conversation, nonce: u64) {
    let suffix = talk.session_id.get(..3).unwrap_or_default();
    let (cch, system) = (nonce & 0xf_ffff, renderer.system(talk));
    put(
        out,
        format_args!(
            r#","system":[{{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1.283.{suffix}; cc_entrypoint=cli; cch={cch:05x};"}},{{"type":"text","text":"You are a coding agent in a terminal."{CACHE_CONTROL}}},{{"type":"text","text":"{system}"{CACHE_CONTROL}}}]"#
        ),
    );
}

fn push_string_message(out: &mut String, message: &Message) {
    let (role, text) = (message.role.name(), &message.text);
    put(out, format_args!(r#"{{"role":"{role}","content":"{text}"}}"#));
}

fn push_cached_block(out: &mut String, message: &Message) {
    let (role, text) = (message.role.name(), &message.text);
    put(
        out,
        format_args!(
            r#"{{"role":"{role}","content":[{{"type":"text","text":"{text}"{CACHE_CONTROL}}}]}}"#
        ),
    );
}

fn claude_code_headers(session: &str) -> Vec<(&'static str, String)> {
    vec![
        (VERSION.0, VERSION.1.to_owned()),
        ("anthropic-beta", "claude-code-20250219,interleaved-thinking-2025-05-14".to_owned()),
        ("user-agent", "claude-cli/2.1.283 (external, cli)".to_owned()),
        ("x-app", "cli".to_owned()),
        ("x-claude-code-session-id", session.to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::tests::{header, json, third_turn};
    use crate::client::options::{Dialect, Shape};

    fn cached_messages(body: &Value) -> Vec<usize> {
        let messages = body["messages"].as_array().expect("array").iter().enumerate();
        messages
            .filter(|(_, message)| message["content"][0].get("cache_control").is_some())
            .map(|(number, _)| number)
            .collect()
    }

    #[test]
    fn plain_messages_carry_the_system_prompt_beside_them() {
        let (renderer, talk) = third_turn(Dialect::Anthropic, Shape::Plain);
        let rendered = renderer.render(&talk, 9, 0);
        let body = json(&rendered);
        assert_eq!(rendered.path, "/v1/messages");
        assert_eq!(header(&rendered, "anthropic-version"), Some("2023-06-01"));
        assert!(body["system"].as_str().is_some_and(|text| text.len() > 3_000));
        assert_eq!(body["messages"][1]["content"], "first\nreply");
        assert_eq!((&body["stream"], &body["max_tokens"]), (&true.into(), &9.into()));
    }

    #[test]
    fn claude_code_moves_cache_control_to_the_last_message() {
        let (renderer, mut talk) = third_turn(Dialect::Anthropic, Shape::ClaudeCode);
        let before = json(&renderer.render(&talk, 9, 1));
        talk.answer("third");
        talk.ask();
        let after = json(&renderer.render(&talk, 9, 2));
        assert_eq!((cached_messages(&before), cached_messages(&after)), (vec![4], vec![6]));
        // The same text, once as a block and once as a string.
        assert_eq!(before["messages"][4]["content"][0]["text"], after["messages"][4]["content"]);
        assert_eq!(before["tools"], after["tools"]);
        assert_eq!(before["system"][2], after["system"][2]);
    }

    #[test]
    fn claude_codes_billing_line_comes_first_and_changes_with_each_request() {
        let (renderer, talk) = third_turn(Dialect::Anthropic, Shape::ClaudeCode);
        let line = |nonce| json(&renderer.render(&talk, 9, nonce))["system"][0]["text"].clone();
        assert!(line(1).as_str().is_some_and(|l| l.starts_with("x-anthropic-billing-header: ")));
        assert_ne!(line(1), line(2));
    }

    #[test]
    fn claude_code_names_its_session_in_a_header_and_in_the_metadata() {
        let (renderer, talk) = third_turn(Dialect::Anthropic, Shape::ClaudeCode);
        let rendered = renderer.render(&talk, 9, 1);
        assert_eq!(rendered.path, "/v1/messages?beta=true");
        assert_eq!(header(&rendered, "x-claude-code-session-id"), Some(talk.session_id.as_str()));
        let body = json(&rendered);
        let user_id = body["metadata"]["user_id"].as_str().expect("a string");
        let inner: Value = serde_json::from_str(user_id).expect("JSON inside JSON");
        assert_eq!(inner["session_id"], talk.session_id.as_str());
        assert!((115_000..140_000).contains(&rendered.body.len()), "{}", rendered.body.len());
    }
}
