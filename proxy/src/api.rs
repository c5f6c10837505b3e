//! Which API a request speaks, by method and path alone. Routing must know before the body is read whether the request
//! will hold a slot, whether its body carries a prompt, and in which dialect an answer or an error has to be written.
//! Never looks at headers, query strings or bodies, and never decodes percent signs: a spelling that an engine might
//! read differently from us is `Other` and passes through unread.

/// One family of requests that is read, reserved for and answered alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Api {
    /// `POST /v1/chat/completions`: OpenAI chat.
    ChatCompletions,
    /// `POST /v1/completions`: OpenAI text completion, string or token prompts, also in batches.
    Completions,
    /// `POST /v1/responses`: OpenAI Responses.
    Responses,
    /// `POST /v1/messages`: Anthropic Messages.
    Messages,
    /// `POST /v1/messages/count_tokens`: any healthy backend answers it, nothing is reserved.
    CountTokens,
    /// `POST /v1/embeddings` and the other pooling endpoints (rerank, score, classify).
    Embeddings,
    /// `POST /generate`: SGLang's own API.
    Generate,
    /// `POST /completion` and `/infill`: llama.cpp's own API.
    LlamaCompletion,
    /// `POST /tokenize`: reads a prompt, computes nothing.
    Tokenize,
    /// `GET /v1/models`: answered by the proxy itself.
    Models,
    /// Everything else, including a known path with another method: passed through without being read.
    Other,
}

/// The shape in which a client of an API expects errors and stream frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// OpenAI chat and completions: `{"error":{…}}`, `data:` events, `[DONE]`.
    Chat,
    /// OpenAI Responses: named events, `response.failed`.
    Responses,
    /// Anthropic Messages: `{"type":"error",…}`, named events, `message_stop`.
    Messages,
    /// Engines' own APIs and everything unknown; errors are written in the chat shape.
    Plain,
}

impl Api {
    /// Number of APIs, for tables indexed by [`Api::index`].
    pub const COUNT: usize = 11;

    /// Every API, in the order of [`Api::index`].
    pub const ALL: [Api; Api::COUNT] = [
        Api::ChatCompletions,
        Api::Completions,
        Api::Responses,
        Api::Messages,
        Api::CountTokens,
        Api::Embeddings,
        Api::Generate,
        Api::LlamaCompletion,
        Api::Tokenize,
        Api::Models,
        Api::Other,
    ];

    /// The API of a request line. `target` is the request target as received; its query, an absolute form's scheme
    /// and authority, and trailing slashes are ignored.
    pub fn of(method: &[u8], target: &[u8]) -> Api {
        let api = by_path(trim_slashes(path(target)));
        let expected: &[&[u8]] = if api == Api::Models { &[b"GET", b"HEAD"] } else { &[b"POST"] };
        if expected.contains(&method) { api } else { Api::Other }
    }

    /// Position in [`Api::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// The dialect in which to answer.
    pub fn dialect(self) -> Dialect {
        match self {
            Api::ChatCompletions | Api::Completions => Dialect::Chat,
            Api::Responses => Dialect::Responses,
            Api::Messages | Api::CountTokens => Dialect::Messages,
            _ => Dialect::Plain,
        }
    }

    /// Whether the request occupies a slot and tokens on a backend while it runs.
    pub fn reserves_slot(self) -> bool {
        matches!(
            self,
            Api::ChatCompletions
                | Api::Completions
                | Api::Responses
                | Api::Messages
                | Api::Embeddings
                | Api::Generate
                | Api::LlamaCompletion
        )
    }

    /// Whether the body is JSON that [`crate::prompt::read`] understands.
    pub fn reads_prompt(self) -> bool {
        !matches!(self, Api::Models | Api::Other)
    }

    /// Whether serving the request leaves its prompt in the backend's KV cache, so that it is routed by prefix and
    /// remembered. Pooling requests use no such cache by default, and counting tokens computes nothing.
    pub fn fills_cache(self) -> bool {
        self.reserves_slot() && self != Api::Embeddings
    }

    /// Whether llama.cpp reads `id_slot` from its body. It ignores it on Messages; of the rest it is not known.
    pub fn names_slot(self) -> bool {
        matches!(self, Api::ChatCompletions | Api::Completions | Api::LlamaCompletion)
    }

    /// Whether the reply may be a stream of server-sent events.
    pub fn may_stream(self) -> bool {
        self.fills_cache()
    }

    /// A short fixed name for metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Api::ChatCompletions => "chat_completions",
            Api::Completions => "completions",
            Api::Responses => "responses",
            Api::Messages => "messages",
            Api::CountTokens => "count_tokens",
            Api::Embeddings => "embeddings",
            Api::Generate => "generate",
            Api::LlamaCompletion => "llama_completion",
            Api::Tokenize => "tokenize",
            Api::Models => "models",
            Api::Other => "other",
        }
    }
}

/// The path of a request target: without query, and without scheme and authority if it is in absolute form.
pub fn path(target: &[u8]) -> &[u8] {
    let end = memchr::memchr2(b'?', b'#', target).unwrap_or(target.len());
    let before_query = target.get(..end).unwrap_or_default();
    let Some(authority) = after_scheme(before_query) else { return before_query };
    match memchr::memchr(b'/', authority) {
        Some(slash) => authority.get(slash..).unwrap_or_default(),
        None => b"/",
    }
}

