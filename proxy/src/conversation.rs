//! Which conversation a request belongs to, from the best evidence it brings: a header of ours, a client's session
//! headers, ids in the body, and at last what the conversation begins with. Ids are scoped by the caller's credential, so
//! that nobody can steer somebody else's conversation, and are only ever hashed: never stored, never shown.
//!
//! Never used: `x-client-request-id`, `x-request-id` and trace ids (new with every request), `user` (one value for a whole
//! organisation), and the client's address (a whole office behind one).

use crate::limits::CONVERSATION_ID_BYTES_MAX;
use crate::prompt::Prompt;
use std::fmt;

/// Where a conversation's id was found, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// The header that the configuration names.
    Configured,
    /// `X-Claude-Code-Session-Id`, with the agent's id on a subagent's calls.
    ClaudeCode,
    /// `session-id`, `thread-id`, `session_id`, `conversation_id`.
    Codex,
    /// `x-session-id`, `x-session-affinity`, `x-opencode-session`.
    SessionHeader,
    /// `prompt_cache_key` in the body.
    PromptCacheKey,
    /// The session part of `metadata.user_id` in the body.
    UserSession,
    /// A digest of model, first system text and first user text.
    Head,
}

impl Source {
    /// A short fixed name for metrics and explanations.
    pub fn name(self) -> &'static str {
        match self {
            Source::Configured => "configured_header",
            Source::ClaudeCode => "claude_code_header",
            Source::Codex => "codex_header",
            Source::SessionHeader => "session_header",
            Source::PromptCacheKey => "prompt_cache_key",
            Source::UserSession => "user_id_session",
            Source::Head => "head_digest",
        }
    }
}

/// A conversation's id, to be hashed together with its scope.
#[derive(Clone, PartialEq, Eq)]
pub struct ConversationId<'h> {
    /// Where it was found.
    pub source: Source,
    scope: &'h [u8],
    id: Vec<u8>,
}

impl ConversationId<'_> {
    /// The caller's credential as it was sent; empty without one. A secret: hash it, nothing else.
    pub fn scope(&self) -> &[u8] {
        self.scope
    }

    /// The bytes that identify the conversation within the scope. They include the model, since a client may use several
    /// in one session and each has a home of its own.
    pub fn id(&self) -> &[u8] {
        &self.id
    }
}

impl fmt::Debug for ConversationId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConversationId").field("source", &self.source).finish_non_exhaustive()
    }
}

/// Finds a request's conversation. `header` gives the first value of a header by its lower-case name; `configured` is the
/// lower-case name of the header the configuration trusts before all others; `prompt` is `None` for a body that could not
/// be read. `None` if nothing tells the request from others.
pub fn identify<'h>(
    header: impl Fn(&str) -> Option<&'h [u8]>,
    configured: Option<&str>,
    prompt: Option<&Prompt<'_>>,
) -> Option<ConversationId<'h>> {
    let valid = |name: &str| header(name).map(<[u8]>::trim_ascii).filter(|id| is_valid(id));
    let (source, mut id) = from_headers(valid, configured)
        .or_else(|| from_body(prompt?))
        .or_else(|| from_head(prompt?))?;
    id.push(0);
    if let Some(model) = prompt.and_then(|prompt| prompt.model.as_deref()) {
        id.extend_from_slice(model.as_bytes());
    }
    let scope = header("authorization").or_else(|| header("x-api-key")).unwrap_or_default();
    Some(ConversationId { source, scope, id })
}

type Found = Option<(Source, Vec<u8>)>;

fn from_headers<'h>(valid: impl Fn(&str) -> Option<&'h [u8]>, configured: Option<&str>) -> Found {
    if let Some(id) = configured.and_then(&valid) {
        return Some((Source::Configured, id.to_vec()));
    }
    if let Some(session) = valid("x-claude-code-session-id") {
        // Subagents share the session but not the prompt; the main agent sends no id of its own.
        return Some((Source::ClaudeCode, join(session, valid("x-claude-code-agent-id"))));
    }
    if let Some(session) = valid("session-id") {
        let thread = valid("thread-id").filter(|thread| *thread != session);
        return Some((Source::Codex, join(session, thread)));
    }
    let first = |names: &[&str]| names.iter().find_map(|name| valid(name)).map(<[u8]>::to_vec);
    if let Some(id) = first(&["thread-id", "session_id", "conversation_id"]) {
        return Some((Source::Codex, id));
    }
    let id = first(&["x-session-id", "x-session-affinity", "x-opencode-session"])?;
    Some((Source::SessionHeader, id))
}

fn from_body(prompt: &Prompt<'_>) -> Found {
    let found = |source, id: Option<&str>| {
        let id = id.map(|id| id.trim_ascii().as_bytes()).filter(|id| is_valid(id))?;
        Some((source, id.to_vec()))
    };
    found(Source::PromptCacheKey, prompt.prompt_cache_key.as_deref())
        .or_else(|| found(Source::UserSession, prompt.user_session.as_deref()))
}

fn from_head(prompt: &Prompt<'_>) -> Found {
    let digest = prompt.head_digest()?;
    // No valid id begins with this byte.
    let mut id = vec![1];
    id.extend_from_slice(&digest.to_be_bytes());
    Some((Source::Head, id))
}

fn join(session: &[u8], agent: Option<&[u8]>) -> Vec<u8> {
    let mut id = session.to_vec();
    if let Some(agent) = agent {
        id.push(0);
        id.extend_from_slice(agent);
    }
    id
}

