//! Whose conversation a request belongs to: the first of the ids that clients are known to send.
//!
//! The order, what is never used (request ids, trace ids, `user`, addresses) and why is in the table of
//! headers below. An id is hashed by the caller together with the credential; it is never stored, logged or
//! forwarded from here.

use std::borrow::Cow;

use crate::limits::CONVERSATION_ID_BYTES_MAX;
use crate::prompt::Prompt;

/// Where an id was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// In the header the configuration names.
    Configured,
    /// In Claude Code's session header, with its agent's.
    ClaudeCode,
    /// In a header of a known client or gateway.
    Header,
    /// In the body's `prompt_cache_key`.
    PromptCacheKey,
    /// In the session part of the body's `metadata.user_id`.
    UserId,
    /// Nowhere: the first system text and the first user text stand for it.
    Head,
}

/// A conversation's id, before hashing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ConversationId<'r> {
    /// Where it was found; ids of different sources never meet.
    pub source: Source,
    id: Id<'r>,
    agent: &'r [u8],
}

/// What identifies it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Id<'r> {
    /// Bytes a client sent.
    Sent(&'r [u8]),
    /// A digest of ours.
    Digest([u8; 8]),
}

impl Id<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Id::Sent(bytes) => bytes,
            Id::Digest(bytes) => bytes,
        }
    }
}

impl std::fmt::Debug for ConversationId<'_> {
    // The id itself is nobody's business.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConversationId").field("source", &self.source).finish_non_exhaustive()
    }
}

impl ConversationId<'_> {
    /// Appends the bytes to hash: unlike for any two different ids, whatever they contain.
    pub fn append_to(&self, bytes: &mut Vec<u8>) {
        let id = self.id.bytes();
        bytes.push(self.source as u8);
        bytes.extend_from_slice(&(id.len() as u64).to_le_bytes());
        bytes.extend_from_slice(id);
        bytes.extend_from_slice(self.agent);
    }
}

/// Claude Code's session; its subagents share it and are told apart by the second.
const CLAUDE_SESSION: &str = "x-claude-code-session-id";
const CLAUDE_AGENT: &str = "x-claude-code-agent-id";

/// Headers that carry a conversation's id, first match first: Codex (new, then old), then gateways and other
/// clients. Not among them: `x-client-request-id`, `x-request-id` and trace ids (fresh each time).
const HEADERS: [&str; 7] = [
    "session-id",
    "thread-id",
    "session_id",
    "conversation_id",
    "x-session-id",
    "x-session-affinity",
    "x-opencode-session",
];

/// The first id that applies. `get` looks a header up by its lower-case name; `prompt` is `None` when the body
/// could not be read.
pub fn id<'r>(
    configured: Option<&str>,
    get: &impl Fn(&str) -> Option<&'r [u8]>,
    prompt: Option<&'r Prompt<'_>>,
) -> Option<ConversationId<'r>> {
    let header = |name: &str| get(name).filter(|id| is_fit(id));
    let found = |source, id: &'r [u8], agent| ConversationId { source, id: Id::Sent(id), agent };
    if let Some(id) = configured.and_then(header) {
        return Some(found(Source::Configured, id, b""));
    }
    if let Some(id) = header(CLAUDE_SESSION) {
        return Some(found(Source::ClaudeCode, id, header(CLAUDE_AGENT).unwrap_or_default()));
    }
    if let Some(id) = HEADERS.iter().find_map(|name| header(name)) {
        return Some(found(Source::Header, id, b""));
    }
    let prompt = prompt?;
    let text =
        |text: &'r Option<Cow<'_, str>>| text.as_deref().map(str::as_bytes).filter(|id| is_fit(id));
    if let Some(id) = text(&prompt.prompt_cache_key) {
        return Some(found(Source::PromptCacheKey, id, b""));
    }
    if let Some(id) = text(&prompt.user_session) {
        return Some(found(Source::UserId, id, b""));
    }
    let digest = prompt.head_digest()?;
    let id = Id::Digest(digest.to_le_bytes());
    Some(ConversationId { source: Source::Head, id, agent: b"" })
}

