//! What a request's body means for routing: its model, its prompt's fingerprint, whose conversation it is.
//!
//! The body is decoded and read here once, to be looked at; what is forwarded is what came. Nothing of the
//! prompt's text outlives this step: only hashes and sizes go on.

use std::borrow::Cow;

use index::{ConversationKey, Fingerprinter, conversation_key};

use crate::answer::Situation;
use crate::api::Api;
use crate::conversation;
use crate::encoding::{self, Decoded, EncodingError};
use crate::http::RequestHead;
use crate::place::{Plan, serves};
use crate::prompt::{self, Canon, Prompt};
use crate::shard::Shard;

/// What to do with a request.
#[derive(Debug)]
pub enum Planned {
    /// Send it to a backend.
    Forward(Plan),
    /// Answer it.
    Answer(Situation),
}

impl Canon for Fingerprinter {
    fn root(&mut self, part: &[u8]) {
        Fingerprinter::root(self, part);
    }

    fn push(&mut self, bytes: &[u8]) {
        Fingerprinter::push(self, bytes);
    }
}

/// Plans a request whose body is complete.
pub fn plan(shard: &Shard, api: Api, head: &RequestHead, body: &[u8]) -> Planned {
    if api == Api::Other && !shard.shared.config.passthrough {
        return Planned::Answer(Situation::UnknownPath);
    }
    let mut plan = Plan {
        reserves: api.reserves_slot(),
        output_tokens: output_tokens(shard, None, 1),
        ..Plan::default()
    };
    if !api.reads_prompt() {
        return Planned::Forward(plan);
    }
    let read = match decode(shard, head, body) {
        Ok(Some(decoded)) => read_prompt(shard, api, head, &decoded, &mut plan),
        Ok(None) => {
            plan.conversation = conversation_of(shard, head, None);
            Ok(())
        }
        Err(situation) => Err(situation),
    };
    match read {
        Ok(()) => Planned::Forward(plan),
        Err(situation) => Planned::Answer(situation),
    }
}

/// The body as text; `None` when its encoding is unknown, so that only its headers can be gone by.
fn decode<'b>(
    shard: &Shard,
    head: &RequestHead,
    body: &'b [u8],
) -> Result<Option<Cow<'b, [u8]>>, Situation> {
    let max = usize::try_from(shard.shared.config.limits.body_bytes_max).unwrap_or(usize::MAX);
    match encoding::decode(head.header("content-encoding"), body, max) {
        Ok(Decoded::Plain(bytes)) => Ok(Some(bytes.into())),
        Ok(Decoded::Inflated(bytes)) => Ok(Some(bytes.into())),
        Ok(Decoded::Opaque) => Ok(None),
        Err(EncodingError::TooLarge) => Err(Situation::BodyTooLarge),
        Err(_) => Err(Situation::BadEncoding),
    }
}

fn read_prompt(
    shard: &Shard,
    api: Api,
    head: &RequestHead,
    body: &[u8],
    plan: &mut Plan,
) -> Result<(), Situation> {
    let block_bytes = shard.shared.config.routing.block_bytes;
    let mut canon = Fingerprinter::new(shard.shared.key, block_bytes);
    let mut scratch = shard.scratch.borrow_mut();
    let prompt =
        prompt::read_with(&mut scratch, api, body, &mut canon).map_err(|_| Situation::BadJson)?;
    if !knows_model(shard, &prompt) {
        return Err(Situation::UnknownModel);
    }
    plan.model = prompt.model.as_deref().map(Into::into);
    plan.output_tokens = output_tokens(shard, prompt.output_tokens_max, prompt.choices);
    plan.canonical_bytes = prompt.canonical_bytes;
    plan.conversation = conversation_of(shard, head, Some(&prompt));
    if api.fills_cache() {
        plan.blocks = canon.finish().blocks;
    }
    Ok(())
}

fn knows_model(shard: &Shard, prompt: &Prompt<'_>) -> bool {
    let mut routes = shard.routes.borrow_mut();
    serves(shard, routes.load(), prompt.model.as_deref())
}

/// What a reply is budgeted to take: what was asked for, up to a cap, because clients ask for far more than
/// they use (32,000 is one client's constant), for each of the choices.
fn output_tokens(shard: &Shard, asked: Option<u64>, choices: u32) -> u64 {
    let routing = &shard.shared.config.routing;
    let each = asked.unwrap_or(u64::from(routing.output_tokens_default));
    each.min(u64::from(routing.output_tokens_cap)).saturating_mul(u64::from(choices))
}

/// Whose conversation it is, scoped by the caller's credential, so that callers cannot steer each other.
fn conversation_of(
    shard: &Shard,
    head: &RequestHead,
    prompt: Option<&Prompt<'_>>,
) -> Option<ConversationKey> {
    let configured = shard.shared.config.routing.session_header.as_deref();
    let get = |name: &str| head.header(name);
    let id = conversation::id(configured, &get, prompt)?;
    Some(conversation_key(shard.shared.key, conversation::credential(&get), &id.bytes()))
}
