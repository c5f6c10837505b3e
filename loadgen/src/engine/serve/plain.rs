//! Requests that are answered at once, or, for SGLang's health, after a poll.

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::Duration;

use super::super::ask::Api;
use super::super::clock::unix_ms;
use super::super::errors::Failure;
use super::super::faults::Faults;
use super::super::http::Head;
use super::super::info;
use super::super::persona::Persona;
use super::super::shared::Shared;
use super::super::text::chain::token_count;
use super::prepare::{parse, rendered};
use super::route::Route;

/// A whole answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) content_type: &'static str,
    pub(super) extra: Vec<(&'static str, String)>,
    pub(super) body: Vec<u8>,
}

impl Answer {
    pub(super) fn json(persona: Persona, value: &Value) -> Self {
        Self {
            status: 200,
            content_type: json_type(persona),
            extra: Vec::new(),
            body: value.to_string().into_bytes(),
        }
    }

    pub(super) fn failure(persona: Persona, api: Option<Api>, failure: &Failure) -> Self {
        let status = failure.status(persona, api);
        let mut answer = Self { status, ..Self::json(persona, &failure.body(persona, api)) };
        if let Failure::RateLimited { retry_after_s: Some(seconds) } = failure {
            answer.extra.push(("Retry-After", seconds.to_string()));
        }
        answer
    }

    fn text(content_type: &'static str, body: String) -> Self {
        Self { status: 200, content_type, extra: Vec::new(), body: body.into_bytes() }
    }

    /// An empty body, as vLLM and SGLang answer health probes.
    fn empty(status: u16) -> Self {
        Self { status, content_type: "", extra: Vec::new(), body: Vec::new() }
    }
}

pub(super) fn json_type(persona: Persona) -> &'static str {
    if persona == Persona::LlamaCpp {
        "application/json; charset=utf-8"
    } else {
        "application/json"
    }
}

/// Answers anything but inference.
pub(super) async fn answer(shared: &Shared, route: Route, head: &Head, body: &Bytes) -> Answer {
    let persona = shared.options.persona;
    let answered = match route {
        Route::HealthGenerate => Ok(health_generate(shared).await),
        Route::SimState | Route::SimFaults | Route::SimRestart | Route::SimFlush => {
            return sim(shared, route, head, body);
        }
        _ => at_once(shared, route, head, body),
    };
    answered.unwrap_or_else(|failure| Answer::failure(persona, None, &failure))
}

fn at_once(shared: &Shared, route: Route, head: &Head, body: &Bytes) -> Result<Answer, Failure> {
    let options = &shared.options;
    let persona = options.persona;
    let unhealthy = shared.faults.borrow().unhealthy;
    let json = |value: Value| Ok(Answer::json(persona, &value));
    match route {
        Route::Health | Route::Ready if unhealthy => Err(Failure::Unavailable),
        Route::Health if persona == Persona::LlamaCpp => json(json!({"status": "ok"})),
        Route::Ready if shared.core().unhealthy => Ok(Answer::empty(503)),
        Route::Health | Route::Ready => Ok(Answer::empty(200)),
        Route::Models => json(info::models(options, &shared.snapshot())),
        Route::Metrics => Ok(metrics(shared)),
        Route::Props => json(info::llama_props(options)),
        Route::Slots => slots(shared, head),
        Route::ServerInfo => json(info::sglang_server_info(options, &shared.snapshot())),
        Route::ModelInfo => json(info::sglang_model_info(options)),
        Route::Loads => json(info::sglang_loads(options, &shared.snapshot(), unix_ms())),
        Route::Load => json(json!({"server_load": 0})),
        Route::Version => json(json!({"version": "0.32.0"})),
        Route::IsSleeping => json(json!({"is_sleeping": false})),
        Route::FlushCache => {
            shared.forget_cache();
            Ok(Answer::empty(200))
        }
        Route::CountTokens => json(count_tokens(shared, body)?),
        Route::Tokenize => json(tokenize(shared, body)?),
        Route::ApplyTemplate => {
            let prompt = rendered(options, Api::Chat, &parse(body)?)?;
            json(json!({"prompt": prompt.text}))
        }
        _ => Err(Failure::NotFound),
    }
}

