//! Failures as each engine words them: as a status with a body before the head, as events after it. Messages never hold
//! prompt text.

use serde_json::{Value, json};

use super::ask::Api;
use super::persona::Persona;
use super::shapes::events::{Events, spaced};
use super::shapes::{Done, Facts};

/// Why a request gets no proper reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The body is not JSON.
    BadJson,
    /// A member is missing or of the wrong type.
    Missing(&'static str),
    /// The prompt does not fit the context.
    TooLong { tokens: u32, limit: u32 },
    /// No such model here.
    UnknownModel(String),
    /// No room now.
    Busy,
    /// llama.cpp: the pool ran out under work.
    PoolExhausted,
    /// llama.cpp: `/slots?fail_on_no_slot=1` with every slot taken.
    NoSlot,
    /// No such path.
    NotFound,
    /// The path is for another method.
    MethodNotAllowed,
    /// Not offered by this server.
    Unsupported,
    /// The body is larger than allowed.
    TooLarge,
    /// Something broke (a fault on demand).
    Internal,
    /// Not serving (a fault on demand).
    Unavailable,
    /// Too many requests for a limit (a fault on demand), with seconds to wait.
    RateLimited { retry_after_s: Option<u32> },
    /// The key is not accepted (a fault on demand).
    KeyRefused,
}

const VLLM_BUSY: &str = "The engine is currently busy and cannot accept new requests. Please try again later or on a \
    different instance.";
const SGLANG_FULL: &str = "The request queue is full.";

impl Failure {
    pub(crate) fn status(&self, persona: Persona, api: Option<Api>) -> u16 {
        match self {
            Failure::Missing(_) if persona == Persona::LlamaCpp && api == Some(Api::Messages) => {
                500
            }
            Failure::BadJson | Failure::Missing(_) | Failure::TooLong { .. } => 400,
            Failure::KeyRefused => 401,
            Failure::UnknownModel(_) | Failure::NotFound => 404,
            Failure::MethodNotAllowed => 405,
            Failure::TooLarge => 413,
            Failure::RateLimited { .. } => 429,
            Failure::PoolExhausted | Failure::Internal => 500,
            Failure::Unsupported => 501,
            Failure::Busy | Failure::NoSlot | Failure::Unavailable => 503,
        }
    }

    /// The body of the answer, before anything was sent.
    pub(crate) fn body(&self, persona: Persona, api: Option<Api>) -> Value {
        match persona {
            _ if matches!(self, Failure::RateLimited { .. }) => self.limit(api),
            // Their middleware answers before any dialect is known.
            Persona::Vllm | Persona::Sglang if *self == Failure::KeyRefused => {
                json!({"error": "Unauthorized"})
            }
            Persona::LlamaCpp => self.llama(api),
            Persona::Vllm => self.vllm(api),
            Persona::Sglang => self.sglang(api),
            Persona::OpenAi => self.openai(),
        }
    }

    /// No engine limits rates; what stands before it does, in the caller's dialect.
    fn limit(&self, api: Option<Api>) -> Value {
        let message = self.message(Persona::OpenAi);
        if api == Some(Api::Messages) {
            return anthropic("rate_limit_error", &message);
        }
        json!({"error": {"message": message, "type": "requests", "param": null, "code": "rate_limit_exceeded"}})
    }

    fn llama(&self, api: Option<Api>) -> Value {
        if *self == Failure::NotFound {
            return json!({"error": {"message": self.message(Persona::LlamaCpp), "type": "not_found_error", "code": 404}});
        }
        json!({"error": self.llama_inner(api)})
    }

