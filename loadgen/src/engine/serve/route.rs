//! Paths, by persona.

use super::super::ask::Api;
use super::super::errors::Failure;
use super::super::persona::Persona;

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    Infer(Api),
    CountTokens,
    Tokenize,
    ApplyTemplate,
    Models,
    Health,
    /// SGLang's health, which generates a token.
    HealthGenerate,
    Ready,
    Metrics,
    Props,
    Slots,
    ServerInfo,
    ModelInfo,
    Loads,
    Load,
    Version,
    IsSleeping,
    FlushCache,
    SimState,
    SimFaults,
    SimRestart,
    SimFlush,
}

/// Where this request goes.
pub(super) fn route(persona: Persona, method: &str, path: &str) -> Result<Route, Failure> {
    let (wanted, route) = sim(path)
        .or_else(|| inference(persona, path))
        .or_else(|| information(persona, path))
        .ok_or(Failure::NotFound)?;
    let matches = wanted == method
        || wanted == "GET" && method == "HEAD"
        || route == Route::SimFaults && method == "GET";
    match (matches, persona) {
        (true, _) => Ok(route),
        (false, Persona::LlamaCpp) => Err(Failure::NotFound),
        (false, _) => Err(Failure::MethodNotAllowed),
    }
}

fn sim(path: &str) -> Option<(&'static str, Route)> {
    Some(match path {
        "/sim/state" => ("GET", Route::SimState),
        "/sim/faults" => ("POST", Route::SimFaults),
        "/sim/restart" => ("POST", Route::SimRestart),
        "/sim/flush" => ("POST", Route::SimFlush),
        _ => return None,
    })
}

fn inference(persona: Persona, path: &str) -> Option<(&'static str, Route)> {
    let route = match (path, persona) {
        ("/v1/chat/completions", _) | ("/chat/completions", Persona::LlamaCpp) => {
            Route::Infer(Api::Chat)
        }
        ("/v1/completions", _) => Route::Infer(Api::Completions),
        ("/v1/responses", _) => Route::Infer(Api::Responses),
        ("/v1/embeddings", _) => Route::Infer(Api::Embeddings),
        (_, Persona::OpenAi) => return None,
        ("/v1/messages", _) => Route::Infer(Api::Messages),
        ("/v1/messages/count_tokens", _) => Route::CountTokens,
        ("/tokenize", _) => Route::Tokenize,
        ("/completion" | "/completions", Persona::LlamaCpp) => Route::Infer(Api::LlamaCompletion),
        ("/apply-template", Persona::LlamaCpp) => Route::ApplyTemplate,
        ("/generate", Persona::Sglang) => Route::Infer(Api::Generate),
        ("/flush_cache", Persona::Sglang) | ("/reset_prefix_cache", Persona::Vllm) => {
            Route::FlushCache
        }
        _ => return None,
    };
    Some(("POST", route))
}

fn information(persona: Persona, path: &str) -> Option<(&'static str, Route)> {
    let route = match (persona, path) {
        (_, "/v1/models") | (Persona::LlamaCpp, "/models") => Route::Models,
        (Persona::Sglang, "/health" | "/health_generate") => Route::HealthGenerate,
        (_, "/health") | (Persona::LlamaCpp, "/v1/health") | (Persona::Vllm, "/ping") => {
            Route::Health
        }
        (Persona::OpenAi, _) => return None,
        (_, "/metrics") => Route::Metrics,
        (Persona::LlamaCpp, "/props") => Route::Props,
        (Persona::LlamaCpp, "/slots") => Route::Slots,
        (Persona::Vllm, "/load") => Route::Load,
        (Persona::Vllm, "/version") => Route::Version,
        (Persona::Vllm, "/is_sleeping") => Route::IsSleeping,
        (Persona::Sglang, "/ready") => Route::Ready,
        (Persona::Sglang, "/server_info" | "/get_server_info") => Route::ServerInfo,
        (Persona::Sglang, "/model_info" | "/get_model_info") => Route::ModelInfo,
        (Persona::Sglang, "/v1/loads") => Route::Loads,
        _ => return None,
    };
    Some(("GET", route))
}