/// Not empty, not too long, no control characters.
fn is_valid(id: &[u8]) -> bool {
    (1..=CONVERSATION_ID_BYTES_MAX).contains(&id.len())
        && !id.iter().any(|byte| byte.is_ascii_control())
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

    fn prompt(body: &str) -> Prompt<'_> {
        read(Api::Messages, body.as_bytes(), &mut Nowhere).expect(body)
    }

    /// The source and the hashed bytes for these headers, with `x-mine` configured.
    fn found(headers: &[(&str, &str)], body: Option<&str>) -> Option<(Source, Vec<u8>, Vec<u8>)> {
        let prompt = body.map(prompt);
        let header = |name: &str| {
            headers.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_bytes())
        };
        let id = identify(header, Some("x-mine"), prompt.as_ref())?;
        Some((id.source, id.scope().to_vec(), id.id().to_vec()))
    }

    const BODY: &str = r#"{"model":"m","prompt_cache_key":"pck","metadata":{"user_id":"u_session_us"},"messages":[{"role":"user","content":"hi"}]}"#;
    const ALL: [(&str, &str); 8] = [
        ("x-mine", "mine"),
        ("x-claude-code-session-id", "claude"),
        ("session-id", "codex"),
        ("thread-id", "codex"),
        ("session_id", "old"),
        ("conversation_id", "older"),
        ("x-session-id", "open"),
        ("x-session-affinity", "affine"),
    ];

    #[test]
    fn the_best_evidence_decides() {
        for (skip, source, id) in [
            (0, Source::Configured, "mine"),
            (1, Source::ClaudeCode, "claude"),
            (2, Source::Codex, "codex"),
            (3, Source::Codex, "codex"),
            (4, Source::Codex, "old"),
            (5, Source::Codex, "older"),
            (6, Source::SessionHeader, "open"),
            (7, Source::SessionHeader, "affine"),
            (8, Source::PromptCacheKey, "pck"),
        ] {
            let expected = Some((source, Vec::new(), format!("{id}\0m").into_bytes()));
            assert_eq!(found(&ALL[skip..], Some(BODY)), expected, "without the first {skip}");
        }
        let without_key = BODY.replace("prompt_cache_key", "other");
        assert_eq!(found(&[], Some(&without_key)).map(|found| found.0), Some(Source::UserSession));
        let without_ids = without_key.replace("metadata", "data");
        assert_eq!(found(&[], Some(&without_ids)).map(|found| found.0), Some(Source::Head));
        assert_eq!(found(&[], Some(r#"{"model":"m"}"#)), None);
        assert_eq!(found(&[], None), None);
    }

    #[test]
    fn a_body_that_cannot_be_read_is_identified_by_headers_alone() {
        let id = found(&[("session-id", "s")], None).expect("an id");
        assert_eq!((id.0, id.2), (Source::Codex, b"s\0".to_vec()));
    }

    #[test]
    fn subagents_and_threads_are_conversations_of_their_own() {
        let claude = |agent: &[(&str, &str)]| {
            found(&[&[("x-claude-code-session-id", "s")], agent].concat(), Some(BODY))
        };
        let agents = [
            claude(&[]),
            claude(&[("x-claude-code-agent-id", "a")]),
            claude(&[("x-claude-code-agent-id", "b")]),
        ];
        assert!(agents[0] != agents[1] && agents[1] != agents[2]);
        let codex = |thread| found(&[("session-id", "s"), ("thread-id", thread)], Some(BODY));
        assert_eq!(codex("s"), found(&[("session-id", "s")], Some(BODY)));
        assert_ne!(codex("t"), codex("s"));
    }

    #[test]
    fn an_id_is_accepted_to_the_limit_and_absent_one_beyond() {
        let id = |len: usize| found(&[("x-mine", &"i".repeat(len))], None).map(|found| found.0);
        assert_eq!(id(CONVERSATION_ID_BYTES_MAX), Some(Source::Configured));
        assert_eq!(id(CONVERSATION_ID_BYTES_MAX + 1), None);
        assert_eq!(id(0), None);
        assert_eq!(found(&[("x-mine", "a\u{1}b")], None), None);
        assert_eq!(found(&[("x-mine", " \t")], None), None);
        let long = format!(r#"{{"model":"m","prompt_cache_key":"{}"}}"#, "k".repeat(256));
        assert_eq!(found(&[], Some(&long)), None);
    }

    #[test]
    fn the_callers_credential_is_the_scope() {
        let scope = |headers: &[(&str, &str)]| {
            found(&[headers, &[("session-id", "s")]].concat(), None).expect("an id").1
        };
        assert_eq!(scope(&[("authorization", "Bearer a"), ("x-api-key", "k")]), b"Bearer a");
        assert_eq!(scope(&[("x-api-key", "k")]), b"k");
        assert_eq!(scope(&[]), b"");
    }

    #[test]
    fn each_model_of_a_session_has_a_home_of_its_own() {
        let small = BODY.replace(r#""m""#, r#""small""#);
        let headers = [("x-claude-code-session-id", "s")];
        assert_ne!(found(&headers, Some(BODY)), found(&headers, Some(&small)));
    }

    #[test]
    fn request_ids_and_users_are_never_used() {
        let headers = [("x-request-id", "1"), ("x-client-request-id", "2"), ("traceparent", "3")];
        assert_eq!(found(&headers, Some(r#"{"model":"m","user":"org"}"#)), None);
    }

    #[test]
    fn an_id_is_never_shown() {
        let header = |name: &str| (name == "session-id").then_some(&b"secret"[..]);
        let shown = format!("{:?}", identify(header, None, None));
        assert!(!shown.contains("secret") && shown.contains("Codex"), "{shown}");
    }
}
