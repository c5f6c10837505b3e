//! What routing needs from a request body: the model, the conversation's ids, the sizes, and the prompt in one canonical
//! spelling, pushed byte by byte into a [`Canon`] (in production the fingerprint). It never changes the body, never keeps
//! or logs a byte of it, and never holds it against a client that a field has an odd type: the engine decides that.
//!
//! # The canonical form
//!
//! A sequence of frames in the order templates render them: tools, then the system text, then the messages in place. A
//! frame begins with an unescaped quote and a letter (see `canonical.rs`); text inside is JSON text with minimal escapes
//! and therefore holds no unescaped quote; JSON inside delimits itself. So no text can forge a frame. No frame has an end
//! of its own: what one turn of a conversation pushed is a byte prefix of what the next turn pushes.
//!
//! Equal in this form: a string and the same text as one part; any JSON spelling of text, numbers, key order and white
//! space; with and without `cache_control` at any depth; with and without the billing line; nulls and absent members.
//! Several text parts are joined by a newline, as vLLM and llama.cpp do.
//!
//! Left out: ids of calls and items (`id`, `call_id`, `tool_call_id`, `tool_use_id`, `status`, thinking signatures).
//! Engines invent them at random, hardly any template shows them, and a replayed conversation has new ones. Left out too
//! are sampling fields and what templates use at the very end or at unknown places (`tool_choice`, `reasoning_effort`,
//! `chat_template_kwargs`): one client toggles them between turns without moving the prefix.
//!
//! Into the root, before any frame: the model, SGLang's `lora_path`, vLLM's `cache_salt`, a `chat_template` sent along.

mod canonical;
mod canonical_json;
mod dialects;
mod error;
mod fields;
mod head;
pub(crate) mod json;
mod messages;
mod repairs;

use crate::api::Api;
use canonical::{Inner, Writer};
use fields::{Fields, Name};
use head::Head;
use json::{Tape, Value};
use repairs::Mending;
use std::borrow::Cow;
use std::fmt;

pub use error::{PromptError, PromptErrorKind};
pub use repairs::{Repairs, SlotPlaces, Wanted};

/// Takes the canonical prompt.
pub trait Canon {
    /// Something that separates whole caches (an adapter, a salt); only before the first [`Canon::push`].
    fn root(&mut self, part: &[u8]);

    /// The next bytes of the canonical prompt; where it is cut has no meaning.
    fn push(&mut self, bytes: &[u8]);
}

/// What a request body says about routing. Borrows from the body wherever the text needs no decoding.
#[derive(Clone)]
pub struct Prompt<'a> {
    /// `model`, if it is a string.
    pub model: Option<Cow<'a, str>>,
    /// Whether a stream of events was asked for.
    pub stream: bool,
    /// `stream_options.include_usage`: whether the stream will report its tokens.
    pub include_usage: bool,
    /// The caller's bound on generated tokens, for each of the choices.
    pub output_tokens_max: Option<u64>,
    /// How many replies to each prompt are asked for (`n`, `best_of`), at least 1.
    pub choices: u32,
    /// How many prompts the body holds: 1, or the size of a batch.
    pub prompts: u32,
    /// `prompt_cache_key`: the client's own id of the conversation.
    pub prompt_cache_key: Option<Cow<'a, str>>,
    /// The session part of `metadata.user_id`.
    pub user_session: Option<Cow<'a, str>>,
    /// `previous_response_id`, or a `conversation` id: only the backend that holds that state can continue it.
    pub previous_response: Option<Cow<'a, str>>,
    /// Whether an engine is asked to remember it, or to go on from what it remembers: a stored or background response.
    pub keeps_state: bool,
    /// Tools, messages and items rendered.
    pub parts: u32,
    /// Images, audio and files among them; each costs tokens that its canonical bytes do not show.
    pub media: u32,
    /// Length of the canonical prompt.
    pub canonical_bytes: u64,
    head: Head<'a>,
}

