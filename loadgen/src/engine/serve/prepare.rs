//! From a request's body to a request for the model. Synchronous, so that nothing of the body is kept while tokens flow.

use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use super::super::ask::{Api, Ask};
use super::super::clock::unix_ms;
use super::super::errors::Failure;
use super::super::http::Head;
use super::super::model::Request;
use super::super::options::EngineOptions;
use super::super::persona::Persona;
use super::super::shapes::Facts;
use super::super::shared::Shared;
use super::super::text::chain::{chain, token_count};
use super::super::text::{Billing, Rendered, Style, expected_text, render};

/// A request ready for the model.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) facts: Facts,
    pub(super) request: Request,
    /// From which the reply's text follows.
    pub(super) prompt_hash: u64,
}

pub(super) fn parse(body: &[u8]) -> Result<Value, Failure> {
    serde_json::from_slice(body).map_err(|_| Failure::BadJson)
}

/// The prompt of a body as this engine renders it.
pub(super) fn rendered(
    options: &EngineOptions,
    api: Api,
    body: &Value,
) -> Result<Rendered, Failure> {
    let billing = match options.persona {
        Persona::Vllm => Billing::Drop,
        Persona::LlamaCpp => Billing::Blank,
        Persona::Sglang | Persona::OpenAi => Billing::Keep,
    };
    let merge_later_system = options.merge_later_system && options.persona == Persona::Vllm;
    render(api, body, Style { billing, merge_later_system }).map_err(Failure::Missing)
}

pub(super) fn prepare(
    shared: &Shared,
    api: Api,
    head: &Head,
    body: &[u8],
) -> Result<Prepared, Failure> {
    let options = &shared.options;
    if api == Api::Embeddings && !options.embeddings {
        return Err(Failure::Unsupported);
    }
    let body = parse(body)?;
    let ask = Ask::parse(api, &body);
    let model = model_name(options, &ask)?;
    let rendered = rendered(options, api, &body)?;
    let prompt_tokens = token_count(rendered.text.len());
    let prompt_hash = rendered.hash();
    let limit = options.sequence_tokens_max();
    if prompt_tokens >= limit {
        return Err(Failure::TooLong { tokens: prompt_tokens, limit });
    }
    let natural = options.reply.pick(prompt_hash);
    let (reply_tokens, finish) = ask.reply_tokens(natural, limit - prompt_tokens);
    let params = &options.params;
    let root = xxh3_64(body.get("cache_salt").and_then(Value::as_str).unwrap_or(&model).as_bytes());
    let reply = expected_text(prompt_hash, reply_tokens);
    let chain = chain(root, &rendered.text, &reply, params.block_tokens, params.cache_tail);
    let request = Request {
        prompt_blocks: chain.prompt,
        prompt_tokens,
        reply_blocks: chain.reply,
        reply_tokens,
        slot: ask.slot.filter(|_| options.persona == Persona::LlamaCpp),
    };
    let facts = Facts {
        persona: options.persona,
        id: reply_id(shared, head),
        created: unix_ms() / 1_000,
        prompt_tokens,
        report_cached: options.report_cached,
        block_tokens: prompt_tokens / params.block_tokens.max(1) * params.block_tokens,
        finish,
        model,
        ask,
    };
    Ok(Prepared { facts, request, prompt_hash })
}

/// vLLM and a plain OpenAI server know their models, SGLang repeats any name, llama.cpp tells its own.
fn model_name(options: &EngineOptions, ask: &Ask) -> Result<String, Failure> {
    match (options.persona, &ask.model) {
        (Persona::Vllm | Persona::OpenAi, Some(name)) if *name != options.model => {
            Err(Failure::UnknownModel(name.clone()))
        }
        (Persona::Sglang, Some(name)) => Ok(name.clone()),
        _ => Ok(options.model.clone()),
    }
}

fn reply_id(shared: &Shared, head: &Head) -> String {
    match (&head.request_id, shared.options.persona) {
        (Some(id), Persona::Vllm) => id.clone(),
        _ => shared.fresh_id(),
    }
}
