//! What a request's body means for routing: its model, its prompt's fingerprint, whose conversation it is.
//!
//! The body is decoded and read here once, to be looked at; what is forwarded is what came. Nothing of the
//! prompt's text outlives this step: only hashes and sizes go on.

use std::borrow::Cow;

use index::{
    Ask, BackendSet, ConversationKey, Fingerprinter, Millis, SequenceHash, conversation_key,
};

use crate::answer::Situation;
use crate::api::Api;
use crate::conversation;
use crate::encoding::{self, Decoded, EncodingError};
use crate::prompt::{self, Canon, Prompt};
use crate::published::{Pool, Published, Routes};

/// What the decision needs to know of a request.
#[derive(Debug, Default)]
pub struct Plan {
    /// Model asked for; `None` goes to any backend.
    pub model: Option<Box<str>>,
    /// Fingerprint of its prompt.
    pub blocks: Vec<SequenceHash>,
    /// Canonical bytes of its prompt.
    pub canonical_bytes: u64,
    /// Tokens its reply may take, as budgeted.
    pub output_tokens: u64,
    /// Whose conversation it is.
    pub conversation: Option<ConversationKey>,
    /// Whether it takes a slot; side calls do not.
    pub reserves: bool,
}

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

/// What planning looks at besides the request.
#[derive(Debug)]
pub struct Views<'v> {
    /// What all threads share.
    pub shared: &'static Published,
    /// Models and pools.
    pub routes: &'v Routes,
    /// Memory for reading bodies.
    pub scratch: &'v mut prompt::Scratch,
}

/// Plans a request whose body is complete. `get` looks a header up by its lower-case name.
pub fn plan<'h>(
    views: &mut Views<'_>,
    api: Api,
    get: &impl Fn(&str) -> Option<&'h [u8]>,
    body: &[u8],
) -> Planned {
    if api == Api::Other && !views.shared.config.passthrough {
        return Planned::Answer(Situation::UnknownPath);
    }
    let mut plan = Plan {
        reserves: api.reserves_slot(),
        output_tokens: output_tokens(views.shared, None, 1),
        ..Plan::default()
    };
    if !api.reads_prompt() {
        return Planned::Forward(plan);
    }
    let read = match decode(views.shared, get, body) {
        Ok(Some(decoded)) => read_prompt(views, api, get, &decoded, &mut plan),
        Ok(None) => {
            plan.conversation = conversation_of(views.shared, get, None);
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
fn decode<'b, 'h>(
    shared: &Published,
    get: &impl Fn(&str) -> Option<&'h [u8]>,
    body: &'b [u8],
) -> Result<Option<Cow<'b, [u8]>>, Situation> {
    let max = usize::try_from(shared.config.limits.body_bytes_max).unwrap_or(usize::MAX);
    match encoding::decode(get("content-encoding"), body, max) {
        Ok(Decoded::Plain(bytes)) => Ok(Some(bytes.into())),
        Ok(Decoded::Inflated(bytes)) => Ok(Some(bytes.into())),
        Ok(Decoded::Opaque) => Ok(None),
        Err(EncodingError::TooLarge) => Err(Situation::BodyTooLarge),
        Err(_) => Err(Situation::BadEncoding),
    }
}

fn read_prompt<'h>(
    views: &mut Views<'_>,
    api: Api,
    get: &impl Fn(&str) -> Option<&'h [u8]>,
    body: &[u8],
    plan: &mut Plan,
) -> Result<(), Situation> {
    let shared = views.shared;
    let canon = Fingerprinter::new(shared.key, shared.config.routing.block_bytes);
    let mut canon = canon.expecting(body.len());
    let prompt =
        prompt::read_with(views.scratch, api, body, &mut canon).map_err(|_| Situation::BadJson)?;
    if shared.pool_of(views.routes, prompt.model.as_deref()).is_none() {
        return Err(Situation::UnknownModel);
    }
    plan.model = prompt.model.as_deref().map(Into::into);
    plan.output_tokens = output_tokens(shared, prompt.output_tokens_max, prompt.choices);
    plan.canonical_bytes = prompt.canonical_bytes;
    plan.conversation = conversation_of(shared, get, Some(&prompt));
    if api.fills_cache() {
        plan.blocks = canon.finish().blocks;
    }
    Ok(())
}

/// What a reply is budgeted to take: what was asked for, up to a cap, because clients ask for far more than
/// they use (32,000 is one client's constant), for each of the choices.
fn output_tokens(shared: &Published, asked: Option<u64>, choices: u32) -> u64 {
    let routing = &shared.config.routing;
    let each = asked.unwrap_or(u64::from(routing.output_tokens_default));
    each.min(u64::from(routing.output_tokens_cap)).saturating_mul(u64::from(choices))
}

/// Room for the usual id with its source and length: UUIDs have 36 bytes.
const CONVERSATION_BYTES_USUAL: usize = 64;

/// Whose conversation it is, scoped by the caller's credential, so that callers cannot steer each other.
fn conversation_of<'h>(
    shared: &Published,
    get: &impl Fn(&str) -> Option<&'h [u8]>,
    prompt: Option<&Prompt<'_>>,
) -> Option<ConversationKey> {
    let configured = shared.config.routing.session_header.as_deref();
    let id = conversation::id(configured, &|name| get(name), prompt)?;
    let model = prompt.and_then(|prompt| prompt.model.as_deref()).unwrap_or_default();
    let mut bytes = Vec::with_capacity(CONVERSATION_BYTES_USUAL + model.len());
    id.append_to(&mut bytes);
    // One client session may use several models, and each of them has a home of its own.
    bytes.extend_from_slice(model.as_bytes());
    Some(conversation_key(shared.key, conversation::credential(get), &bytes))
}

/// The question to the index that a plan comes to.
pub fn ask<'a>(
    shared: &Published,
    plan: &'a Plan,
    pool: &'a Pool,
    excluded: &'a BackendSet,
    waited_ms: u64,
    now: Millis,
    random: u64,
) -> Ask<'a> {
    let ratio = pool.learned.bytes_per_token();
    let routing = &shared.config.routing;
    Ask {
        blocks: &plan.blocks,
        block_tokens: tokens(u64::from(routing.block_bytes), ratio),
        prompt_tokens: reserved_tokens(shared, plan, pool),
        output_tokens: plan.output_tokens,
        conversation: plan.conversation,
        pool: &pool.backends,
        excluded,
        waited_ms,
        home_wait_ms: routing.home_wait_ms,
        now,
        random,
    }
}

/// Tokens to reserve for its prompt. A pool is made of one kind of engine, so its first backend speaks for all.
fn reserved_tokens(shared: &Published, plan: &Plan, pool: &Pool) -> u64 {
    let first = pool.backends.iter().next().and_then(|id| shared.upstream(id));
    let fails_when_full = first.is_some_and(|first| first.kind().fails_when_full());
    whole_tokens(plan.canonical_bytes, pool.learned.bytes_per_token_reserved(fails_when_full))
}

/// Tokens of its prompt, estimated.
pub fn prompt_tokens(plan: &Plan, pool: &Pool) -> u64 {
    whole_tokens(plan.canonical_bytes, pool.learned.bytes_per_token())
}

// An estimate: sizes are far below 2^24 blocks' worth, and a rounding error of one token is no error.
#[allow(clippy::cast_precision_loss)]
fn tokens(bytes: u64, ratio: f32) -> f32 {
    bytes as f32 / ratio
}

// As above; the quotient is not negative and saturates.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn whole_tokens(bytes: u64, ratio: f32) -> u64 {
    tokens(bytes, ratio).ceil() as u64
}