/// The query of a request target without its question mark; empty if there is none.
pub fn query(target: &[u8]) -> &[u8] {
    memchr::memchr(b'?', target).and_then(|mark| target.get(mark + 1..)).unwrap_or_default()
}

fn after_scheme(target: &[u8]) -> Option<&[u8]> {
    target.strip_prefix(b"http://").or_else(|| target.strip_prefix(b"https://"))
}

fn trim_slashes(mut path: &[u8]) -> &[u8] {
    while let Some(shorter) = path.strip_suffix(b"/") {
        path = shorter;
    }
    path
}

// The names without /v1 are llama.cpp's and SGLang's own aliases. `/completions` there is the native API.
fn by_path(path: &[u8]) -> Api {
    match path {
        b"/v1/chat/completions" | b"/chat/completions" => Api::ChatCompletions,
        b"/v1/completions" => Api::Completions,
        b"/v1/responses" | b"/responses" => Api::Responses,
        b"/v1/messages" => Api::Messages,
        b"/v1/messages/count_tokens" => Api::CountTokens,
        b"/v1/embeddings" | b"/embeddings" | b"/embedding" | b"/encode" | b"/pooling"
        | b"/classify" | b"/v1/classify" | b"/rerank" | b"/v1/rerank" | b"/v2/rerank"
        | b"/reranking" | b"/v1/reranking" | b"/score" | b"/v1/score" => Api::Embeddings,
        b"/generate" => Api::Generate,
        b"/completion" | b"/completions" | b"/infill" => Api::LlamaCompletion,
        b"/tokenize" | b"/v1/tokenize" => Api::Tokenize,
        b"/v1/models" | b"/models" => Api::Models,
        _ => Api::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_api_stands_at_its_own_index() {
        for (index, api) in Api::ALL.into_iter().enumerate() {
            assert_eq!(api.index(), index, "{}", api.name());
        }
    }

    #[test]
    fn the_query_and_trailing_slashes_do_not_matter() {
        for target in
            ["/v1/messages", "/v1/messages?beta=true", "/v1/messages/", "/v1/messages//?x"]
        {
            assert_eq!(Api::of(b"POST", target.as_bytes()), Api::Messages, "{target}");
        }
    }

    #[test]
    fn an_absolute_target_is_routed_by_its_path() {
        assert_eq!(Api::of(b"POST", b"http://h:80/v1/chat/completions?a=/b"), Api::ChatCompletions);
        assert_eq!(path(b"http://h:80"), b"/");
        assert_eq!(path(b"https://h/x?y"), b"/x");
    }

    #[test]
    fn a_known_path_with_another_method_passes_through() {
        for (method, target) in [
            ("GET", "/v1/chat/completions"),
            ("POST", "/v1/models"),
            ("post", "/v1/messages"),
            ("OPTIONS", "/v1/responses"),
        ] {
            assert_eq!(
                Api::of(method.as_bytes(), target.as_bytes()),
                Api::Other,
                "{method} {target}"
            );
        }
        assert_eq!(Api::of(b"HEAD", b"/v1/models"), Api::Models);
    }

    #[test]
    fn spellings_an_engine_might_read_otherwise_pass_through() {
        for target in [
            "//v1/messages",
            "/v1/Messages",
            "/v1/%6dessages",
            "/v1/./messages",
            "/",
            "",
            "*",
            "v1/messages",
        ] {
            assert_eq!(Api::of(b"POST", target.as_bytes()), Api::Other, "{target}");
        }
    }

    #[test]
    fn each_documented_path_has_its_api_and_dialect() {
        let table = [
            ("POST", "/v1/chat/completions", Api::ChatCompletions, Dialect::Chat),
            ("POST", "/v1/completions", Api::Completions, Dialect::Chat),
            ("POST", "/v1/responses", Api::Responses, Dialect::Responses),
            ("POST", "/v1/messages", Api::Messages, Dialect::Messages),
            ("POST", "/v1/messages/count_tokens?beta=true", Api::CountTokens, Dialect::Messages),
            ("POST", "/v1/embeddings", Api::Embeddings, Dialect::Plain),
            ("POST", "/generate", Api::Generate, Dialect::Plain),
            ("POST", "/completion", Api::LlamaCompletion, Dialect::Plain),
            ("POST", "/tokenize", Api::Tokenize, Dialect::Plain),
            ("GET", "/v1/models?limit=1000", Api::Models, Dialect::Plain),
            ("GET", "/health", Api::Other, Dialect::Plain),
        ];
        for (method, target, api, dialect) in table {
            let found = Api::of(method.as_bytes(), target.as_bytes());
            assert_eq!((found, found.dialect()), (api, dialect), "{method} {target}");
        }
    }

    #[test]
    fn only_what_computes_reserves_and_only_generation_fills_the_cache() {
        for api in Api::ALL {
            assert!(!api.fills_cache() || api.reserves_slot());
            assert!(!api.reserves_slot() || api.reads_prompt());
        }
        assert!(!Api::CountTokens.reserves_slot() && Api::CountTokens.reads_prompt());
        assert!(Api::Embeddings.reserves_slot() && !Api::Embeddings.fills_cache());
        assert!(!Api::Other.reads_prompt());
    }

    #[test]
    fn the_query_is_what_follows_the_first_question_mark() {
        assert_eq!(query(b"/v1/models?client_version=1?2"), b"client_version=1?2");
        assert_eq!(query(b"/v1/models"), b"");
    }
}