    /// llama.cpp's error without its envelope, as its `/v1/messages` streams send it.
    fn llama_inner(&self, api: Option<Api>) -> Value {
        let code = self.status(Persona::LlamaCpp, api);
        let kind = match self {
            Failure::TooLong { .. } => "exceed_context_size_error",
            Failure::NoSlot | Failure::Unavailable | Failure::Busy => "unavailable_error",
            Failure::Unsupported => "not_supported_error",
            Failure::KeyRefused => "authentication_error",
            _ if code >= 500 => "server_error",
            _ => "invalid_request_error",
        };
        let mut error =
            json!({"code": code, "message": self.message(Persona::LlamaCpp), "type": kind});
        if let Failure::TooLong { tokens, limit } = self {
            error["n_prompt_tokens"] = (*tokens).into();
            error["n_ctx"] = (*limit).into();
        }
        error
    }

    fn vllm(&self, api: Option<Api>) -> Value {
        let code = self.status(Persona::Vllm, api);
        let message = self.message(Persona::Vllm);
        let (kind, param) = match self {
            Failure::NotFound | Failure::MethodNotAllowed => return json!({"detail": message}),
            Failure::BadJson => ("Bad Request", json!("body.0")),
            Failure::Missing(name) => ("Bad Request", json!(format!("body.{name}"))),
            Failure::TooLong { .. } => ("BadRequestError", json!("input_tokens")),
            Failure::UnknownModel(_) => ("NotFoundError", json!("model")),
            Failure::Busy | Failure::Unavailable => ("Service Unavailable", Value::Null),
            _ => ("InternalServerError", Value::Null),
        };
        // Validation fails before the request reaches the handler that speaks Anthropic.
        let validation = matches!(self, Failure::BadJson | Failure::Missing(_));
        if api == Some(Api::Messages) && !validation {
            return json!({"type": "error", "error": {"type": kind, "message": message}});
        }
        json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
    }

    fn sglang(&self, api: Option<Api>) -> Value {
        let code = self.status(Persona::Sglang, api);
        let message = self.message(Persona::Sglang);
        let kind = match self {
            Failure::NotFound | Failure::MethodNotAllowed => return json!({"detail": message}),
            Failure::BadJson | Failure::Missing(_) => "Bad Request",
            Failure::TooLong { .. } => "BadRequestError",
            Failure::Busy | Failure::Unavailable => "503",
            _ => "InternalServerError",
        };
        match api {
            Some(Api::Messages) if code == 503 => {
                anthropic("overloaded_error", "Internal server error")
            }
            Some(Api::Messages) if code >= 500 => anthropic("api_error", "Internal server error"),
            Some(Api::Messages) => anthropic("invalid_request_error", &message),
            Some(Api::Responses) => {
                json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
            }
            _ => {
                json!({"object": "error", "message": message, "type": kind, "param": null, "code": code})
            }
        }
    }

    fn openai(&self) -> Value {
        let (kind, code) = match self {
            Failure::TooLong { .. } => ("invalid_request_error", json!("context_length_exceeded")),
            Failure::UnknownModel(_) => ("invalid_request_error", json!("model_not_found")),
            Failure::KeyRefused => ("invalid_request_error", json!("invalid_api_key")),
            Failure::Busy | Failure::Unavailable => ("server_error", json!("overloaded")),
            Failure::Internal | Failure::PoolExhausted => ("server_error", Value::Null),
            _ => ("invalid_request_error", Value::Null),
        };
        json!({"error": {"message": self.message(Persona::OpenAi), "type": kind, "param": null, "code": code}})
    }