impl Prompt<'_> {
    /// A digest of the first system text and the first user text, which stay the same while a conversation grows: the
    /// last resort for telling conversations apart. `None` without a user text. Computed when asked for.
    pub fn head_digest(&self) -> Option<u64> {
        self.head.digest()
    }
}

/// Memory that reading reuses from body to body: one for each shard. Bounded by the limits of reading.
#[derive(Debug, Default)]
pub struct Scratch {
    tape: Tape,
    inner: Inner,
}

/// Reads the body of a request for `api` and pushes its canonical prompt.
///
/// # Errors
/// If the body is not a JSON object within the limits, or a member that decides routing is ambiguous. What was pushed by
/// then is worthless. Fields of unexpected types are no error: the engine judges them.
pub fn read<'a>(
    api: Api,
    body: &'a [u8],
    canon: &mut impl Canon,
) -> Result<Prompt<'a>, PromptError> {
    read_with(&mut Scratch::default(), api, body, canon)
}

/// [`read`] with memory of earlier calls.
///
/// # Errors
/// As [`read`].
pub fn read_with<'a>(
    scratch: &mut Scratch,
    api: Api,
    body: &'a [u8],
    canon: &mut impl Canon,
) -> Result<Prompt<'a>, PromptError> {
    read_and_mend(scratch, api, body, canon, &Wanted::default()).map(|(prompt, _)| prompt)
}

/// [`read_with`], and what is to be mended in the body of what is `wanted`.
///
/// # Errors
/// As [`read`].
pub fn read_and_mend<'a>(
    scratch: &mut Scratch,
    api: Api,
    body: &'a [u8],
    canon: &mut impl Canon,
    wanted: &Wanted,
) -> Result<(Prompt<'a>, Repairs), PromptError> {
    let Scratch { tape, inner } = scratch;
    tape.parse(body)?;
    let root = Value::root(body, tape.tokens());
    let fields = Fields::of(root)?;
    let (model, prompt_cache_key) = (fields.text(Name::Model)?, fields.text(Name::PromptCacheKey)?);
    // Models never share a cache, so the model separates fingerprints before anything else does.
    canon.root(model.as_deref().unwrap_or_default().as_bytes());
    let mut writer = Writer::new(canon, inner);
    writer.body(api, &fields);
    let single = writer.prompts == 1 && fields.choices() == 1;
    let mut repairs = Repairs::default();
    if wanted.any() {
        repairs = Mending { api, root, fields: &fields, single }.find(wanted);
    }
    let prompt = Prompt {
        model,
        stream: fields.is_true(Name::Stream),
        include_usage: fields.include_usage(),
        output_tokens_max: fields.output_tokens_max(),
        choices: fields.choices(),
        prompts: writer.prompts,
        prompt_cache_key,
        user_session: fields.user_session(),
        previous_response: fields.previous_response(),
        keeps_state: fields.keeps_state(),
        parts: writer.parts,
        media: writer.media,
        canonical_bytes: writer.bytes,
        head: writer.head,
    };
    Ok((prompt, repairs))
}

/// How many values a body holds: the pass over its structure and nothing else, for those who measure it alone.
///
/// # Errors
/// If the body is no JSON within the limits.
pub fn count_values(scratch: &mut Scratch, body: &[u8]) -> Result<usize, PromptError> {
    scratch.tape.parse(body)?;
    Ok(scratch.tape.tokens().len())
}

impl fmt::Debug for Prompt<'_> {
    // Ids of conversations are never logged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prompt")
            .field("model", &self.model)
            .field("stream", &self.stream)
            .field("output_tokens_max", &self.output_tokens_max)
            .field("choices", &self.choices)
            .field("prompts", &self.prompts)
            .field("parts", &self.parts)
            .field("media", &self.media)
            .field("canonical_bytes", &self.canonical_bytes)
            .finish_non_exhaustive()
    }
}