fn metrics(shared: &Shared) -> Answer {
    let (options, at) = (&shared.options, shared.snapshot());
    match options.persona {
        Persona::LlamaCpp => {
            let mut answer = Answer::text("text/plain; version=0.0.4", info::llama_metrics(&at));
            answer.extra.push(("Process-Start-Time-Unix", (at.started_ms / 1_000).to_string()));
            answer
        }
        Persona::Sglang => Answer::text(
            "text/plain; version=0.0.4; charset=utf-8",
            info::sglang_metrics(options, &at),
        ),
        Persona::Vllm | Persona::OpenAi => Answer::text(
            "text/plain; version=0.0.4; charset=utf-8",
            info::vllm_metrics(options, &at),
        ),
    }
}

fn slots(shared: &Shared, head: &Head) -> Result<Answer, Failure> {
    let at = shared.snapshot();
    let full = at.slots.iter().all(|slot| slot.running.is_some());
    if full && head.query.split('&').any(|pair| pair == "fail_on_no_slot=1") {
        return Err(Failure::NoSlot);
    }
    Ok(Answer::json(shared.options.persona, &info::llama_slots(&shared.options, &at)))
}

fn count_tokens(shared: &Shared, body: &Bytes) -> Result<Value, Failure> {
    let prompt = rendered(&shared.options, Api::Messages, &parse(body)?)?;
    Ok(json!({"input_tokens": token_count(prompt.text.len())}))
}

fn tokenize(shared: &Shared, body: &Bytes) -> Result<Value, Failure> {
    let options = &shared.options;
    let body = parse(body)?;
    let text = match body.get("content").or(body.get("prompt")).and_then(Value::as_str) {
        Some(text) => text.to_owned(),
        None => rendered(options, Api::Chat, &body)?.text,
    };
    let id = |four: &[u8]| xxhash_rust::xxh3::xxh3_64(four) % 65_536;
    let tokens: Vec<u64> = text.as_bytes().chunks(4).map(id).collect();
    let (count, longest) = (tokens.len(), options.sequence_tokens_max());
    Ok(match options.persona {
        Persona::LlamaCpp => json!({"tokens": tokens}),
        Persona::Sglang => json!({"tokens": tokens, "count": count, "max_model_len": longest}),
        Persona::Vllm | Persona::OpenAi => {
            json!({"count": count, "max_model_len": longest, "tokens": tokens, "token_strs": null})
        }
    })
}

/// SGLang's health: it looks in steps for any token of anyone, 20 times at most; on an idle engine its own probe is that token.
/// A failure also turns `/ready` to 503 until the next success.
async fn health_generate(shared: &Shared) -> Answer {
    if shared.faults.borrow().unhealthy {
        return Answer::failure(Persona::Sglang, None, &Failure::Unavailable);
    }
    let before = shared.signs_of_life();
    let step = Duration::from_millis(shared.options.health_step_ms);
    for _ in 0..20 {
        tokio::time::sleep(step).await;
        if shared.signs_of_life() != before || shared.idle_and_able() {
            shared.core().unhealthy = false;
            return Answer::empty(200);
        }
    }
    shared.core().unhealthy = true;
    Answer::empty(503)
}

/// The endpoints no engine has.
fn sim(shared: &Shared, route: Route, head: &Head, body: &Bytes) -> Answer {
    let persona = shared.options.persona;
    match route {
        Route::SimFaults if head.method == "POST" => match patched(shared, body) {
            Ok(()) => Answer::json(persona, &faults_json(shared)),
            Err(reason) => {
                Answer { status: 400, ..Answer::json(persona, &json!({"error": reason})) }
            }
        },
        Route::SimFaults => Answer::json(persona, &faults_json(shared)),
        Route::SimFlush => {
            shared.forget_cache();
            Answer::empty(200)
        }
        // The restart itself waits until this answer is written: it resets every connection.
        Route::SimRestart => Answer::empty(200),
        _ => {
            shared.tick();
            Answer::json(persona, &serde_json::to_value(shared.state()).unwrap_or(Value::Null))
        }
    }
}

fn patched(shared: &Shared, body: &Bytes) -> Result<(), String> {
    let patch = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let current: Faults = shared.faults.borrow().clone();
    let wanted = current.patched(&patch).map_err(|error| error.to_string())?;
    shared.patch_faults(|faults| *faults = wanted);
    Ok(())
}

fn faults_json(shared: &Shared) -> Value {
    serde_json::to_value(&*shared.faults.borrow()).unwrap_or(Value::Null)
}