    fn message(&self, persona: Persona) -> String {
        match (self, persona) {
            (Failure::BadJson, Persona::LlamaCpp) => {
                "[json.exception.parse_error.101] parse error: syntax error while \
                parsing value"
                    .to_owned()
            }
            (Failure::BadJson, Persona::OpenAi) => {
                "We could not parse the JSON body of your request.".to_owned()
            }
            (Failure::BadJson, _) => {
                "1 validation error:\n  {'type': 'json_invalid', 'loc': ('body', 0), 'msg': 'JSON \
                decode error'}"
                    .to_owned()
            }
            (Failure::Missing(name), Persona::LlamaCpp) => format!("'{name}' is required"),
            (Failure::Missing(name), _) => format!(
                "1 validation error:\n  {{'type': 'missing', 'loc': ('body', '{name}'), \
                'msg': 'Field required'}}"
            ),
            (Failure::TooLong { tokens, limit }, persona) => too_long(persona, *tokens, *limit),
            (Failure::UnknownModel(name), _) => format!("The model `{name}` does not exist."),
            (Failure::Busy, Persona::Sglang) => SGLANG_FULL.to_owned(),
            (Failure::Busy, _) => VLLM_BUSY.to_owned(),
            (Failure::PoolExhausted, _) => "Context size has been exceeded.".to_owned(),
            (Failure::NoSlot, _) => "no slot available".to_owned(),
            (Failure::NotFound, Persona::LlamaCpp) => "File Not Found".to_owned(),
            (Failure::NotFound, _) => "Not Found".to_owned(),
            (Failure::MethodNotAllowed, _) => "Method Not Allowed".to_owned(),
            (Failure::Unsupported, _) => {
                "This server does not support embeddings. Start it with `--embeddings`".to_owned()
            }
            (Failure::TooLarge, _) => "Request body is too large".to_owned(),
            (Failure::Internal, _) => "Internal server error".to_owned(),
            (Failure::Unavailable, Persona::LlamaCpp) => "Loading model".to_owned(),
            (Failure::Unavailable, _) => "Service unavailable".to_owned(),
            (Failure::RateLimited { .. }, _) => "Rate limit reached for requests".to_owned(),
            (Failure::KeyRefused, Persona::LlamaCpp) => "Invalid API Key".to_owned(),
            (Failure::KeyRefused, _) => "Incorrect API key provided".to_owned(),
        }
    }

    /// What a stream says when it fails after its head was sent.
    pub(crate) fn push_events(&self, facts: &Facts, events: &mut Events) {
        let api = facts.ask.api;
        match (facts.persona, api) {
            (Persona::LlamaCpp, Api::Messages) => {
                events.named("error", &self.llama_inner(Some(api)))
            }
            (Persona::LlamaCpp, _) => events.json(&json!({"error": self.llama_inner(Some(api))})),
            (Persona::Vllm, Api::Messages) => {
                events.typed(&anthropic("internal_error", &self.message(facts.persona)));
            }
            (Persona::Vllm, _) => {
                events.data(&spaced(&self.vllm(None)));
                events.done();
            }
            (Persona::Sglang, Api::Messages) => {
                let kind = if *self == Failure::Busy { "overloaded_error" } else { "api_error" };
                events.typed(&super::shapes::message_start(facts, &Done::default()));
                events.typed(&anthropic(kind, &self.message(facts.persona)));
                events.typed(&json!({"type": "message_stop"}));
            }
            (Persona::Sglang, _) => {
                let mut error = self.sglang(None);
                if self.status(Persona::Sglang, None) == 503 {
                    error["type"] = json!("SERVICE_UNAVAILABLE");
                }
                events.data(&spaced(&json!({"error": error})));
                events.done();
            }
            (Persona::OpenAi, _) => events.json(&self.openai()),
        }
    }
}

fn anthropic(kind: &str, message: &str) -> Value {
    json!({"type": "error", "error": {"type": kind, "message": message}})
}

fn too_long(persona: Persona, tokens: u32, limit: u32) -> String {
    match persona {
        Persona::LlamaCpp => format!(
            "request ({tokens} tokens) exceeds the available context size ({limit} tokens), try increasing it"
        ),
        Persona::Vllm | Persona::OpenAi => format!(
            "This model's maximum context length is {limit} tokens. However, your prompt contains at least {tokens} input \
             tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input \
             prompt. (parameter=input_tokens, value={tokens})"
        ),
        Persona::Sglang => {
            format!(
                "The input ({tokens} tokens) is longer than the model's context length ({limit} tokens)."
            )
        }
    }
}