/// What the caller identifies itself with; empty for callers that do not.
pub fn credential<'r>(get: &impl Fn(&str) -> Option<&'r [u8]>) -> &'r [u8] {
    get("authorization").or_else(|| get("x-api-key")).unwrap_or_default()
}

/// Whether an id is one: of bounded length and of visible characters. An over-long one counts as absent.
fn is_fit(id: &[u8]) -> bool {
    (1..=CONVERSATION_ID_BYTES_MAX).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Api;
    use crate::prompt::{Canon, read};

    struct Nowhere;
    impl Canon for Nowhere {
        fn root(&mut self, _: &[u8]) {}
        fn push(&mut self, _: &[u8]) {}
    }

    fn source(headers: &[(&str, &str)], body: &str) -> Option<Source> {
        with(headers, body, |id| id.map(|id| id.source))
    }

    fn bytes(headers: &[(&str, &str)], body: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        with(headers, body, |id| id.expect("there is an id").append_to(&mut bytes));
        bytes
    }

    fn with<R>(
        headers: &[(&str, &str)],
        body: &str,
        then: impl FnOnce(Option<ConversationId<'_>>) -> R,
    ) -> R {
        let prompt = read(Api::ChatCompletions, body.as_bytes(), &mut Nowhere).unwrap();
        let get = |name: &str| {
            headers.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_bytes())
        };
        then(id(Some("x-mine"), &get, Some(&prompt)))
    }

    const BODY: &str = r#"{"model":"m","prompt_cache_key":"k","metadata":{"user_id":"user_1_account_2_session_3"},"messages":[{"role":"user","content":"hi"}]}"#;
    const PLAIN: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;

    #[test]
    fn ids_are_taken_in_their_order() {
        let mut headers = vec![
            ("x-mine", "a"),
            ("x-claude-code-session-id", "b"),
            ("session-id", "c"),
            ("x-session-id", "d"),
        ];
        let order = [Source::Configured, Source::ClaudeCode, Source::Header, Source::Header];
        for expected in order {
            assert_eq!(source(&headers, BODY), Some(expected));
            headers.remove(0);
        }
        assert_eq!(source(&[], BODY), Some(Source::PromptCacheKey));
        assert_eq!(
            source(&[], &BODY.replace("\"prompt_cache_key\":\"k\",", "")),
            Some(Source::UserId)
        );
        assert_eq!(source(&[], PLAIN), Some(Source::Head));
    }

    #[test]
    fn a_subagent_is_a_conversation_of_its_own() {
        let main = [("x-claude-code-session-id", "s")];
        let agent = [("x-claude-code-session-id", "s"), ("x-claude-code-agent-id", "a")];
        assert_ne!(bytes(&main, PLAIN), bytes(&agent, PLAIN));
    }

    #[test]
    fn request_ids_and_traces_are_never_taken() {
        let fresh = [("x-request-id", "1"), ("x-client-request-id", "2"), ("traceparent", "3")];
        assert_eq!(source(&fresh, PLAIN), Some(Source::Head));
    }

    #[test]
    fn an_id_that_is_too_long_or_not_printable_counts_as_absent() {
        let long = "x".repeat(CONVERSATION_ID_BYTES_MAX);
        assert_eq!(source(&[("session-id", &long)], PLAIN), Some(Source::Header));
        let longer = format!("{long}x");
        assert_eq!(source(&[("session-id", &longer)], PLAIN), Some(Source::Head));
        assert_eq!(source(&[("session-id", "a b")], PLAIN), Some(Source::Head));
        assert_eq!(source(&[("session-id", "")], PLAIN), Some(Source::Head));
    }

    #[test]
    fn a_conversation_without_an_id_is_known_by_how_it_begins() {
        let later = r#"{"model":"m","messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"yes"},{"role":"user","content":"more"}]}"#;
        assert_eq!(bytes(&[], PLAIN), bytes(&[], later));
        assert_ne!(bytes(&[], PLAIN), bytes(&[], &PLAIN.replace("hi", "ho")));
    }
}
